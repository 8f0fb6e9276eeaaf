"""agentlite.data.formats.sage_sft: results name a tool; the call that each answers is put before
it.
"""

from typing import Any

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import (
    ANY_ARGUMENTS,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Tool,
)
from agentlite.data.curation.validate import validate
from agentlite.data.formats import sage_sft

ROWS = rows("sage_sft")
OPEN = {"type": "object", "properties": {}, "additionalProperties": True}
RAIN, TIDE = Tool("rain_001", "", OPEN), Tool("tide_table_002", "", OPEN)
EXPECTED = [
    Record(
        messages=(
            Message("user", "Is it wet in Oslo?"),
            Message(
                "assistant",
                "I look it up.",
                (Call("rain_001", {"city": "Oslo", "deep": {"a": []}}, "call_0"),),
            ),
            Message("tool", '4 mm\n{"雨": 4}', call_id="call_0"),
            Message("assistant", "Yes."),
            Message("user", "And now?"),
            Message("assistant", "Still."),
        ),
        tools=(RAIN,),
        split="train",
        meta={
            "source_id": "sft_000001",
            "extra": {"goal": "Plan a walk.", "metadata": {"domain": "weather"}},
        },
    ),
    Record(
        messages=(
            Message("user", "潮汐？"),
            Message(
                "assistant",
                "查一下。",
                (
                    Call("tide_table_002", {"port": "Brest"}, "call_0"),
                    Call("rain_001", {}, "call_1"),
                ),
            ),
            Message("tool", "04:12", call_id="call_0"),
            Message("tool", "none", call_id="call_1"),
            Message("assistant", "04:12。"),
            Message("user", "好"),
            Message("assistant", "再见", loss=False),
        ),
        tools=(RAIN, TIDE),
        gold={
            1: Gold(
                (
                    GoldCall("tide_table_002", {"port": ["Brest"]}),
                    GoldCall("rain_001", ANY_ARGUMENTS),
                )
            )
        },
        split="dev",
        meta={
            "source_id": "sft_000002",
            "extra": {"goal": "g", "metadata": {}},
            "turns": {"3": {"metadata": {"arguments": {"port": "Brest"}}}, "7": {"note": "ends"}},
        },
    ),
    Record(
        messages=(
            Message("user", "a"),
            Message("assistant", "b", (Call("rain_001", {"city": "Xi'an"}, "call_0"),)),
            Message(
                "tool", 'c\n{"arguments": "{\\"city\\": \\"Xi\'an\\"}", "mm": 4}', call_id="call_0"
            ),
            Message("assistant", "d", (Call("rain_001", {}, "call_1"),)),
            Message("tool", "e", call_id="call_1"),
            Message("assistant", "f"),
        ),
        tools=(RAIN,),
        gold={3: Gold((GoldCall("rain_001", ANY_ARGUMENTS),))},
        split="test",
        meta={"source_id": "sft_000003", "extra": {"goal": "g", "metadata": {}}},
    ),
    Record(
        messages=(Message("user", "Hi"), Message("assistant", "Hello.")),
        tools=(RAIN,),
        meta={"source_id": "sft_000004", "extra": {"goal": "g"}},
    ),
    Record(
        messages=(
            Message("system", "Be brief."),
            Message("user", "Hi"),
            Message("assistant", "Hello."),
        ),
        tools=(RAIN,),
        meta={"source_id": "sft_000005", "extra": {"goal": "g"}},
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_each_result_answers_a_call_of_its_tool_in_the_turn_before(
    row: Row, expected: Record
) -> None:
    assert sage_sft.fits(row)
    assert sage_sft.read(row) == expected
    validate(expected)


def dialog(*turns: Any, **row: Any) -> Row:
    asked = {"role": "user", "content": "q"}
    return {"dialog_id": "sft_1", "turns": [asked, *turns], "target_tools": ["rain_001"], **row}


SAID = {"role": "assistant", "content": "a"}
RESULT = {"role": "tool", "content": "r", "tool_id": "rain_001"}
BAD: list[tuple[str, Row]] = [
    ("E201", {}),
    ("E201", dialog(SAID, turns="x")),
    ("E201", dialog(SAID, target_tools=None)),
    ("E201", dialog(SAID, target_tools=[{"tool_id": "rain_001"}])),
    ("E201", dialog(SAID, split="validation")),
    ("E202", dialog({"role": "critic", "content": "x"})),
    ("E202", dialog({"role": "function_call", "content": "x"})),
    ("E202", dialog("x")),
    ("E204", dialog(RESULT, SAID)),
    ("E205", dialog(SAID, {"role": "tool", "content": "r"}, SAID)),
    ("E205", dialog(SAID, {**RESULT, "tool_id": ""}, SAID)),
    ("E205", dialog(SAID, {**RESULT, "tool_id": 3}, SAID)),
    ("E206", dialog(SAID, {**RESULT, "arguments": "{'a'"}, SAID)),
    ("E208", dialog(SAID, {**RESULT, "metadata": {"arguments": [1]}}, SAID)),
    ("E209", dialog(SAID, {**RESULT, "tool_id": "snow_002"}, SAID)),
    ("E212", dialog(SAID, target_tools=[""])),
    ("E216", dialog({"role": "assistant", "content": 3})),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: validate(sage_sft.read(row))) == code


@pytest.mark.parametrize("inside", [False, True], ids=["beside the turns", "in metadata"])
@pytest.mark.parametrize(
    ("candidates", "names"),
    [
        (None, {"rain_001"}),
        ([], {"rain_001"}),
        (["rain_001", "tide_table_002"], {"rain_001", "tide_table_002"}),
        (["tide_table_002", "snow_003"], {"rain_001", "tide_table_002", "snow_003"}),
    ],
)
def test_the_target_is_on_offer_once_whether_or_not_it_is_among_the_candidates(
    candidates: list[str] | None, names: set[str], inside: bool
) -> None:
    named = {"candidate_tools": candidates}
    row = dialog(SAID, RESULT, SAID, **({"metadata": named} if inside else named))
    offered = [tool.name for tool in sage_sft.read(row).tools]
    assert sorted(offered) == sorted(names)
    orders = {
        tuple(tool.name for tool in sage_sft.read({**row, "dialog_id": f"sft_{n}"}).tools)
        for n in range(40)
    }
    # in some dialogs every tool comes first: the place does not tell which one is the target
    assert {order[0] for order in orders} == names


@pytest.mark.parametrize("given", [{}, "{}", {"city": "Oslo"}, '{"city": "Oslo"}', None, ...])
def test_arguments_are_unknown_only_where_a_result_comes_without_any(given: object) -> None:
    result = RESULT if given is ... else {**RESULT, "arguments": given}
    record = sage_sft.read(dialog(SAID, result, SAID))
    (turn, call), *_ = [
        (n, one) for n, message in enumerate(record.messages) for one in message.calls
    ]
    is_known = given is not ... and given is not None
    assert call.arguments == ({"city": "Oslo"} if "Oslo" in str(given) else {})
    expected = Gold((GoldCall(call.name, ANY_ARGUMENTS),))
    assert record.gold == ({} if is_known else {turn: expected})
