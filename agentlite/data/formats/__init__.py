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
from agentlite.data.formats.json_decode import json_or_literal, quote, value_at
from agentlite.data.formats.tool_calls import find_tool_lists, read_tools
from agentlite.rendering.foreign_text import check_trained

# The most particular first: an ms_agent row is also a ShareGPT row; a stored one and a prompt are
# also OpenAI rows.
FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
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
PROMPT_KEYS = ("prompt", "completion")  # these may also be a text that begins so
DIALOG_KEYS = ("messages", "conversations", "conversation", *PROMPT_KEYS)
JSON_LIST = re.compile(r"\s*\[\s*\{")
GYM = "responses_create_params"  # of NeMo Gym
TOOLS = {"tools": f"{GYM}.tools"}
# the paths that a row has, `a.b` for b in a, text of JSON or not -> by the keys of our formats, the
# paths of what is read
LAYOUTS: dict[tuple[str, ...], Mapping[str, str]] = {
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
    (GYM, "response.output"): {"input": f"{GYM}.input", "output": "response.output", **TOOLS},
    (GYM, "expected_answer"): {"prompt": f"{GYM}.input", "completion": "expected_answer", **TOOLS},
    (GYM, "ground_truth"): {"messages": f"{GYM}.input", "gold": "ground_truth", **TOOLS},
    ("reward_model.ground_truth", "prompt"): {"completion": "reward_model.ground_truth"},  # verl
}


