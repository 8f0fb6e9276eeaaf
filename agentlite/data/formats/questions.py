"""A question and the calls that answer it: prompts with `gold`, and rows of xLAM -> Record."""

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.json_schema import DEEPEST
from agentlite.core.plain_words import kind
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
from agentlite.data.formats.format import Format, Row, meta_of, rest, text_at
from agentlite.data.formats.json_decode import json_or_literal
from agentlite.data.formats.tool_calls import TYPES, read_call, read_tool, text_value

MAY_BE_MISSING = re.compile(r",\s*(?:optional|default)\b.*", re.IGNORECASE | re.DOTALL)
OF_ONE_TYPE = ("list", "set")


def read_prompt(row: Row) -> Record:
    """An empty `gold` says that no call is expected."""
    if isinstance(row.get("messages"), list):
        openai.refuse_another(row, "messages", row["messages"], "prompt")
    messages = row.get("messages") or [{"role": "user", "content": row.get("prompt")}]
    asked = openai.read({**rest(row, "gold"), "messages": messages})
    question, tools = asked.messages, asked.tools
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
    given = msgspec.convert(value, Call)
    choices = {
        key: values if isinstance(values, list) else [gold_value(values)]
        for key, values in given.arguments.items()
    }
    return GoldCall(given.name, choices)


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
        raise RowError(code, f"{key} are {kind(value)}, not a list")
    return value


def _tool(value: Any) -> Tool:
    """Parameters by name, with types as Python writes them; some rows have a schema instead."""
    function: Any = value.get("function") or value if isinstance(value, dict) else None
    parameters = function.get("parameters") if isinstance(function, dict) else None
    if not isinstance(parameters, dict) or isinstance(parameters.get("type"), str):
        return read_tool(value)
    properties, required = {}, []
    for name, parameter in parameters.items():
        if parameter is None:
            continue
        written = parameter.get("type")
        described = {key: inner for key, inner in parameter.items() if key != "type"}
        properties[name] = {**(_schema(written) if isinstance(written, str) else {}), **described}
        # what has a default need not be given, whether or not its type says so
        optional = MAY_BE_MISSING.search(str(written)) or str(written).startswith("Optional[")
        if not optional and "default" not in parameter and "required" not in parameter:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required}
    return read_tool({**function, "parameters": schema})


def _schema(written: str) -> dict[str, object]:
    """`List[int], optional` as JSON Schema; {}, which any value fits, for a type it lacks."""
    if written.count("[") > DEEPEST:
        raise RowError("E119", f"a type nested deeper than {DEEPEST}")
    outer, _, inner = MAY_BE_MISSING.sub("", written).strip().removesuffix("]").partition("[")
    head = outer.strip().lower()
    if head == "optional":
        return _schema(inner)
    schema: dict[str, object] = {"type": TYPES[head]} if head in TYPES else {}
    if inner and head in OF_ONE_TYPE and (elements := _schema(inner)):
        schema["items"] = elements
    return schema


PROMPTS = Format(
    "prompts", read_prompt, {"gold": list}, lambda row: "prompt" in row or openai.fits(row)
)
XLAM = Format("xlam", read_xlam, {"query": str, "tools": str | list, "answers": str | list})
