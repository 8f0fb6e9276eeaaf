"""ms-swift rows -> Record: messages, query and response, or human and assistant."""

from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind
from agentlite.core.records import Call, Message, Record, plain
from agentlite.data.formats.extra_fields import dialog, history, meta_of, rest, text_at
from agentlite.data.formats.openai import LOSS, THOUGHTS, has_loss, refuse_another, thoughts_of
from agentlite.data.formats.sharegpt import speaker_of, turns_of
from agentlite.data.formats.tool_calls import json_or_literal, read_call, read_tools
from agentlite.data.formats.unread_keys import refuse_unread

EXAMPLE = r'{"tools": "[{\"name\": \"weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}]", "messages": [{"role": "user", "content": "Is it wet in Oslo?"}, {"role": "tool_call", "content": "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}"}, {"role": "tool_response", "content": "4 mm"}, {"role": "assistant", "content": "Yes."}]}'  # noqa: E501  (a row is one line)
OWN_ROLES = ("tool_call", "tool_response")
OWN_KEYS = ("loss_scale", "channel")
EXCHANGE = {"human", "assistant"}
KNOWN = frozenset(("role", "content", "tool_calls", "loss_scale", *LOSS, *THOUGHTS))
OTHER_DIALOGS = ("conversations", "conversation", "query", "response", "history")
DIALOGS = ("messages", *OTHER_DIALOGS, "system", "tools")


def fits(row: dict[str, Any]) -> bool:
    has_texts = isinstance(row.get("query"), str) and isinstance(row.get("response"), str)
    return _has_own_messages(row) or _has_exchanges(row) or has_texts


def read(row: dict[str, Any]) -> Record:
    if refused := _preference(row):
        raise RowError(
            "E201",
            f"{refused}: a preference, of which one side is not to be imitated, is not for prep",
        )
    system, tools = text_at(row, "system"), read_tools(row.get("tools"), json_or_literal)
    if isinstance(row.get("messages"), list):
        for other in OTHER_DIALOGS:
            refuse_another(row, "messages", row["messages"], other)
        turns_read = _MsSwiftDialog(system)
        for number, turn in enumerate(row["messages"], 1):
            turns_read.add(turn, number)
        meta = meta_of(row, *DIALOGS, loss_scale=turns_read.scales, turns=turns_read.extra)
        return Record(messages=tuple(turns_read.messages), tools=tools, meta=meta)
    return Record(
        messages=dialog(system, _exchanges(row)), tools=tools, meta=meta_of(row, *DIALOGS)
    )


def _exchanges(row: dict[str, Any]) -> list[tuple[str, str]]:
    if _has_exchanges(row):
        return [(text_at(turn, "human"), text_at(turn, "assistant")) for turn in turns_of(row)]
    return [*history(row), (text_at(row, "query"), row["response"])]


def _preference(row: dict[str, object]) -> str:
    """The key that makes the row one for DPO or KTO; "" if there is none."""
    if isinstance(row.get("label"), bool):
        return "label"
    return next(
        (key for key in ("rejected_response", "rejected_messages") if row.get(key) is not None), ""
    )


def _has_own_messages(row: dict[str, object]) -> bool:
    messages = row.get("messages")
    if not isinstance(messages, list) or not all(
        isinstance(turn, dict) and "role" in turn for turn in messages
    ):
        return False
    own = any(
        turn["role"] in OWN_ROLES or any(turn.get(key) is not None for key in OWN_KEYS)
        for turn in messages
    )
    return own or bool(_preference(row))


def _has_exchanges(row: dict[str, Any]) -> bool:
    turns = turns_of(row)
    return isinstance(turns, list) and all(
        isinstance(turn, dict) and turn.keys() == EXCHANGE for turn in turns
    )


class _MsSwiftDialog:
    """Collects messages. The format has no ids: results answer the calls before them in their
    order.
    """

    def __init__(self, system: str) -> None:
        self.messages = [Message("system", system)] if system else []
        self.waiting: list[str] = []
        self.calls = 0
        self.weights: dict[int, float | None] = {}
        self.extra: dict[str, list[dict[str, Any]]] = {}

    @property
    def scales(self) -> dict[str, float]:
        """By turn, as text: JSON has no other keys."""
        return {str(turn): weight for turn, weight in self.weights.items() if weight}

    def add(self, turn: Any, number: int) -> None:
        speaker = speaker_of(turn, number)
        if turn.get("tool_calls"):
            raise RowError(
                "E206", f"tool_calls in a row whose calls are turns of their own (message {number})"
            )
        refuse_unread(turn, KNOWN, f"message {number}")
        if speaker == "tool":
            answered = self.waiting.pop(0) if self.waiting else ""
            content = turn.get("content")
            result = plain(content) if isinstance(content, dict | list) else _text(turn, number)
            self.messages.append(Message("tool", result, call_id=answered))
        elif speaker == "call":
            self._call(turn, number)
        else:
            self.messages.append(Message(speaker, _text(turn, number)))
            if speaker == "assistant":
                self._weigh(turn, number)
        if extra := rest(turn, *KNOWN):
            self.extra.setdefault(str(len(self.messages) - 1), []).append(extra)

    def _call(self, turn: dict[str, object], number: int) -> None:
        """A turn that only calls goes with the assistant turn just before it."""
        content = turn.get("content")
        value = json_or_literal(content) if isinstance(content, str) else content
        if not self.messages or self.messages[-1].role != "assistant":
            self.messages.append(Message("assistant"))
        before = self.messages[-1]
        calls = (
            *before.calls,
            *(self._numbered(call) for call in (value if isinstance(value, list) else [value])),
        )
        self.messages[-1] = replace(before, calls=calls)
        self.waiting = [call.id for call in calls]
        self._weigh(turn, number)

    def _numbered(self, value: object) -> Call:
        call = replace(read_call(value, json_or_literal), id=f"call_{self.calls}")
        self.calls += 1
        return call

    def _weigh(self, turn: dict[str, object], number: int) -> None:
        """A turn has one weight: `loss: false` and `loss_scale: 0` take it out, any other scale is
        kept as it is.
        """
        scale, index = turn.get("loss_scale"), len(self.messages) - 1
        if scale is not None and not isinstance(scale, int | float):
            raise RowError("E201", f"loss_scale is {kind(scale)}, not a number (message {number})")
        weight = scale if has_loss(turn) else 0
        if self.weights.setdefault(index, weight) != weight:
            raise RowError(
                "E201",
                f"what the assistant says and what it calls weigh differently (message {number})",
            )
        self.messages[index] = replace(self.messages[index], loss=weight != 0)


def _text(turn: dict[str, object], number: int) -> str:
    content = turn.get("content")
    if content is not None and not isinstance(content, str):
        raise RowError("E216", f"content is {kind(content)}, not text (message {number})")
    return "\n\n".join(filter(None, [*thoughts_of(turn, "assistant", number), content]))
