"""SAGE's AgentSFTDialog -> Record: turns whose results name their tool."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Gold, Message, Record, Tool, digest, gold_call, plain
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import meta_of, rest
from agentlite.data.formats.openai import LOSS, has_loss
from agentlite.data.formats.sage_tools import NO_CATALOGUE, declared, split_of, unknown_call
from agentlite.data.formats.tool_calls import read_arguments

EXAMPLE = '{"dialog_id": "sft_000001", "goal": "Learn whether to take a coat.", "turns": [{"role": "user", "content": "Is it wet in Oslo?"}, {"role": "assistant", "content": "I look it up."}, {"role": "tool", "content": "4 mm", "tool_id": "rain_001", "result": {"mm": 4}}, {"role": "assistant", "content": "Yes."}], "target_tools": ["rain_001"], "metadata": {}, "split": "train"}'  # noqa: E501  (a row is one line)
FIELDS = {"turns": list}
CANDIDATES = "candidate_tools"
TURN = ("role", "content", "tool_id", "result", "arguments", *LOSS)
KNOWN = frozenset((*TURN, *sharegpt.TURN))


def fits(row: dict[str, Any]) -> bool:
    return "dialog_id" in row and "target_tools" in row


def read(row: dict[str, Any], catalogue: Mapping[str, Tool] = NO_CATALOGUE) -> Record:
    """`catalogue`: the tools that the row names by their ids. A result that comes without the
    arguments of its call leaves them unknown.
    """
    tools = tuple(declared(tool, catalogue) for tool in _offered(row))
    messages: list[Message] = []
    speaks = -1  # the last turn that is no result
    unknown: set[str] = set()  # ids of calls
    extra: dict[str, Any] = {}
    for number, turn in enumerate(row["turns"], 1):
        speaker = sharegpt.speaker_of(turn, number)
        if speaker == "call":
            reason = f"a {turn.get('role')!r} turn in a format that has none (turn {number})"
            raise RowError("E202", reason)
        if speaker == "tool":
            call, is_known = _call(turn, number, sum(one.role == "tool" for one in messages))
            unknown |= set() if is_known else {call.id}
            # the assistant turn before it made the call, and does not say so
            if speaks < 0 or messages[speaks].role != "assistant":
                raise RowError("E204", f"a result that follows no assistant turn (turn {number})")
            messages[speaks] = replace(messages[speaks], calls=(*messages[speaks].calls, call))
            messages.append(Message("tool", _result_text(turn, number), call_id=call.id))
        else:
            speaks = len(messages)
            text = sharegpt.text_of(turn, number, KNOWN)
            messages.append(Message(speaker, text, loss=has_loss(turn)))
        if fields := rest(turn, *TURN):
            extra[str(number)] = fields
    gold = {}
    for place, message in enumerate(messages):
        if any(call.id in unknown for call in message.calls):
            expected = [
                unknown_call(call.name, tools) if call.id in unknown else gold_call(call)
                for call in message.calls
            ]
            gold[place] = Gold(tuple(expected))
    named = {**row, "id": row.get("dialog_id")}
    meta = meta_of(named, "dialog_id", "turns", "target_tools", "split")
    return Record(
        messages=tuple(messages),
        tools=tools,
        gold=gold,
        split=split_of(row),
        meta=meta | ({"turns": extra} if extra else {}),
    )


def _offered(row: dict[str, Any]) -> list[object]:
    """The targets; among candidates, where the row names such, in an order that does not tell which
    are which.
    """
    targets, metadata = row["target_tools"], row.get("metadata")
    candidates = row.get(CANDIDATES) or (
        metadata.get(CANDIDATES) if isinstance(metadata, dict) else None
    )
    if not candidates:
        return [*targets]
    names = {declared(tool).name for tool in candidates}
    absent = [tool for tool in targets if tool not in names]
    dialog = row.get("dialog_id")
    return sorted(
        [*candidates, *absent], key=lambda tool: digest(f"{dialog} {declared(tool).name}")
    )


def _call(turn: dict[str, object], number: int, made: int) -> tuple[Call, bool]:
    """The call that a result answers, the `made`-th of its dialog, and whether its arguments are
    known.
    """
    tool_id, places = turn.get("tool_id"), (turn, turn.get("metadata"), turn.get("result"))
    given = [place.get("arguments") for place in places if isinstance(place, dict)]
    arguments = next((read_arguments(value) for value in given if value is not None), None)
    if not isinstance(tool_id, str) or not tool_id:
        raise RowError("E205", f"a result that does not say of which tool (turn {number})")
    return Call(tool_id, arguments or {}, f"call_{made}"), arguments is not None


def _result_text(turn: dict[str, object], number: int) -> str:
    """The text and, unless it is the same, the result."""
    text, result = sharegpt.text_of(turn, number, KNOWN), turn.get("result")
    written = "" if result is None else result if isinstance(result, str) else plain(result)
    return text if written in ("", text) else "\n".join(filter(None, (text, written)))
