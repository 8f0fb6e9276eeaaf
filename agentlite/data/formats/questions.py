"""A question and its answer in fields of their own, plain texts or calls with gold -> Record."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.json_schema import DEEPEST
from agentlite.core.plain_words import kind_of
from agentlite.core.records import (
    ANY_ARGUMENTS,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Tool,
    gold_value,
)
from agentlite.data.formats import openai
from agentlite.data.formats.bfcl import NO_CALL_ANSWER
from agentlite.data.formats.check_call import gold_arguments
from agentlite.data.formats.format import Format, Row, dialog, meta_of, omit, text_at
from agentlite.data.formats.json_decode import json_or_literal
from agentlite.data.formats.tool_calls import TYPES, read_call, read_tool, text_value

LANGUAGES = ("zh", "en")
HAN = re.compile(r"[\u4e00-\u9fff]")
PLACEHOLDER = re.compile(r"\{\{(NAME|AUTHOR|name|author)\}\}")
# how somebody says who they are, where the names of a letter, or of code, are others
SELF_NAMING = re.compile(
    r"(?:\b(?:I am|I['’]m|name is|call(?:ed)? me|\w+ed by|built by|made by)"
    r"|我是|我叫|名字?[是叫]|由)"
    r"\s*\{\{(?:name|author)\}\}",
    re.IGNORECASE,
)
NAMES_HINT = "Set who the model is: --set prep.model_name=[Dove] --set prep.model_author=[Ada]."
# a key that describes a text: not a part of a dialog, a question or a label; `text` is one
METADATA = re.compile(
    r"text|(?:.*_)?(?:added|category|count|created|dataset|date|domain|dump|file|hash|id|index"
    r"|lang|language|licen[cs]e|meta|metadata|name|number|path|quality|scores?|source|split|subset"
    r"|tags?|time|timestamp|title|tokens|topics?|type|uri|url|uuid|version|views|words|year)",
    re.IGNORECASE,
)


def history(row: Row) -> list[tuple[str, str]]:
    """The exchanges before the last: [[question, answer], ...]."""
    return [(question, answer) for question, answer in row.get("history") or []]


def read_alpaca(row: Row) -> Record:
    question = "\n".join(filter(None, (row["instruction"], text_at(row, "input"))))
    return Record(
        messages=dialog(text_at(row, "system"), [*history(row), (question, row["output"])]),
        meta=meta_of(row, "instruction", "input", "output", "system", "history"),
    )


def read_self_cognition(row: Row) -> Record:
    return Record(
        messages=dialog("", [(row["query"], row["response"])]),
        task="self_cognition",
        meta=meta_of(row, "query", "response", "tag", tag=row["tag"]),
    )


def with_names(record: Record, name: Sequence[str] = (), author: Sequence[str] = ()) -> Record:
    """The record with its placeholders filled in: of two names with the first in Chinese, and with
    the second in any other language. Raises RowError E216 for one that would be trained.
    """
    if not any("{{" in message.content for message in record.messages):
        return record
    names = {"NAME": name, "AUTHOR": author}
    messages = tuple(_with_names(message, names, record) for message in record.messages)
    is_named = messages != record.messages and record.task == "general"
    return replace(record, messages=messages, task="self_cognition" if is_named else record.task)


def _with_names(message: Message, names: Mapping[str, Sequence[str]], record: Record) -> Message:
    text, tag = message.content, record.meta.get("tag")
    is_learned = message.role == "assistant" and message.loss
    is_chinese = tag == "zh" if tag in LANGUAGES else bool(HAN.search(text))
    keys = {placeholder[0]: placeholder[1] for placeholder in PLACEHOLDER.finditer(text)}
    names_itself = SELF_NAMING.search(text)
    for placeholder, key in keys.items():
        # the {{name}} of "Dear {{name}}," is somebody else's; "I am {{name}}" is the model's
        if key.islower() and not names_itself:
            continue
        if choices := names[key.upper()]:
            text = text.replace(placeholder, choices[0 if is_chinese else -1])
        elif is_learned or record.task == "self_cognition":
            reason = f"{placeholder} would be learned as it stands: nothing is set for it"
            raise RowError("E216", reason, NAMES_HINT, placeholder)
    return replace(message, content=text)


def read_text(row: Row) -> Record:
    """One assistant turn without a prompt."""
    text = row["text"]
    if not text.strip():
        raise RowError("E216", "the text is blank")
    return Record(messages=(Message("assistant", text),), meta=meta_of(row, "text", whole=True))


def foreign_keys(row: Mapping[str, Any]) -> list[str]:
    """The keys beside `text` that are not metadata: of a dialog, labels, or anything unknown."""
    return [key for key, value in row.items() if value is not None and not METADATA.fullmatch(key)]


ALPACA = Format("alpaca", read_alpaca, {"instruction": str, "output": str})
SELF_COGNITION = Format(
    "self_cognition",
    read_self_cognition,
    {"query": str, "response": str, "tag": str},
    lambda row: row["tag"] in LANGUAGES,
)
TEXT = Format("text", read_text, {"text": str}, lambda row: not foreign_keys(row))

# --- answers that call: prompts with `gold`, and rows of xLAM ---

OPTIONAL_MARK = re.compile(r",\s*(?:optional|default)\b.*", re.IGNORECASE | re.DOTALL)
COLLECTIONS = ("list", "set")


def read_prompt(row: Row) -> Record:
    """An empty `gold` says that no call is expected."""
    if isinstance(row.get("messages"), list):
        openai.refuse_other_dialog(row, "messages", row["messages"], "prompt")
    messages = row.get("messages") or [{"role": "user", "content": row.get("prompt")}]
    prompt = openai.read({**omit(row, "gold"), "messages": messages})
    question, tools = prompt.messages, prompt.tools
    if not question or question[-1].role == "assistant":
        raise RowError("E201", "gold is a list of calls, and the last message is no question")
    expected = tuple(_gold_call(call) for call in row["gold"])
    calls = tuple(
        Call(call.name, gold_arguments(call, tools), f"call_{i}") for i, call in enumerate(expected)
    )
    return Record(
        messages=(*question, Message("assistant", "" if calls else NO_CALL_ANSWER, calls)),
        tools=tools,
        gold={len(question): Gold(expected)},
        task="tool_selection" if calls else "timing_decision",
        meta=meta_of(row, "prompt", "messages", "tools", "functions", "gold"),
    )


def _gold_call(value: object) -> GoldCall:
    """A value that is no list is the only one accepted; with null as arguments, any that fit."""
    if isinstance(value, dict) and "arguments" in value and value["arguments"] is None:
        return GoldCall(text_at(value, "name"), ANY_ARGUMENTS)
    if isinstance(value, dict) and isinstance(value.get("arguments"), str):  # as a call has them
        call = read_call(value)
        return GoldCall(call.name, {key: [gold_value(v)] for key, v in call.arguments.items()})
    call = msgspec.convert(value, Call)
    choices = {
        key: values if isinstance(values, list) else [gold_value(values)]
        for key, values in call.arguments.items()
    }
    return GoldCall(call.name, choices)


def read_xlam(row: Row) -> Record:
    """{"id", "query", "tools", "answers"}. No answers: no call is expected."""
    tools = tuple(_tool(tool) for tool in _read_list(row, "tools", "E124"))
    answers = [read_call(answer, json_or_literal) for answer in _read_list(row, "answers", "E206")]
    calls = tuple(replace(call, id=f"call_{i}") for i, call in enumerate(answers))
    question = Message("user", text_at(row, "query"))
    return Record(
        messages=(question, Message("assistant", "" if calls else NO_CALL_ANSWER, calls)),
        tools=tools,
        gold={} if calls else {1: Gold(())},
        task="tool_selection" if calls else "timing_decision",
        meta=meta_of(row, "query", "tools", "answers"),
    )


def _read_list(row: Row, key: str, code: str) -> list[object]:
    value = text_value(row.get(key), json_or_literal, code, f"{key} are")
    if not isinstance(value, list):
        raise RowError(code, f"{key} are {kind_of(value)}, not a list")
    return value


def _tool(value: Any) -> Tool:
    """Parameters by name, with types as Python writes them; some rows have a schema instead."""
    function: Any = value.get("function") or value if isinstance(value, dict) else None
    parameters = function.get("parameters") if isinstance(function, dict) else None
    if not isinstance(parameters, dict) or isinstance(parameters.get("type"), str):
        return read_tool(value)
    properties, required = {}, []
    # {"city": {"type": "str, optional", "description": ..., "default": "Oslo"}}
    for name, parameter in parameters.items():
        if parameter is None:
            continue
        type_name = parameter.get("type")
        fields = {key: inner for key, inner in parameter.items() if key != "type"}
        properties[name] = {**(_schema(type_name) if isinstance(type_name, str) else {}), **fields}
        # what has a default need not be given, whether or not its type says so
        is_optional = OPTIONAL_MARK.search(str(type_name)) or str(type_name).startswith("Optional[")
        if not is_optional and "default" not in parameter and "required" not in parameter:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required}
    return read_tool({**function, "parameters": schema})


def _schema(type_name: str) -> dict[str, object]:
    """`List[int], optional` as JSON Schema; {}, which any value fits, for a type it lacks."""
    if type_name.count("[") > DEEPEST:
        raise RowError("E119", f"a type nested deeper than {DEEPEST}")
    # "List[int], optional" -> {"type": "array", "items": {"type": "integer"}}
    outer, _, inner = OPTIONAL_MARK.sub("", type_name).strip().removesuffix("]").partition("[")
    outer_type = outer.strip().lower()
    if outer_type == "optional":
        return _schema(inner)
    schema: dict[str, object] = {"type": TYPES[outer_type]} if outer_type in TYPES else {}
    if inner and outer_type in COLLECTIONS and (elements := _schema(inner)):
        schema["items"] = elements
    return schema


PROMPTS = Format(
    "prompts", read_prompt, {"gold": list}, lambda row: "prompt" in row or openai.fits(row)
)
XLAM = Format("xlam", read_xlam, {"query": str, "tools": str | list, "answers": str | list})
