"""bytes -> raw rows -> Record: the formats, chosen here by content or by name."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError, closest, suggest
from agentlite.core.plain_words import misread_reason
from agentlite.core.records import SPLITS, Message, Record
from agentlite.data.formats import (
    bfcl,
    chains,
    inline_calls,
    openai,
    other_apis,
    own_rows,
    questions,
    react,
    sage,
    sharegpt,
    task_prompts,
)
from agentlite.data.formats.format import PREFERENCE, Format, Row, stated_value
from agentlite.data.formats.json_decode import at, json_or_literal, quote
from agentlite.data.formats.tool_calls import read_tools, tools_elsewhere
from agentlite.rendering.foreign_text import check_trained

# The most particular first: an ms_agent row is also a ShareGPT row; a stored one and a prompt are
# also OpenAI rows.
FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        own_rows.AGENTLITE,
        own_rows.TRAJECTORY,
        bfcl.FORMAT,
        sage.DIALOGS,
        sage.TOOLS,
        sage.BENCHMARK,
        task_prompts.KAGENTINSTRUCT,
        inline_calls.GLAIVE,
        questions.XLAM,
        react.TOOLLLAMA,
        inline_calls.TOOLACE,
        inline_calls.HERMES_FC,
        sharegpt.AGENTINSTRUCT,
        react.MS_AGENT,
        react.MS_AGENT_EXEC,
        questions.SELF_COGNITION,
        sharegpt.MS_SWIFT,
        sharegpt.MS_BENCH,
        sharegpt.SHAREGPT,
        questions.PROMPTS,
        openai.PROMPT_COMPLETION,
        other_apis.GEMINI,
        other_apis.LANGCHAIN,
        other_apis.RESPONSES,
        other_apis.ANTHROPIC,
        openai.FORMAT,
        questions.ALPACA,
        questions.TEXT,
    )
}
# how answers write calls and results as text; what lists tools in its own way first
SYNTAXES = (
    react.MODELSCOPE_SYNTAX,
    react.TOOLLLAMA_SYNTAX,
    react.SYNTAX,
    inline_calls.SYNTAX,
    inline_calls.TOOLACE_SYNTAX,
)
# a split by our names and by those of other data sets
SPLIT_NAMES = {name: name for name in SPLITS} | dict.fromkeys(("validation", "valid", "val"), "dev")
# where a dialog may be written as its JSON, as columns of Parquet often are
TEXT_KEYS = ("prompt", "completion")  # these may also be a text that begins so
DIALOG_KEYS = ("messages", "conversations", "conversation", *TEXT_KEYS)
LISTED = re.compile(r"\s*\[\s*\{")
GYM = "responses_create_params"  # of NeMo Gym
ASKED = {"tools": f"{GYM}.tools"}
# the paths that a row has, `a.b` for b in a, text of JSON or not -> by the keys of our formats, the
# paths of what is read
PLACES: dict[tuple[str, ...], Mapping[str, str]] = {
    ("messages_and_choices",): {"messages": "messages_and_choices"},  # ART
    ("trajectory.0.content",): {"messages": "trajectory"},  # OpenHands
    ("values.messages",): {"messages": "values.messages"},  # LangGraph
    ("inputs.messages", "outputs.messages"): {  # LangSmith
        **{"prompt": "inputs.messages", "completion": "outputs.messages"},
        "tools": "inputs.tools",
    },
    ("answer.role", "messages"): {"prompt": "messages", "completion": "answer"},  # AReaL
    # of these nothing can be read
    **{(path,): {} for path in ("completion", "extra_info.tools_kwargs", "ground_truth.1")},
    ("answer", "info", "prompt"): {"completion": "answer"},  # verifiers
    (GYM, "response.output"): {"input": f"{GYM}.input", "output": "response.output", **ASKED},
    (GYM, "expected_answer"): {"prompt": f"{GYM}.input", "completion": "expected_answer", **ASKED},
    (GYM, "ground_truth"): {"messages": f"{GYM}.input", "gold": "ground_truth", **ASKED},
    ("reward_model.ground_truth", "prompt"): {"completion": "reward_model.ground_truth"},  # verl
}


def to_record(
    value: Row,
    format: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    split: bool = True,
) -> Record:
    """A row of a named format, or of the first that fits. `options`: what its reader needs in
    addition to the row, by format, and the "names" for placeholders, where it is to be learned.
    `split`: calls and results that texts hold become turns, and no result may be trained; a dialog
    that is only to be continued stays as it is. Raises RowError with the code of what is wrong,
    E201 where the row is not as its format has it.
    """
    name = format or detect_format(value)
    if name not in FORMATS:
        raise UserError(f"unknown format {name!r}.", suggest(name, FORMATS), location="--format")
    read = partial(FORMATS[name].read, **(options or {}).get(name, {}))
    try:  # the readers copy what they do not look into
        record = read(value)
        # a list that is empty says that nothing is on offer
        is_open = value.get("tools") is None or any(message.calls for message in record.messages)
        offers_none = is_open and not record.tools and not record.is_text
        if offers_none and (listed := _tools_elsewhere(record)):
            # {"messages": [...], "metadata": {"tools": [...]}}: read again, with "tools" of the row
            record = read({**value, "tools": listed})
            record = replace(record, tools=record.tools or read_tools(listed))
        if options and "names" in options:
            record = questions.with_names(record, **options["names"])
        record = msgspec.convert(msgspec.to_builtins(record), Record)
    except msgspec.ValidationError as error:
        raise RowError("E201", f"not as {name} has it: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RowError("E201", f"not as {name} has it: {misread_reason(error)}") from error
    stated = "" if record.split else stated_value(record.meta, "split")
    if isinstance(stated, str) and (known := SPLIT_NAMES.get(stated.strip().lower())):
        record = replace(record, split=known)
    if split and "rollout" not in record.meta:  # its turns are known
        if not record.is_text:
            record = task_prompts.split(inline_calls.retagged(record))
            record = chains.untag_results(chains.split(record, SYNTAXES))
        check_trained(record)
    if len({tool.name for tool in record.tools}) < len(record.tools):  # equal tools are one
        tools = [tool for n, tool in enumerate(record.tools) if tool not in record.tools[:n]]
        record = replace(record, tools=tuple(tools))
    if all(len(message.calls) < 2 for message in record.messages):
        return record
    return replace(record, messages=tuple(_in_order(record.messages)))


def _tools_elsewhere(record: Record) -> list[Any]:
    """The tools of a row under a key that is not read. Raises RowError E211 for several lists."""
    unread: dict[str, Any] = {key: record.meta.get(key, {}) for key in ("extra", "turns")}
    lists = [*tools_elsewhere(unread, 4)]
    where, offered = max(lists, key=lambda one: len(one[1]), default=("", []))
    if other := next((key for key, listed in lists if any(t not in offered for t in listed)), ""):
        reason = f"no tools, and different lists of tools under {where!r} and {other!r}"
        raise RowError("E211", reason, 'Write those on offer under "tools".', other)
    return offered


def _in_order(messages: Sequence[Message]) -> Iterator[Message]:
    """The results of a turn in the order of its calls, by which most protocols know them."""
    places: dict[str, int] = {}
    for is_result, group in groupby(messages, key=lambda message: message.role == "tool"):
        turn = list(group)
        if is_result and {message.call_id for message in turn} <= places.keys():
            # calls a, b and results b, a -> results a, b
            turn.sort(key=lambda message: places[message.call_id])
        # the first call of an id, where several share one
        places = {call.id: place for place, call in reversed([*enumerate(turn[-1].calls)])}
        yield from turn


def samples(value: Row, format: str | None = None) -> tuple[str, list[Row]]:
    """A row's format, and the rows that it stands for."""
    given, value = value, _unpack(value)
    name = format or _first_that_fits(value)
    if not name:
        raise _unknown_row(given)
    parts = FORMATS[name].parts(value)
    if not parts:
        raise RowError("E201", f"a row of {name} that holds no sample")
    return name, parts


