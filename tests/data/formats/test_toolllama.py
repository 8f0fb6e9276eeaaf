"""agentlite.data.formats.toolllama: chains of thought, action and input, of which only the last
step trains.
"""

import pytest
from support.damaged_rows import Row, refused, rows

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.validate import validate
from agentlite.data.formats import toolllama
from agentlite.rendering.protocols.toolllama import FINISH

ROWS = rows("toolllama")
TEA = Tool(
    "find_tea_for_shop",
    "Finds a baker's or tea seller's wares.",
    {
        "type": "object",
        "properties": {
            "filter": {"type": "object", "description": "what to look for"},
            "limit": {"type": "integer"},
        },
        "optional": ["limit"],
        "required": ["filter"],
    },
)
HOURS = Tool("hours_for_shop", "", {"type": "object", "properties": {}, "optional": []})
OWN_FINISH = Tool(
    "Finish",
    "Call it at the end.",
    {
        "type": "object",
        "properties": {
            "return_type": {"type": "string", "enum": ["give_answer", "give_up_and_restart"]},
            "final_answer": {"type": "string"},
        },
        "required": ["return_type"],
    },
)
SHOP = {"about_tools": "1.shop: A tea seller's shop."}
LOOK = Call("find_tea_for_shop", {"filter": {"种类": ["绿茶"]}, "limit": 2}, "call_0")
EXPECTED = [
    Record(
        messages=(Message("user", "有绿茶吗？"), Message("assistant", "先看看。", (LOOK,))),
        tools=(TEA, HOURS, OWN_FINISH),
        meta={"source_id": "Step 1: 有绿茶吗？", **SHOP},
    ),
    Record(
        messages=(
            Message("user", "有绿茶吗？"),
            Message("assistant", "先看看。", (LOOK,), loss=False),
            Message(
                "tool", '{"error": "", "response": "[{\'name\': \'龙井\'}]"}', call_id="call_0"
            ),
            Message("assistant", "", (Call("hours_for_shop", {}, "call_1"),), loss=False),
            Message("tool", '{"error": "", "response": "9-17"}', call_id="call_1"),
            Message(
                "assistant",
                "done",
                (
                    Call(
                        "Finish",
                        {"return_type": "give_answer", "final_answer": "有龙井。\n9-17"},
                        "call_2",
                    ),
                ),
            ),
        ),
        tools=(TEA, HOURS, OWN_FINISH),
        meta={"source_id": "Step 3: 有绿茶吗？", **SHOP},
    ),
    Record(
        messages=(
            Message("system", "You sell tea.\n\nBe brief."),
            Message("user", "When is it open?"),
            Message(
                "assistant",
                "I can't tell.",
                (Call("Finish", {"return_type": "give_up_and_restart"}, "call_0"),),
            ),
        ),
        tools=(HOURS, FINISH),
        meta={"source_id": "Step 2: tea"},
    ),
    Record(
        messages=(Message("user", "Hello"), Message("assistant", "There is nothing to look up.")),
        tools=(TEA, HOURS, OWN_FINISH),
        meta={"source_id": "Step 1: plain", **SHOP},
    ),
    Record(
        messages=(
            Message(
                "user", "Pick the next action. \nThe thought of this step is:\nI look for tea."
            ),
            Message(
                "assistant",
                "",
                (Call("find_tea_for_shop", {"filter": {"name": "baker's"}}, "call_0"),),
            ),
        ),
        tools=(TEA, FINISH),
        meta={"extra": {"subset": "caller"}},
    ),
    Record(
        messages=(
            Message("user", "The conversation so far: the shop has 龙井. Conclude."),
            Message("assistant", "It has 龙井."),
        )
    ),
    Record(
        messages=(
            Message("system", "You plan."),
            Message("user", "Is there tea?"),
            Message("assistant", "I look for tea. Next: caller."),
        )
    ),
]


@pytest.mark.parametrize(("row", "expected"), list(zip(ROWS, EXPECTED, strict=True)))
def test_a_chain_is_read_as_its_steps_and_its_list_of_apis_as_tools(
    row: Row, expected: Record
) -> None:
    assert toolllama.fits(row)
    assert toolllama.read(row) == expected
    validate(expected)


def test_a_row_without_a_list_may_call_finish() -> None:
    record = toolllama.read(
        chain('Action: Finish\nAction Input: {"return_type": "give_up_and_restart"}', system="")
    )
    assert record.tools == (FINISH,)
    validate(record)


def chain(
    answer: object, *, system: object = "You have access to the following APIs: [{'name': 'f'}]"
) -> Row:
    said = [("system", system), ("user", "q"), ("assistant", answer)]
    return {
        "conversations": [
            {"from": speaker, "value": value} for speaker, value in said if value != ""
        ]
    }


BAD: list[tuple[str, Row]] = [
    ("E201", {"conversations": {}}),
    ("E201", {}),
    ("E202", {"conversations": [{"from": "critic", "value": "x"}]}),
    ("E202", {"conversations": [{"from": "function_call", "value": "{}"}]}),
    ("E202", {"conversations": ["x"]}),
    ("E216", chain(3)),
    ("E206", chain("Action: f\nAction Input: {'a': ")),
    ("E206", chain("Action: f\nAction Input: {} and more")),
    ("E206", chain("Action:\nAction Input: {}")),
    ("E208", chain("Action: f\nAction Input: [1]")),
    ("E116", chain('Action: f\nAction Input: {"a": NaN}')),
    ("E214", chain("Thought: I call f.\nAction: f")),
    ("E214", chain("Action Input: {}\nAction: f\nAction Input: {}")),
    ("E214", chain("Observation: 4\nAction: f\nAction Input: {}")),
    ("E124", chain("x", system="You have access to the following APIs: [{'name': 'f'")),
    ("E124", chain("x", system="You have access to the following APIs: [f()]")),
    ("E212", chain("x", system="You have access to the following APIs: [{'description': 'f'}]")),
    (
        "E211",
        chain(
            "x", system="You have access to the following APIs: [{'name': 'f', 'parameters': 'g'}]"
        ),
    ),
]


@pytest.mark.parametrize(("code", "row"), BAD)
def test_a_row_that_cannot_be_taken_says_why(code: str, row: Row) -> None:
    assert refused(lambda: toolllama.read(row)) == code


def test_a_call_of_an_api_that_is_not_listed_is_invalid() -> None:
    assert refused(lambda: validate(toolllama.read(chain("Action: g\nAction Input: {}")))) == "E209"


@pytest.mark.parametrize("whole", [True, False])
def test_a_chain_in_one_text_is_learned_whole_and_one_of_rows_at_its_last_step(
    whole: bool,
) -> None:
    step = 'Thought: Look.\nAction: hours_for_shop\nAction Input: {"n": %d}'
    first, last = step % 1, step % 2
    row = {**ROWS[1]}
    system = row["conversations"][0]
    turns = [{"from": "user", "value": "Is it open?"}]
    if whole:
        turns += [
            {"from": "assistant", "value": f"{first}\nObservation: 9\n{last}\nObservation: 17"}
        ]
    else:
        turns += [
            {"from": "assistant", "value": first},
            {"from": "function", "value": "9"},
            {"from": "assistant", "value": last},
        ]
    record = toolllama.read({**row, "conversations": [system, *turns]})
    calls = [message for message in record.messages if message.calls]
    assert [message.calls[0].arguments for message in calls] == [{"n": 1}, {"n": 2}]
    assert [message.loss for message in calls] == [whole, True]
