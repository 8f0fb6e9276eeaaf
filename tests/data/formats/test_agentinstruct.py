"""agentlite.data.formats.agentinstruct: texts as they are, and learned exactly where the row says
so.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Message, Record
from agentlite.data.curation.validate import validate
from agentlite.data.formats import agentinstruct

ROWS = rows("agentinstruct")
EXPECTED = [
    Record(
        messages=(
            Message("user", "You work at a shell. Say OK."),
            Message("assistant", "OK.", loss=False),
            Message("user", "How many files?"),
            Message("assistant", "Think: I count.\n\nAct: bash\n\n```bash\nls | wc -l\n```"),
            Message("user", "7"),
            Message("assistant", "Act: answer(7)"),
        ),
        meta={"source_id": "os_1"},
    ),
    Record(
        messages=(
            Message("system", "You may call get_rain."),
            Message("user", "Is it wet in Oslo?"),
            Message(
                "assistant", 'Thought: I look.\nAction: get_rain\nAction Input: {"city": "Oslo"}'
            ),
            Message("user", "4 mm"),
            Message("assistant", "Yes.", loss=False),
        ),
        meta={"source_id": "flan_1"},
    ),
    Record(
        messages=(Message("user", "天气？"), Message("assistant", "我没有这样的工具。")),
        meta={"source_id": "flan_2", "extra": {"split": "negative"}},
    ),
    Record(
        messages=(
            Message("user", "Go on"),
            Message("assistant", "I said: <tool_call>"),
            Message("user", "And?"),
            Message("assistant", "Done, it's {'a': None}."),
        ),
        meta={"source_id": "nulls"},
    ),
    Record(
        messages=(
            Message("system", "You play."),
            Message("user", "North?"),
            Message("assistant", "OK", loss=False),
        ),
        meta={"source_id": "none"},
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_row_is_read_as_it_was_written(row: Row, expected: Record) -> None:
    assert agentinstruct.fits(row)
    assert agentinstruct.read(row) == expected
    validate(expected)


def turn(said_by: str, loss: Any, value: Any = "x") -> dict[str, Any]:
    return {"from": said_by, "loss": loss, "value": value}


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": []},
        {"conversations": [turn("human", None), turn("gpt", None)]},
        {"conversations": [turn("human", True), {"from": "gpt", "value": "x"}]},
        {"conversations": [{"from": "human", "value": "x"}, turn("gpt", True)]},
        {"conversations": [turn("human", None), turn("gpt", True)], "tools": "[{}]"},
        {"conversations": [turn("human", None), turn("function_call", None), turn("gpt", True)]},
    ],
)
def test_a_row_with_tools_or_with_no_loss_of_its_own_is_none(row: Row) -> None:
    assert not agentinstruct.fits(row)


BAD: list[tuple[str, dict[str, Any]]] = [
    ("E201", {}),
    ("E201", {"conversations": ["x"]}),
    ("E201", {"conversations": [turn("human", None), turn("gpt", 0.5)]}),
    ("E201", {"conversations": [turn("human", None), turn("gpt", "false")]}),
    ("E202", {"conversations": [turn("human", None), turn("bot", True)]}),
    ("E202", {"conversations": [turn("human", None), turn("observation", None)]}),
    ("E202", {"conversations": [turn("human", None), turn("function_call", None)]}),
    ("E216", {"conversations": [turn("human", None), turn("gpt", True, 3)]}),
    ("E216", {"system": 3, "conversations": [turn("human", None), turn("gpt", True)]}),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: agentinstruct.read(row)) == code
