"""ms-swift rows -> Record: messages, query and response, or human and assistant."""

from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind
from agentlite.core.records import Record, Tool, plain
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import (
    dialog,
    history,
    meta_of,
    refuse_unread,
    rest,
    text_at,
)
from agentlite.data.formats.openai import LOSS, THOUGHTS, has_loss, refuse_another
from agentlite.data.formats.tool_calls import json_or_literal, read_tools

EXAMPLE = r'{"tools": "[{\"name\": \"weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}]", "messages": [{"role": "user", "content": "Is it wet in Oslo?"}, {"role": "tool_call", "content": "{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}"}, {"role": "tool_response", "content": "4 mm"}, {"role": "assistant", "content": "Yes."}]}'  # noqa: E501  (a row is one line)
OWN_ROLES = ("tool_call", "tool_response")
OWN_KEYS = ("loss_scale", "channel")
EXCHANGE = {"human", "assistant"}
KNOWN = frozenset(("role", "content", "tool_calls", "loss_scale", *LOSS, *THOUGHTS))
READ = frozenset(("from", "role", "content", *THOUGHTS))  # of a turn, by the reader of ShareGPT
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
        return _read_messages(row, system, tools)
    return Record(
        messages=dialog(system, _exchanges(row)), tools=tools, meta=meta_of(row, *DIALOGS)
    )


def _read_messages(row: dict[str, Any], system: str, tools: tuple[Tool, ...]) -> Record:
    """Turns of ShareGPT with weights: `loss: false` and `loss_scale: 0` take a turn out, any other
    scale is kept as it is.
    """
    turns = row["messages"]
    for other in OTHER_DIALOGS:
        refuse_another(row, "messages", turns, other)
    collected = sharegpt.Dialog(system)
    weights: dict[int, float | None] = {}  # by the number of the message that a turn is in
    extra: dict[str, list[dict[str, Any]]] = {}
    for number, turn in enumerate(turns, 1):
        place, speaker = f"message {number}", sharegpt.speaker_of(turn, number)
        if turn.get("tool_calls"):
            raise RowError(
                "E206", f"tool_calls in a row whose calls are turns of their own ({place})"
            )
        refuse_unread(turn, KNOWN, place)
        content, scale = turn.get("content"), turn.get("loss_scale")
        if speaker not in ("tool", "call") and not isinstance(content, str | None):
            raise RowError("E216", f"content is {kind(content)}, not text ({place})")
        weight = scale if has_loss(turn) else 0
        given = {key: turn[key] for key in turn if key in READ}
        if speaker == "call" and not isinstance(content, str):
            given["content"] = plain(content)
        collected.add(
            {**given, "loss": weight != 0}, number, alone=sharegpt.is_alone(turns, number)
        )
        message = len(collected.messages) - 1
        if speaker in ("assistant", "call"):
            if not isinstance(scale, int | float | None):
                raise RowError("E201", f"loss_scale is {kind(scale)}, not a number ({place})")
            if weights.setdefault(message, weight) != weight:
                raise RowError(
                    "E201", f"what the assistant says and what it calls weigh differently ({place})"
                )
        if unknown := rest(turn, *KNOWN):
            extra.setdefault(str(message), []).append(unknown)
    scales = {str(turn): weight for turn, weight in weights.items() if weight}
    meta = meta_of(row, *DIALOGS, loss_scale=scales, turns=extra)
    return Record(messages=tuple(collected.messages), tools=tools, meta=meta)


def _exchanges(row: dict[str, Any]) -> list[tuple[str, str]]:
    if _has_exchanges(row):
        return [
            (text_at(turn, "human"), text_at(turn, "assistant")) for turn in sharegpt.turns_of(row)
        ]
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
    turns = sharegpt.turns_of(row)
    return isinstance(turns, list) and all(
        isinstance(turn, dict) and turn.keys() == EXCHANGE for turn in turns
    )
