"""SAGE's AgentSFTDialog -> Record: turns whose results name their tool."""

from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, plain
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import meta_of, rest
from agentlite.data.formats.openai import has_loss
from agentlite.data.formats.sage_tools import declared, split_of
from agentlite.data.formats.tool_calls import read_arguments

EXAMPLE = (
    '{"dialog_id": "sft_000001", "goal": "Learn whether to take a coat.", "turns": [{"role": '
    '"user", "content": "Is it '
    'wet in Oslo?"}, {"role": "assistant", "content": "I look it up."}, {"role": "tool", '
    '"content": "4 mm", "tool_id": '
    '"rain_001", "result": {"mm": 4}}, {"role": "assistant", "content": "Yes."}], "target_tools": '
    '["rain_001"], '
    '"metadata": {}, "split": "train"}'
)
TURN = ("role", "content", "tool_id", "result", "arguments", "loss", "weight")


def fits(row: dict[str, Any]) -> bool:
    return isinstance(row.get("turns"), list) and "dialog_id" in row and "target_tools" in row


def read(row: dict[str, Any]) -> Record:
    """Raises RowError E201, E202, E204, E205, E206, E208, E212 or E216."""
    turns, tools = row.get("turns"), row.get("target_tools")
    if (
        not isinstance(turns, list)
        or not isinstance(tools, list)
        or not all(isinstance(tool, str) for tool in tools)
    ):
        raise RowError("E201", "turns are no list, or target_tools no list of ids")
    messages: list[Message] = []
    for number, turn in enumerate(turns, 1):
        speaker = sharegpt.speaker_of(turn, number)
        if speaker == "tool":
            _add_result(messages, turn, number)
        elif speaker == "call":
            raise RowError(
                "E202", f"a {turn.get('role')!r} turn in a format that has none (turn {number})"
            )
        else:
            messages.append(Message(speaker, sharegpt.text_of(turn, number), loss=has_loss(turn)))
    named = {**row, "id": row.get("dialog_id")}
    extra = {
        str(number): fields for number, turn in enumerate(turns, 1) if (fields := rest(turn, *TURN))
    }
    return Record(
        messages=tuple(messages),
        tools=tuple(declared(tool) for tool in tools),
        split=split_of(row),
        meta=meta_of(named, "dialog_id", "turns", "target_tools", "split")
        | ({"turns": extra} if extra else {}),
    )


def _add_result(messages: list[Message], turn: dict[str, object], number: int) -> None:
    """The call that a result answers was made by the assistant turn before it, which does not say
    so.
    """
    tool_id = turn.get("tool_id")
    if not isinstance(tool_id, str) or not tool_id:
        raise RowError("E205", f"a result that does not say of which tool (turn {number})")
    index = next((i for i in reversed(range(len(messages))) if messages[i].role != "tool"), None)
    if index is None or messages[index].role != "assistant":
        raise RowError("E204", f"a result that follows no assistant turn (turn {number})")
    made = sum(message.role == "tool" for message in messages)
    call = Call(tool_id, _arguments(turn), f"call_{made}")
    messages[index] = replace(messages[index], calls=(*messages[index].calls, call))
    messages.append(Message("tool", _result_text(turn, number), call_id=call.id))


def _arguments(turn: dict[str, object]) -> dict[str, object]:
    for place in (turn, turn.get("metadata"), turn.get("result")):
        if isinstance(place, dict) and place.get("arguments") is not None:
            return read_arguments(place["arguments"])
    return {}


def _result_text(turn: dict[str, object], number: int) -> str:
    """The text and, unless it is the same, the result."""
    text, result = sharegpt.text_of(turn, number), turn.get("result")
    written = "" if result is None else result if isinstance(result, str) else plain(result)
    return text if written in ("", text) else "\n".join(filter(None, (text, written)))