def to_record(
    row: Row,
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
    name = format or detect_format(row)
    if name not in FORMATS:
        raise UserError(f"unknown format {name!r}.", suggest(name, FORMATS), location="--format")
    reader = partial(FORMATS[name].read, **(options or {}).get(name, {}))
    try:  # the readers copy what they do not look into
        record = reader(row)
        # a list that is empty says that nothing is on offer
        may_offer = row.get("tools") is None or any(message.calls for message in record.messages)
        offers_none = may_offer and not record.tools and not record.is_text
        if offers_none and (tools := _unread_tools(record)):
            # {"messages": [...], "metadata": {"tools": [...]}}: read again, with "tools" of the row
            record = reader({**row, "tools": tools})
            record = replace(record, tools=record.tools or read_tools(tools))
        if options and "names" in options:
            record = questions.with_names(record, **options["names"])
        record = msgspec.convert(msgspec.to_builtins(record), Record)
    except msgspec.ValidationError as error:
        raise RowError("E201", f"not as {name} has it: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RowError("E201", f"not as {name} has it: {misread_reason(error)}") from error
    if record.split not in ("", *SPLITS):
        raise RowError("E201", f"unknown split {record.split!r}; known: {', '.join(SPLITS)}")
    raw_split = "" if record.split else stated_value(record.meta, "split")
    if isinstance(raw_split, str) and (split_name := SPLIT_NAMES.get(raw_split.strip().lower())):
        record = replace(record, split=split_name)
    if split and "rollout" not in record.meta:  # its turns are known
        if not record.is_text:
            record = task_prompts.split(inline_calls.retag(record))
            record = chains.untag_results(chains.split(record, SYNTAXES))
        check_trained(record)
    if len({tool.name for tool in record.tools}) < len(record.tools):  # equal tools are one
        tools = [tool for n, tool in enumerate(record.tools) if tool not in record.tools[:n]]
        record = replace(record, tools=tuple(tools))
    if all(len(message.calls) < 2 for message in record.messages):
        return record
    return replace(record, messages=tuple(_order_results(record.messages)))


def _unread_tools(record: Record) -> list[Any]:
    """The tools of a row under a key that is not read. Raises RowError E211 for several lists."""
    unread: dict[str, Any] = {key: record.meta.get(key, {}) for key in ("extra", "turns")}
    lists = [*find_tool_lists(unread, 4)]
    key, tools = max(lists, key=lambda pair: len(pair[1]), default=("", []))
    if other_key := next((k for k, items in lists if any(t not in tools for t in items)), ""):
        reason = f"no tools, and different lists of tools under {key!r} and {other_key!r}"
        raise RowError("E211", reason, 'Write those on offer under "tools".', other_key)
    return tools


def _order_results(messages: Sequence[Message]) -> Iterator[Message]:
    """The results of a turn in the order of its calls, by which most protocols know them."""
    indices: dict[str, int] = {}
    for is_result, group in groupby(messages, key=lambda message: message.role == "tool"):
        turn = list(group)
        if is_result and {message.call_id for message in turn} <= indices.keys():
            # calls a, b and results b, a -> results a, b
            turn.sort(key=lambda message: indices[message.call_id])
        # the first call of an id, where several share one
        indices = {call.id: index for index, call in reversed([*enumerate(turn[-1].calls)])}
        yield from turn


def find_samples(row: Row, format: str | None = None) -> tuple[str, list[Row]]:
    """A row's format, and the rows that it stands for."""
    unpacked = _unpack(row)
    name = format or _fitting_format(unpacked)
    if not name:
        raise _unknown_row(row)
    rows = FORMATS[name].samples(unpacked)
    if not rows:
        raise RowError("E201", f"a row of {name} that holds no sample")
    return name, rows


def _unpack(row: Row) -> Row:
    """The row as a format has it, with a dialog that is the JSON of a list as that list."""
    row = reshape(row)
    for key in DIALOG_KEYS:
        text = row.get(key)
        if not isinstance(text, str) or not JSON_LIST.match(text):
            continue
        try:
            turns = json_or_literal(text)
        except RowError as error:
            if key in PROMPT_KEYS:
                continue
            reason = f"{key} are a text, and not JSON: {quote(text)}"
            raise RowError("E201", reason, "Write them as a list.", key) from error
        if key not in PROMPT_KEYS or openai.fits({"messages": turns}):
            row = {**row, key: turns}
    return row


def reshape(row: Row, layouts: Mapping[tuple[str, ...], Mapping[str, str]] = LAYOUTS) -> Row:
    """The row, with what it keeps elsewhere under the keys of our formats."""
    for paths, sources in layouts.items():
        if row.get("messages") and "messages" not in paths:
            continue  # it has a dialog where our formats have it
        if all(value_at(row, path) is not None for path in paths):
            moved_keys = {path.partition(".")[0] for path in sources.values()}
            reshaped = {key: value for key, value in row.items() if key not in moved_keys}
            for key, path in sources.items():
                value = value_at(row, path)
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


def detect_format(row: Row) -> str:
    """The first format that fits. Raises RowError E202 if none does."""
    if name := _fitting_format(row):
        return name
    raise _unknown_row(row)


def _fitting_format(row: Row) -> str:
    return next((name for name, f in FORMATS.items() if f.fits(row)), "")


# what holds the dialog in a row of some format
MAIN_KEYS = ("messages", "conversations", "instruction", "text", "prompt", "query", "question")


def _unknown_row(row: Row) -> RowError:
    """E202, with the key that is misspelt, or with what reads a preference."""
    if isinstance(row.get("text"), str):
        reason = f"no known format fits: a text, and {', '.join(questions.foreign_keys(row))}"
        return RowError("E202", reason, "--format text learns the text alone.")
    reason = f"no known format fits: keys {', '.join(map(str, row)) or 'none'}"
    for key in row:
        near_key = closest(str(key), MAIN_KEYS)
        if near_key and near_key not in row:
            renamed = {near_key if k == key else k: value for k, value in row.items()}
            if _fitting_format(renamed):
                hint = f"Did you mean '{near_key}' in place of '{key}'?"
                return RowError("E202", reason, hint, key)
    answer_key = next((key for key in ("chosen", "preferred_output") if key in row), "")
    return RowError("E202", reason, PREFERENCE.format(answer_key) if answer_key else "", answer_key)
