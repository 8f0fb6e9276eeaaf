"""AgentInstruct and Agent-FLAN rows -> Record: ShareGPT turns with a loss mark."""

from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import dialog, meta_of, text_at
from agentlite.data.formats.openai import has_loss

EXAMPLE = r'{"id": "os_1", "conversations": [{"from": "human", "loss": null, "value": "You work at a shell. Say OK."}, {"from": "gpt", "loss": false, "value": "OK."}, {"from": "human", "loss": null, "value": "How many files?"}, {"from": "gpt", "loss": true, "value": "Think: I count them.\n\nAct: bash\n\nls | wc -l"}]}'  # noqa: E501  (a row is one line)
SPEAKERS = ("system", "user", "assistant")


def fits(row: dict[str, Any]) -> bool:
    if not sharegpt.fits(row) or row.get("tools"):
        return False
    turns = sharegpt.turns_of(row)
    speakers = [sharegpt.SPEAKERS.get(str(turn.get("from", turn.get("role")))) for turn in turns]
    answers = [
        turn for turn, speaker in zip(turns, speakers, strict=True) if speaker == "assistant"
    ]
    known = all(speaker in SPEAKERS for speaker in speakers) and all(
        "loss" in turn for turn in turns
    )
    return known and any(isinstance(turn["loss"], bool) for turn in answers)


def read(row: dict[str, Any]) -> Record:
    """Texts stay as they are, actions in them too."""
    turns = enumerate(sharegpt.turns_of(row), 1)
    return Record(
        messages=(
            *dialog(text_at(row, "system"), ()),
            *(_message(turn, number) for number, turn in turns),
        ),
        meta=meta_of(row, "conversations", "conversation", "system"),
    )


def _message(turn: dict[str, object], number: int) -> Message:
    """Only what the assistant says is ever learned: null leaves that so, as it does with the user's
    turns.
    """
    speaker = sharegpt.speaker_of(turn, number)
    if speaker == "tool" or speaker == "call":
        raise RowError("E202", f"a {speaker} turn in a format that has none (turn {number})")
    return Message(
        speaker, sharegpt.text_of(turn, number), loss=speaker != "assistant" or has_loss(turn)
    )
