"""ToolACE rows -> Record: calls written as [Name A(x=1, y='b'), g()]."""

import re
from collections.abc import Iterator
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool, plain
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import meta_of
from agentlite.data.formats.inline_text import (
    end_of,
    result_of,
    sentences,
    split_at,
    tools_at,
    value_of,
)
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.openai import has_loss
from agentlite.data.formats.tool_calls import json_or_literal

EXAMPLE = r"""{"system": "You are an expert in composing functions. Here is a list of functions in JSON format that you can invoke:\n[{\"name\": \"Rain of today\", \"parameters\": {\"type\": \"dict\", \"properties\": {\"city\": {\"type\": \"string\"}}}, \"required\": null}]. \nShould you decide to return the function call(s). \n", "conversations": [{"from": "user", "value": "Is it wet in Oslo?"}, {"from": "assistant", "value": "[Rain of today(city='Oslo')]"}, {"from": "tool", "value": "[{\"name\": \"Rain of today\", \"results\": {\"mm\": 4}}]"}, {"from": "assistant", "value": "Yes."}]}"""  # noqa: E501  (a row is one line)
FIELDS = {"conversations|conversation": list}
LIST = re.compile(
    r"(?:Here is a list of )?functions in JSON format that you can invoke[:.]?\s*(?=\[)"
)
FRAME = sentences(
    r"You are an expert in composing functions\.",
    r"You are given a question and a set of possible functions\.",
    (
        r"Based on the question, you will need to make one or more function/tool calls to achieve "
        r"the "
        r"purpose\."
    ),
    r"If none of the functions? can be used, point it out\.",
    r"If the given question lacks the parameters required by the function,\s*also point it out\.",
    r"You should only return the function calls? in (?:tools call sections|your response)\.",
    (
        r"If you decide to invoke any of the function\(s\), you MUST put it in the format of "
        r"\[[^\]]{0,300}\]\.?"
    ),
    r"You SHOULD NOT include any other text in the response\.",
    r"Should you decide to return the function call\(s\)[.,]",
    r"Put it in the format of \[[^\]]{0,300}\]\.?",
    r"NO other text MUST be included\.",
)
FIRST_NAME = re.compile(r"\s*\[([^][(){}]*)\(")
PARAMETER = re.compile(r"[^][(){}='\",]+")


def fits(row: dict[str, Any]) -> bool:
    if not sharegpt.fits(row):
        return False
    turns = [turn for turn in sharegpt.turns_of(row) if turn.get("from") == "system"]
    texts = [row.get("system"), *(turn.get("value") for turn in turns)]
    return any(isinstance(text, str) and LIST.search(text) for text in texts)


def read(row: dict[str, Any]) -> Record:
    messages: list[Message] = []
    tools: tuple[Tool, ...] = ()
    made, waiting = 0, list[Call]()
    for number, turn in sharegpt.numbered_turns(row):
        speaker, text = sharegpt.speaker_of(turn, number), sharegpt.text_of(turn, number)
        if speaker == "system":
            if found := LIST.search(text):
                listed, end = tools_at(text, found.end())
                tools += listed
                parts = (text[: found.start()], text[end:].lstrip(". \n"))
                text = "\n".join(filter(None, (FRAME.sub("", part).strip() for part in parts)))
            messages += [Message("system", text)] if text else []
        elif speaker == "assistant":
            answer = _answer(text, {tool.name for tool in tools}, made, has_loss(turn))
            messages.append(answer)
            made += len(answer.calls)
            waiting = [*answer.calls]
        elif speaker == "tool":
            messages += _results(text, waiting)
        elif speaker == "user":
            messages.append(Message("user", text))
        else:
            reason = f"a turn of its own for {turn.get('from')!r}: here calls are text"
            raise RowError("E202", f"{reason} (turn {number})")
    return Record(
        messages=tuple(messages),
        tools=tools,
        meta=meta_of(row, "system", "conversations", "conversation"),
    )


def _answer(text: str, names: set[str], made: int, loss: bool) -> Message:
    """A list of calls, or plain text. What begins as a call of a declared tool must be one; `made`:
    calls before it.
    """
    first = FIRST_NAME.match(text)
    begins_as_call = bool(first and first[1].strip() in names)
    try:
        start = text.index("[") if first else -1
        end = end_of(text, start, "E206") if first else 0
        calls = (
            tuple(_calls(text[start + 1 : end - 1], made))
            if begins_as_call or end == len(text.rstrip())
            else ()
        )
    except RowError:
        if begins_as_call:
            raise
        calls = ()
    return Message("assistant", text[end:].strip() if calls else text, calls, loss=loss)


def _calls(text: str, made: int) -> Iterator[Call]:
    """Names may hold blanks, dots and slashes, so this is not Python."""
    for number, call in enumerate(split_at(",", text), made):
        name, opened, _ = call.partition("(")
        if not opened or not name.strip() or end_of(call, len(name), "E206") != len(call.rstrip()):
            raise RowError("E206", f"no call: {shortened(call)}")
        yield Call(name.strip(), _arguments(call.rstrip()[len(name) + 1 : -1]), f"call_{number}")


def _arguments(text: str) -> dict[str, object]:
    arguments: dict[str, Any] = {}
    for argument in split_at(",", text) if text.strip() else []:
        name, _, value = argument.partition("=")
        if not PARAMETER.fullmatch(name) or name.strip() in arguments:
            raise RowError("E206", f"no argument, or one given twice: {shortened(argument)}")
        arguments[name.strip()] = json_or_literal(value.strip())
    return arguments


def _results(text: str, waiting: list[Call]) -> Iterator[Message]:
    """A list of {"name", "results"}, one a call; any other text is the one result there is."""
    value = value_of(text)
    listed = value if isinstance(value, list) else []
    if listed and all(isinstance(result, dict) and "results" in result for result in listed):
        yield from (result_of(result, plain(result), "results", waiting) for result in listed)
    else:
        yield result_of(value, text, "results", waiting)