def _unpack(value: Row) -> Row:
    """The row as a format has it, with a dialog that is the JSON of a list as that list."""
    value = reshape(value)
    for key in DIALOG_KEYS:
        text = value.get(key)
        if not isinstance(text, str) or not LISTED.match(text):
            continue
        try:
            turns = json_or_literal(text)
        except RowError as error:
            if key in TEXT_KEYS:
                continue
            reason = f"{key} are a text, and not JSON: {quote(text)}"
            raise RowError("E201", reason, "Write them as a list.", key) from error
        if key not in TEXT_KEYS or openai.fits({"messages": turns}):
            value = {**value, key: turns}
    return value


def reshape(row: Row, known: Mapping[tuple[str, ...], Mapping[str, str]] = PLACES) -> Row:
    """The row, with what it keeps elsewhere under the keys of our formats."""
    for paths, places in known.items():
        if row.get("messages") and "messages" not in paths:
            continue  # it has a dialog where our formats have it
        if all(at(row, path) is not None for path in paths):
            moved = {path.partition(".")[0] for path in places.values()}
            reshaped = {key: value for key, value in row.items() if key not in moved}
            for key, path in places.items():
                value = at(row, path)
                if isinstance(value, dict) and "role" in value:  # a lone turn
                    value = [value]
                if isinstance(value, list):  # the choice of a server's answer wraps its message
                    value = [
                        (isinstance(turn, dict) and turn.get("message")) or turn for turn in value
                    ]
                if value or key not in reshaped:
                    reshaped[key] = value
            return reshaped
    return row


def detect_format(value: Row) -> str:
    """The first format that fits. Raises RowError E202 if none does."""
    if name := _first_that_fits(value):
        return name
    raise _unknown_row(value)


def _first_that_fits(row: Row) -> str:
    return next((name for name, known in FORMATS.items() if known.fits(row)), "")


# what holds the dialog in a row of some format
MAIN_KEYS = ("messages", "conversations", "instruction", "text", "prompt", "query", "question")


def _unknown_row(row: Row) -> RowError:
    """E202, with the key that is misspelt, or with what reads a preference."""
    if isinstance(row.get("text"), str):
        reason = f"no known format fits: a text, and {', '.join(questions.foreign_keys(row))}"
        return RowError("E202", reason, "--format text learns the text alone.")
    reason = f"no known format fits: keys {', '.join(map(str, row)) or 'none'}"
    for wrong in row:
        right = closest(str(wrong), MAIN_KEYS)
        if right and right not in row:
            renamed = {right if key == wrong else key: value for key, value in row.items()}
            if _first_that_fits(renamed):
                return RowError(
                    "E202", reason, f"Did you mean '{right}' in place of '{wrong}'?", wrong
                )
    better = next((key for key in ("chosen", "preferred_output") if key in row), "")
    return RowError("E202", reason, PREFERENCE.format(better) if better else "", better)
