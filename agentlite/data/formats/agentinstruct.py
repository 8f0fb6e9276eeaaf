"""AgentInstruct and Agent-FLAN rows -> Record: ShareGPT turns with a loss mark."""

from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record
from agentlite.data.formats import sharegpt
from agentlite.data.formats.extra_fields import dialog, meta_of, text_at
from agentlite.data.formats.openai import has_loss

EXAMPLE = r'{"id": "os_1", "conversations": [{"from": "human", "loss": null, "value": "You work at a shell. Say OK."}, {"from": "gpt", "loss": false, "value": "OK."}, {"from": "human", "loss": null, "value": "How many files?"}, {"from": "gpt", "loss": true, "value": "Think: I count them.\n\nAct: bash\n\nls | wc -l"}]}'  # noqa: E501  (a row is one line)
FIELDS = {"conversations|conversation": list}
SPEAKERS = ("system", "user", "assistant")


def fits(row: dict[str, Any]) -> bool:
    if not sharegpt.fits(row) or row.get("tools"):
        return False
    learned = False
    for turn in sharegpt.turns_of(row):
        speaker = sharegpt.SPEAKERS.get(str(turn.get("from", turn.get("role"))))
        if speaker not in SPEAKERS or "loss" not in turn:
            return False
        learned = learned or (speaker == "assistant" and isinstance(turn["loss"], bool))
    return learned


def read(row: dict[str, Any]) -> Record:
    """Texts stay as they are, actions in them too. Only what the assistant says is ever learned:
    null leaves that so, as it does with the user's turns.
    """
    messages = [*dialog(text_at(row, "system"), ())]
    for number, turn in enumerate(sharegpt.turns_of(row), 1):
        speaker = sharegpt.speaker_of(turn, number)
        if speaker == "tool" or speaker == "call":
            raise RowError("E202", f"a {speaker} turn in a format that has none (turn {number})")
        text = sharegpt.text_of(turn, number)
        messages.append(Message(speaker, text, loss=speaker != "assistant" or has_loss(turn)))
    meta = meta_of(row, "conversations", "conversation", "system")
    return Record(messages=tuple(messages), meta=meta)
