"""What joined dialogs keep apart and what they number on; the rest is in test_curation.py."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.augment import join_dialogs


def dialog(number: int, **fields: Any) -> Record:
    """A question with a system turn and the call that answers it."""
    call = Call(f"tool_{number}", {}, "call_0")
    messages = (
        Message("system", "Be brief."),
        Message("user", f"Question {number}?"),
        Message("assistant", "", (call,)),
    )
    return Record(messages=messages, tools=(Tool(call.name, f"Does {number}."),), **fields)


def kinds(kind: str) -> list[Record]:
    """Records of two kinds that do not belong in one dialog."""
    records = [dialog(number) for number in range(8)]
    for number in range(0, 8, 2):
        if kind == "protocol":
            records[number] = replace(records[number], meta={"protocol": "react"})
        elif kind == "split":
            records[number] = replace(records[number], split="dev")
        else:
            messages = (Message("system", "Be polite."), *records[number].messages[1:])
            records[number] = replace(records[number], messages=messages)
    return records


@pytest.mark.parametrize("kind", ["protocol", "split", "system text"])
def test_a_dialog_holds_records_of_one_protocol_one_split_and_one_system_text(kind: str) -> None:
    records = kinds(kind)
    joined = join_dialogs(records, k=4, seed=0, fits=lambda slot: True)
    numbers = {record.id: number for number, record in enumerate(records)}
    found = [sorted(numbers[part] for part in record.meta["joined"]) for record in joined]
    assert sorted(found) == [[0, 2, 4, 6], [1, 3, 5, 7]]
