"""A row of trajectories.jsonl is a record: what failed is shown and not learned."""

import pytest

from agentlite.core.errors import RowError
from agentlite.data.curation.validate import validate
from agentlite.data.formats import detected, to_record

TOOL = {"type": "function", "function": {"name": "buy", "parameters": {"type": "object"}}}


def turn(*results, ended="turn", problem=""):
    return {"text": "x", "ended": ended, "new_tokens": 1, "results": results, "problem": problem}


def called(name="buy", id="a"):
    function = {"name": name, "arguments": "{}"}
    made = [{"id": id, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(text, id="a"):
    return {"role": "tool", "tool_call_id": id, "content": text}


USER, WORDS = {"role": "user", "content": "Buy it."}, {"role": "assistant", "content": "Done."}


def row(messages, turns, ended="user", **rest):
    known = {"task": "one", "sample": 2, "split": "", "scores": {"env": 1.0}, "problem": ""}
    return {**known, "messages": messages, "tools": [TOOL], "turns": turns, "ended": ended, **rest}


def learned(value):
    record = to_record(value)
    validate(record)
    return [record.messages[turn].loss for turn in record.turns]


def test_a_rollout_is_its_dialog_with_its_scores_and_its_split():
    value = row([USER, called(), result("1"), WORDS], [turn(["1", False]), turn()], split="dev")
    assert detected(value) == "trajectory" and learned(value) == [True, True]
    record = to_record(value)
    assert (record.split, len(record.messages)) == ("dev", 4)
    assert record.meta["rollout"] == {
        "task": "one",
        "sample": 2,
        "scores": {"env": 1.0},
        "ended": "user",
    }


@pytest.mark.parametrize(
    "failed",
    [turn(["Error: no such item", True]), turn(ended="cut"), turn(problem="no JSON")],
    ids=["a call", "cut", "unreadable"],
)
def test_a_turn_that_failed_is_not_learned(failed):
    messages = [USER, called(), result("x"), called(id="b"), result("1", "b"), WORDS]
    assert learned(row(messages, [failed, turn(["1", False]), turn()])) == [False, True, True]
    # several calls in a turn: one that failed is enough
    messages = [USER, called(), result("x"), WORDS]
    failed = turn(["1", False], ["Error", True])
    assert learned(row(messages, [failed, turn()])) == [False, True]


def test_a_call_of_a_tool_that_is_not_there_is_shown_but_must_have_failed():
    messages = [USER, called("bye"), result("Error: no tool bye"), WORDS]
    assert learned(row(messages, [turn(["Error", True]), turn()])) == [False, True]
    with pytest.raises(RowError, match="E209"):
        learned(row(messages, [turn(["1", False]), turn()]))


@pytest.mark.parametrize("ended", ["user", "turns", "length"])
def test_what_comes_behind_the_last_turn_of_the_model_is_left_out(ended):
    value = row([USER, called(), result("1")], [turn(["1", False])], ended)
    assert learned(value) == [True]
    assert [message.role for message in to_record(value).messages] == ["user", "assistant"]
    value = row([USER, WORDS, USER], [turn()], ended)
    assert [message.role for message in to_record(value).messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("value", "code", "reason"),
    [
        (row([USER, WORDS], [turn()], "world", problem="it died"), "F313", "it died"),
        (row([USER, WORDS], [turn()], "unwritten"), "F313", "unwritten"),
        (row([USER, WORDS], [turn(ended="cut")]), "F313", "no turn"),
        (row([USER], [], "length"), "F313", "no turn"),
        (row([USER, WORDS], [{**turn(), "offered": ["buy"]}]), "F313", "tools on offer changed"),
        (row([USER, WORDS], [turn(), turn()]), "E201", "1 assistant messages, but 2 turns"),
        (row([USER, WORDS], 3), "E201", "turns"),
        (row([USER, WORDS], [turn()], scores={"env": "1"}), "E201", "scores"),
    ],
)
def test_what_cannot_be_learned_has_its_reason(value, code, reason):
    with pytest.raises(RowError) as found:
        to_record(value)
    assert found.value.code == code and reason in found.value.reason
