"""agentlite.environments.making.mock_walk: arguments and results that a model makes up."""

import json
from random import Random

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.making.mock_walk import (
    CALLS_IN_A_REPLY,
    MISFIT,
    MockWalker,
    _kind,
    _list_in,
)
from agentlite.environments.making.values import KnownValue
from agentlite.environments.making.walk import PlannedCall, WorldState
from agentlite.environments.mock_world import MockWorld
from agentlite.environments.simulators import SimulatorReply
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import WorldError

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def wire(name, parameters=None):
    return {"type": "function", "function": {"name": name, "parameters": parameters or {}}}


ROW = {"tools": [wire("buy", NUMBER), wire("look")], "world": "", "user_turns": [], "gold": None}


class Made:
    """An environment of one mock world, and the replies to its questions, in order."""

    def __init__(self, *replies, world="", seed=3, count=2):
        self.replies, self.asked = [*replies], []
        self.task = EnvironmentTask("t", (), {**ROW, "world": world})
        self.walker = MockWalker(self, self.ask, count, seed)
        self.walker.begin(self.task)

    def world(self):
        return MockWorld()

    def ask(self, question):
        self.asked.append(question)
        reply = self.replies.pop(0)
        return reply if isinstance(reply, SimulatorReply) else SimulatorReply("", reply)


def test_arguments_are_those_of_a_reply_that_fit_and_each_reply_has_a_seed_of_its_own():
    made = Made('Here: [{"n": 4}, {"n": "x"}, 5, {}]', '[{"n": 6}]', world="A shop.")
    buy = made.walker.tools[0]
    assert {name: one.value for name, one in made.walker.arguments(buy, [], Random(0)).items()} == {
        "n": 4
    }
    made.walker.arguments(buy, [], Random(1))
    first, second = made.asked
    assert {dict(one.sampling)["seed"] for one in (first, second)} == {3000, 3001}
    text = first.messages[0]["content"]
    assert "The world: A shop." in text and f"arguments of {CALLS_IN_A_REPLY} calls" in text
    assert '"buy"' in text and made.walker.faults == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [('[{"n": "x"}]', "arguments that do not fit"), ("none", "no list of arguments")],
)
def test_a_reply_without_arguments_that_fit_is_counted_and_the_schema_asked_instead(text, fault):
    made = Made(text)
    chosen = made.walker.arguments(made.walker.tools[0], [], Random(0))
    assert isinstance(chosen["n"].value, int) and made.walker.faults == [fault]


def test_what_only_its_type_suggests_is_no_argument():
    made = Made(*["none"] * 21)
    named = Tool("go", "", {"properties": {"place": {"type": "string"}}, "required": ["place"]})
    assert made.walker.arguments(named, [KnownValue("Emma", "title")], Random(0)) is None
    pool = [KnownValue("Oslo", "place")]
    drawn = [made.walker.arguments(named, pool, Random(seed)) for seed in range(20)]
    assert {one["place"].value for one in drawn if one} == {"Oslo"}


def test_a_walk_tries_three_calls_for_each_that_succeeds():
    made = Made(*[""] * 6)
    made.task.row["tools"] = [wire("look")]
    assert made.walker.walk(made.task, 1, Random(0)) is None
    assert len(made.asked) == 6  # each is asked twice
    assert made.walker.faults == ["result: it is empty"] * 3


def test_a_tool_without_parameters_asks_for_no_arguments():
    made = Made()
    assert made.walker.arguments(made.walker.tools[1], [], Random(0)) == {}
    assert made.asked == []


def test_a_call_that_is_not_kept_is_not_shown_to_the_model_again():
    made = Made("one", "two", "one", "three")
    kept = PlannedCall(Call("buy", {"n": 1}), "one")
    assert made.walker.call(kept.call).text == "one"
    assert made.walker.call(Call("buy", {"n": 2})).text == "two"
    made.walker.undo(made.task, [kept])
    made.walker.call(Call("buy", {"n": 3}))
    shown = made.asked[-1].messages[1]["content"]
    assert '"n": 1' in shown and '"n": 2' not in shown and '"n": 3' in shown


def test_a_place_has_the_values_of_the_world_and_is_always_the_same():
    made = Made(world='{"city": "Oslo"}')
    place = made.walker.place(made.task)
    assert (place.digest, [one.value for one in place.values]) == ("", ["Oslo"])
    before = WorldState("", [])
    assert made.walker.place(made.task, before) is before
    assert [*Made(world="A shop.").walker.place(Made(world="A shop.").task).values] == []


def test_a_question_that_nobody_answers_ends_the_walk_and_a_useless_reply_is_counted_by_kind():
    with pytest.raises(WorldError, match="the server is gone"):
        Made(SimulatorReply("", "", problem="the server is gone")).walker.call(Call("look", {}))
    made = Made("", "")
    assert made.walker.call(Call("look", {})).failed
    assert made.walker.faults == ["result: it is empty"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[{"a": 1}]', [{"a": 1}]),
        ('So:\n```json\n[{"a": [1]}, 2]\n```', [{"a": [1]}]),
        ("[1, 2]", []),
        ('{"a": 1}', []),
        ("[", []),
        ("", []),
    ],
)
def test_the_objects_of_a_list_are_found_whatever_stands_around_it(text, found):
    assert _list_in(text) == found


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("look: it is not JSON: x: y", "result: it is not JSON"),
        ("look: it is cut off", "result: it is cut off"),
        ("look: n: it is empty", MISFIT),
        (json.dumps({"a": 1}), MISFIT),
    ],
)
def test_a_fault_is_counted_by_its_kind(fault, kind):
    assert _kind(fault) == kind
