"""ShareGPT rows and their relatives -> Record: {"conversations": [{"from", "value"}]}."""

import contextlib
import re
from collections.abc import Iterator, Set
from typing import Any, Literal

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind
from agentlite.core.records import Call, Message, Record, plain
from agentlite.data.formats import openai
from agentlite.data.formats.extra_fields import extra_by_turn, meta_of, refuse_unread, rest
from agentlite.data.formats.json_decode import json_value
from agentlite.data.formats.openai import (
    CALLS,
    LOSS,
    THOUGHTS,
    has_loss,
    merged,
    thoughts_of,
    unknown_role,
)
from agentlite.data.formats.tool_calls import json_or_literal, read_call, read_tools

EXAMPLE = r'{"conversations": [{"from": "human", "value": "Is it wet in Oslo?"}, {"from": "function_call", "value": "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}"}, {"from": "observation", "value": "4 mm"}, {"from": "gpt", "value": "Yes."}], "tools": "[{\"name\": \"weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}]"}'  # noqa: E501  (a row is one line)
FIELDS = {"conversations|conversation": list}
Speaker = Literal["system", "user", "assistant", "tool", "call"]
SPEAKERS: dict[str, Speaker] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "call",
    "tool_call": "call",
    "observation": "tool",
    "tool": "tool",
    "function": "tool",
    "tool_response": "tool",
}
TURN = frozenset(("from", "role", "value", "content", *LOSS, *THOUGHTS))
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
RESULT = re.compile(r"<tool_response>((?:(?!<tool_response>).)*?)</tool_response>", re.DOTALL)
# as LLaMA-Factory has it before a call
THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*(?=[{\[])", re.DOTALL)


def fits(row: dict[str, Any]) -> bool:
    turns = turns_of(row)
    return isinstance(turns, list) and all(
        isinstance(t, dict) and ("from" in t or "role" in t) for t in turns
    )


def read(row: dict[str, Any]) -> Record:
    turns, system = turns_of(row), row.get("system")
    system = system if isinstance(system, str) else ""
    own_keys = (*CALLS, "tool_call_id")
    dicts = [turn for turn in turns if isinstance(turn, dict)]
    if any("role" in turn and any(turn.get(key) for key in own_keys) for turn in dicts):
        # messages as OpenAI writes them, under this format's key
        messages = [{"role": "system", "content": system}, *turns] if system else turns
        openai.refuse_another(row, "conversations", messages, "messages")
        others = rest(row, "conversations", "conversation", "system")
        return openai.read({**others, "messages": messages})
    dialog = Dialog(system)
    for number, turn in enumerate(turns, 1):
        dialog.add(turn, number, alone=is_alone(turns, number))
    tools = read_tools(row.get("tools"), json_or_literal)
    extra = extra_by_turn(turns, TURN)
    meta = meta_of(row, "conversations", "conversation", "system", "tools", turns=extra)
    return Record(messages=merged(dialog.messages), tools=tools, meta=meta)


def is_alone(turns: list[object], number: int) -> bool:
    """Whether no turn of the same speaker follows."""
    after = turns[number] if number < len(turns) else None
    speaker = after.get("from", after.get("role")) if isinstance(after, dict) else None
    return SPEAKERS.get(str(speaker)) != "tool"


def turns_of(row: dict[str, Any]) -> Any:
    return row.get("conversations") or row.get("conversation")


def numbered_turns(row: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """The turns from number 1 on; the system text beside them is number 0."""
    if row.get("system"):
        yield 0, {"from": "system", "value": row["system"]}
    yield from enumerate(turns_of(row), 1)


def speaker_of(turn: object, number: int) -> Speaker:
    """Who speaks. Raises RowError E202 if the format knows no such role."""
    sender = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
    speaker = SPEAKERS.get(str(sender))
    if speaker is None:
        raise unknown_role(sender, SPEAKERS, f"turn {number}")
    return speaker


def text_of(turn: dict[str, Any], number: int, read: Set[str] = TURN) -> str:
    """What is said, thoughts first. `read`: the keys of a turn that the format reads."""
    if not turn.keys() <= read:
        refuse_unread(turn, read, f"turn {number}")
    value = turn.get("content") if turn.get("value") is None else turn["value"]
    if isinstance(value, dict | list):
        value = plain(value)
    if not isinstance(value, str | None):
        raise RowError("E216", f"{kind(value)} where text is said (turn {number})")
    return "\n\n".join(filter(None, [*thoughts_of(turn, "assistant", number), value]))


class Dialog:
    """Collects messages. The format has no ids: results answer the calls of the turn before in
    their order.
    """

    def __init__(self, system: str = "") -> None:
        self.messages = [Message("system", system)] if system else []
        self.waiting: list[Call] = []
        self.calls = 0

    def add(self, turn: Any, number: int, alone: bool) -> None:
        speaker, text = speaker_of(turn, number), text_of(turn, number)
        if speaker == "call":
            self._call(text, has_loss(turn))
        elif speaker == "assistant":
            calls: list[str] = []
            if not RESULT.search(text):  # otherwise it is a whole chain, which is split later
                # also: no search from every tag to the end
                if text.rfind("<tool_call>") > text.rfind("</tool_call>"):
                    raise RowError("E206", "a <tool_call> that is not closed")
                calls = CALL.findall(text)
            self.waiting = [self._numbered(call) for call in calls]
            said = CALL.sub("", text).strip() if calls else text
            self.messages.append(
                Message("assistant", said, tuple(self.waiting), loss=has_loss(turn))
            )
        elif speaker == "tool":
            for result in self._results(text, alone):
                answered = self.waiting.pop(0).id if self.waiting else ""
                self.messages.append(Message("tool", result, call_id=answered))
        else:
            self.messages.append(Message(speaker, text))

    def _results(self, text: str, alone: bool) -> list[str]:
        """One turn may answer several calls: as tagged blocks, or as a JSON list with a result for
        each.
        """
        closed = text.rfind("<tool_response>") < text.rfind("</tool_response>")
        if closed and not RESULT.sub("", text).strip():
            return [*map(str.strip, RESULT.findall(text))]
        if alone and len(self.waiting) > 1 and text.lstrip().startswith("["):
            with contextlib.suppress(RowError):
                listed = json_value(text)
                if len(listed) == len(self.waiting):
                    return [one if isinstance(one, str) else plain(one) for one in listed]
        return [text]

    def _call(self, text: str, loss: bool) -> None:
        """A turn that only calls goes with the assistant turn just before it."""
        thought = THOUGHT.match(text)
        value = json_or_literal(text[thought.end() :] if thought else text)
        calls = [self._numbered(call) for call in (value if isinstance(value, list) else [value])]
        said = thought[1] if thought else ""
        if self.messages and self.messages[-1].role == "assistant":
            before = self.messages.pop()
            if before.loss != loss:
                reason = (
                    "what is said and the call after it are one turn: learned or not as a whole"
                )
                raise RowError("E201", reason)
            calls = [*before.calls, *calls]
            said = "\n\n".join(filter(None, [before.content, said]))
        self.waiting = calls
        self.messages.append(Message("assistant", said, tuple(calls), loss=loss))

    def _numbered(self, value: object) -> Call:
        call = replace(read_call(value, json_or_literal), id=f"call_{self.calls}")
        self.calls += 1
        return call
