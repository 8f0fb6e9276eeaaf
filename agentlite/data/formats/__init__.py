"""bytes -> raw rows -> Record: one file a format, chosen here by content or by name."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError, nearest
from agentlite.core.plain_words import misfit, misread
from agentlite.core.records import SPLITS, Message, Record
from agentlite.data.formats import (
    agentinstruct,
    agentlite,
    alpaca,
    anthropic,
    bfcl,
    chains,
    gemini,
    glaive,
    hermes_fc,
    kagentinstruct,
    langchain,
    modelscope,
    ms_agent,
    ms_bench,
    ms_swift,
    openai,
    prompt_completion,
    prompts,
    responses,
    sage_benchmark,
    sage_sft,
    sage_tools,
    self_cognition,
    sharegpt,
    task_prompts,
    text,
    toolace,
    toolllama,
    trajectory,
    xlam,
)
from agentlite.data.formats.extra_fields import stated_in
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.readers import (
    Raw,
    RawLine,
    decoded,
    files_of,
    raw_files,
    read_lines,
    read_raw,
)
from agentlite.data.formats.tool_calls import json_or_literal
from agentlite.data.formats.unknown_rows import unknown_row
from agentlite.rendering.foreign_calls import check_calls
from agentlite.rendering.result_marks import check_results

Row = dict[str, Any]
# a split by our names and by those of other data sets
SPLIT_NAMES = {name: name for name in SPLITS} | dict.fromkeys(("validation", "valid", "val"), "dev")


# where a dialog may be written as its JSON, as columns of Parquet often are
TEXT_KEYS = ("prompt", "completion")  # these may also be a text that begins so
DIALOG_KEYS = ("messages", "conversations", "conversation", *TEXT_KEYS)
LISTED = re.compile(r"\s*\[\s*\{")


class Format(NamedTuple):
    """How rows of a format are known, how they are read, and what one looks like.

    `fields`: what each row of it has, under one of some keys; `has_shape`: whether such a row is
    one of it, where its keys do not tell; `parts`: the rows that one row stands for, where it holds
    several samples.
    """

    read: Callable[..., Record]
    example: str
    fields: Sequence[tuple[tuple[str, ...], Any]]
    has_shape: Callable[[Row], bool]
    parts: Callable[[Row], list[Row]]

    def fits(self, row: Row) -> bool:
        for keys, kind in self.fields:
            for key in keys:
                value = row.get(key)
                if value is not None and isinstance(value, kind):
                    break
            else:
                return False
        return self.has_shape(row)


def _format(module: Any) -> Format:
    """A format as its module declares it: FIELDS (a key, or keys with "|" between them -> its type)
    or `fits` or both, `read`, EXAMPLE, `parts`. One with neither is only chosen by its name.
    """
    fields = [
        (tuple(keys.split("|")), kind) for keys, kind in getattr(module, "FIELDS", {}).items()
    ]
    has_shape = getattr(module, "fits", lambda row: bool(fields))
    parts = getattr(module, "parts", lambda row: [row])
    return Format(module.read, module.EXAMPLE, fields, has_shape, parts)


# The most particular first: an ms_agent row is also a ShareGPT row; a stored one and a prompt are
# also OpenAI rows.
FORMATS: dict[str, Format] = {
    "agentlite": _format(agentlite),
    "trajectory": _format(trajectory),
    "bfcl": _format(bfcl),
    "sage_sft": _format(sage_sft),
    "sage_tools": _format(sage_tools),
    "sage_benchmark": _format(sage_benchmark),
    "kagentinstruct": _format(kagentinstruct),
    "glaive": _format(glaive),
    "xlam": _format(xlam),
    "toolllama": _format(toolllama),
    "toolace": _format(toolace),
    "hermes_fc": _format(hermes_fc),
    "agentinstruct": _format(agentinstruct),
    "ms_agent": _format(ms_agent),
    "ms_agent_exec": _format(modelscope),
    "self_cognition": _format(self_cognition),
    "ms_swift": _format(ms_swift),
    "ms_bench": _format(ms_bench),  # by its name only
    "sharegpt": _format(sharegpt),
    "prompts": _format(prompts),
    "prompt_completion": _format(prompt_completion),
    "gemini": _format(gemini),
    "langchain": _format(langchain),
    "responses": _format(responses),
    "anthropic": _format(anthropic),
    "openai": _format(openai),
    "alpaca": _format(alpaca),
    "text": _format(text),
}

# how answers write calls and results as text; what lists tools in its own way first
SYNTAXES = (modelscope.SYNTAX, toolllama.SYNTAX, ms_agent.SYNTAX, hermes_fc.SYNTAX)


def to_record(
    value: Row,
    format: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    split: bool = True,
) -> Record:
    """A row of a named format, or of the first that fits. `options`: what its reader needs in
    addition to the row, by format. `split`: calls and results that texts hold become turns, and no
    result may be trained; a dialog that is only to be continued stays as it is.
    """
    name = format or detected(value)
    if name not in FORMATS:
        raise UserError(f"unknown format {name!r}.", nearest(name, FORMATS), location="--format")
    try:
        record = FORMATS[name].read(value, **(options or {}).get(name, {}))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RowError("E201", f"not as {name} has it: {misread(error)}") from error
    try:  # the readers copy what they do not look into
        record = msgspec.convert(msgspec.to_builtins(record), Record)
    except msgspec.ValidationError as error:
        raise RowError("E201", f"not as {name} has it: {misfit(error)}") from error
    stated = "" if record.split else stated_in(record.meta, "split")
    if isinstance(stated, str) and (known := SPLIT_NAMES.get(stated.strip().lower())):
        record = replace(record, split=known)
    if split and "rollout" not in record.meta:  # its turns are known
        if not record.is_text:
            record = chains.untagged(chains.split(task_prompts.split(record), SYNTAXES))
        check_results(record)
        check_calls(record)
    if all(len(message.calls) < 2 for message in record.messages):
        return record
    return replace(record, messages=tuple(_in_order(record.messages)))


def _in_order(messages: Sequence[Message]) -> Iterator[Message]:
    """The results of a turn in the order of its calls: most formats and protocols know them by that
    alone.
    """
    places: dict[str, int] = {}
    for is_result, group in groupby(messages, key=lambda message: message.role == "tool"):
        turn = list(group)
        if is_result and {message.call_id for message in turn} <= places.keys():
            turn.sort(key=lambda message: places[message.call_id])
        # the first call of an id, where several share one
        places = {call.id: place for place, call in reversed([*enumerate(turn[-1].calls)])}
        yield from turn


def samples(value: Row, format: str | None = None) -> tuple[str, list[Row]]:
    """A row's format, and the rows that it stands for."""
    value = _unpacked(value)
    name = format or detected(value)
    parts = FORMATS[name].parts(value)
    if not parts:
        raise RowError("E201", f"a row of {name} that holds no sample")
    return name, parts


def _unpacked(value: Row) -> Row:
    """The row, with a dialog that is written as the JSON of a list of objects as that list."""
    for key in DIALOG_KEYS:
        text = value.get(key)
        if not isinstance(text, str) or not LISTED.match(text):
            continue
        try:
            turns = json_or_literal(text)
        except RowError as error:
            if key in TEXT_KEYS:
                continue
            reason = f"{key} are a text, and not JSON: {shortened(text)}"
            raise RowError("E201", reason, "Write them as a list.", key) from error
        if key not in TEXT_KEYS or openai.fits({"messages": turns}):
            value = {**value, key: turns}
    return value


def detected(value: Row) -> str:
    """The first format that fits. Raises RowError E202 if none does."""
    if name := _first_that_fits(value):
        return name
    raise unknown_row(value, lambda row: bool(_first_that_fits(row)))


def _first_that_fits(row: Row) -> str:
    return next((name for name, known in FORMATS.items() if known.fits(row)), "")


__all__ = [
    "FORMATS",
    "Format",
    "Raw",
    "RawLine",
    "decoded",
    "detected",
    "files_of",
    "raw_files",
    "read_lines",
    "read_raw",
    "samples",
    "to_record",
]
