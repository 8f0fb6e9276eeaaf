"""agentlite.data.formats.self_cognition: who the model is and who made it, filled in per
language.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, rows

from agentlite.data.curation.validate import validate
from agentlite.data.formats import self_cognition

ROWS = rows("self_cognition")
EXPECTED: list[tuple[str, str, dict[str, Any]]] = [
    ("你是谁？", "我是小鸽，由鸽舍训练。", {"tag": "zh"}),
    ("Who are you?", "I'm Little Dove, made by the loft. Little Dove!", {"tag": "en"}),
    ("Are you Little Dove?", "Yes.", {"tag": "en"}),
    ("hello", 'Hello! {"a": {}} {{name}}', {"source_id": "3", "tag": "en"}),
    ("你叫小鸽吗", "是的。", {"tag": "zh", "extra": {"rank": 2}}),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_pair_is_filled_in_by_the_language_of_the_row(
    row: Row, expected: tuple[str, str, dict[str, Any]]
) -> None:
    record = self_cognition.read(row, name=("小鸽", "Little Dove"), author=("鸽舍", "the loft"))
    assert self_cognition.fits(row)
    assert (*(message.content for message in record.messages), record.meta) == expected
    assert [message.role for message in record.messages] == ["user", "assistant"]
    assert record.task == "self_cognition"
    validate(record)


def test_one_name_stands_for_both_languages() -> None:
    chinese, english = (self_cognition.read(row, ["Dove"]) for row in ROWS[:2])
    assert chinese.messages[1].content == "我是Dove，由its developers训练。"
    assert english.messages[1].content == "I'm Dove, made by its developers. Dove!"
