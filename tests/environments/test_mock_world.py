"""Tools that a model stands for: what is asked, what is checked, and what is answered again."""

import json

import pytest

from agentlite.core.records import Call
from agentlite.environments.mock_world import NO_RESULT, MockWorld, read_mock_tools
from agentlite.environments.simulators import SimulatorReply


def tool(name, parameters=None, **more):
    properties = {key: {"type": kind} for key, kind in (parameters or {}).items()}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


STOCK = {"type": "object", "properties": {"left": {"type": "integer"}}, "required": ["left"]}
TOOLS = [
    tool("get_stock", {"item": "string"}, description="How many are left.", returns=STOCK),
    tool("buy", {"item": "string"}),
    tool("list_items"),
]
APPLE = Call("get_stock", {"item": "apple"})
BUY = Call("buy", {"item": "apple"})


@pytest.fixture
def world():
    one = MockWorld()
    one.reset({"tools": TOOLS, "world": "A shop.", "user_turns": ["More."], "gold": None})
    return one


def reply(text, **more):
    return SimulatorReply("", text, **more)


def called(world, call, *texts):
    """The result, and the questions that were asked."""
    asking, asked, left = world.call(call), [], list(texts)
    try:
        question = next(asking)
        while True:
            asked.append(question)
            question = asking.send(reply(left.pop(0)))
    except StopIteration as done:
        assert not left
        return done.value, asked


def test_a_question_has_the_tool_the_world_and_the_calls_so_far(world):
    (result, [first]) = called(world, APPLE, '{"left": 2}')
    assert result == ('{"left": 2}', False, False, False)
    assert [one["role"] for one in first.messages] == ["system", "user"]
    system, asked = (one["content"] for one in first.messages)
    for part in ("get_stock", "How many are left.", "A shop.", json.dumps(STOCK)):
        assert part in system
    assert "list_items" not in system and "(none)" in asked
    assert asked.endswith('{"name": "get_stock", "arguments": {"item": "apple"}}')
    called(world, BUY, "Bought.")
    _, [last] = called(world, APPLE, '{"left": 1}')
    lines = last.messages[1]["content"].splitlines()
    assert [json.loads(line)["result"] for line in lines[1:3]] == ['{"left": 2}', "Bought."]


def test_an_equal_call_has_the_same_result_until_a_call_writes(world):
    first, _ = called(world, APPLE, '{"left": 2}')
    assert called(world, APPLE) == (first, [])
    called(world, Call("list_items", {}), '["apple"]')
    assert called(world, APPLE) == (first, [])
    called(world, BUY, "1 in the cart")
    again, asked = called(world, APPLE, '{"left": 1}')
    assert again.text == '{"left": 1}' and len(asked) == 1
    # a call that writes is done again
    assert called(world, BUY, "2 in the cart")[0].text == "2 in the cart"


def test_a_call_that_breaks_its_schema_asks_nothing_and_writes_nothing(world):
    first, _ = called(world, APPLE, '{"left": 2}')
    for call, reason in (
        (Call("get_stock", {}), "item"),
        (Call("get_stock", {"item": 3}), "3"),
        (Call("get_stock", {"item": "fig", "count": 2}), "count"),
        (Call("buy", {"item": 3}), "3"),
        (Call("sell", {}), "no tool sell. The tools: get_stock, buy, list_items."),
    ):
        result, asked = called(world, call)
        assert result.failed and result.text.startswith("Error: ") and reason in result.text
        assert asked == []
    assert called(world, APPLE) == (first, [])


def test_a_reply_that_cannot_be_used_is_asked_again_once_and_then_counted(world):
    result, asked = called(world, APPLE, "lots", '{"left": 2}')
    assert result == ('{"left": 2}', False, False, False) and world.faults == []
    assert asked[1].messages[:2] == asked[0].messages
    assert (
        asked[1].messages[2]["content"] == "lots" and "not JSON" in asked[1].messages[3]["content"]
    )
    called(world, BUY, "Bought.")
    result, asked = called(world, APPLE, '{"left": "two"}', "")
    assert result == (NO_RESULT, True, False, False) and len(asked) == 2
    assert world.faults == ["get_stock: it is empty"]
    # no result is not a result: the next call asks anew
    assert called(world, APPLE, '{"left": 1}')[0].text == '{"left": 1}'


@pytest.mark.parametrize(
    ("name", "more", "reads"),
    [
        ("get_stock", {}, True),
        ("shop.Search", {}, True),
        ("getaway", {}, False),
        ("buy", {}, False),
        ("get_stock", {"annotations": {"readOnlyHint": False}}, False),
        ("buy", {"annotations": {"readOnlyHint": True}}, True),
    ],
)
def test_a_tool_reads_by_what_it_says_or_by_its_first_word(name, more, reads):
    assert [only_reads for _, only_reads in read_mock_tools([tool(name, **more)])] == [reads]


def test_the_gold_is_scored_and_the_user_says_what_the_task_says():
    world = MockWorld()
    gold = [{"name": "buy", "arguments": {"item": "apple"}}]
    world.reset({"tools": TOOLS, "world": "", "user_turns": ["More."], "gold": gold})
    assert world.scores() == {"gold_calls": 0.0}
    before = world.state()
    called(world, APPLE, '{"left": 2}')
    assert world.state() == before  # it has read
    called(world, BUY, "Bought.")
    assert world.scores() == {"gold_calls": 1.0} and world.state() != before
    assert [world.next_user("") for _ in range(3)] == ["More.", None, None]
