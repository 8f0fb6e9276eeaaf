"""Rows that end with a question and hold the expected calls in `gold` -> Record."""

from typing import Any

import msgspec

from agentlite.core.errors import RowError
from agentlite.core.plain_words import misfit
from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Message, Record, accepted
from agentlite.data.formats import openai
from agentlite.data.formats.bfcl import NO_CALL_ANSWER
from agentlite.data.formats.check_call import first_accepted
from agentlite.data.formats.extra_fields import meta_of, text_at

EXAMPLE = '{"prompt": "Is it wet in Oslo?", "tools": [{"name": "weather", "description": "", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}], "gold": [{"name": "weather", "arguments": {"city": ["Oslo", "Oslo, Norway"]}}]}'  # noqa: E501  (a row is one line)
FIELDS = {"gold": list}


def fits(row: dict[str, Any]) -> bool:
    return "prompt" in row or openai.fits(row)


def read(row: dict[str, Any], accepted_answer: str = "least") -> Record:
    """An empty `gold` says that no call is expected. A parameter that may be left out is written
    where `accepted_answer` is "full".
    """
    if isinstance(row.get("messages"), list):
        openai.refuse_another(row, "messages", row["messages"], "prompt")
    tools = openai.tools_of(row)
    messages = row.get("messages") or [{"role": "user", "content": row.get("prompt")}]
    question = openai.read(
        {"messages": messages, "tools": row.get("tools") or row.get("functions")}
    ).messages
    if not question or question[-1].role == "assistant":
        raise RowError(
            "E201", "gold is a list of calls, and the last message is not a question to it"
        )
    expected = tuple(_gold_call(call) for call in row["gold"])
    full = accepted_answer == "full"
    calls = tuple(
        Call(call.name, first_accepted(call, tools, full=full), f"call_{i}")
        for i, call in enumerate(expected)
    )
    return Record(
        messages=(*question, Message("assistant", "" if calls else NO_CALL_ANSWER, calls)),
        tools=tools,
        gold={len(question): Gold(expected)},
        task="tool_selection" if calls else "timing_decision",
        meta=meta_of(row, "prompt", "messages", "tools", "functions", "gold"),
    )


def _gold_call(value: object) -> GoldCall:
    """A value that is not a list is the only one accepted. Arguments that are null are not known:
    any that fit the tool's schema are right.
    """
    if isinstance(value, dict) and "arguments" in value and value["arguments"] is None:
        return GoldCall(text_at(value, "name"), ANY_ARGUMENTS)
    try:
        given = msgspec.convert(value, Call)
    except msgspec.ValidationError as error:
        raise RowError("E201", f"gold: {misfit(error)}") from error
    lists = {
        key: one if isinstance(one, list) else [accepted(one)]
        for key, one in given.arguments.items()
    }
    return GoldCall(given.name, lists)
