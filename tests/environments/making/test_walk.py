"""agentlite.environments.making.walk: what a walk holds, a fresh world returns again."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.making.values import KnownValue
from agentlite.environments.making.walk import (
    EMPTY,
    LED_TO,
    MOST_READ,
    MOST_TOLD,
    ODD,
    TRIES,
    PlannedCall,
    Walker,
    _is_empty,
    _next_tool,
    is_error,
)
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult

NAMES = ("look", "peek", "gaze", "count", "jam", "break_off")
TASK = EnvironmentTask("t", (), {})


class HalfDone:
    """A world in which some calls fail and change it all the same. `harm`: those that do."""

    def __init__(self, harm: tuple[str, ...]):
        self.harm = harm
        self.tools = tuple(Tool(name, f"Does {name}.") for name in NAMES)

    def reset(self, row: dict[str, Any]) -> None:
        self.touched = 0

    def state(self) -> dict[str, int]:
        return {"touched": self.touched}

    def call(self, call: Call) -> CallResult:
        self.touched += call.name in self.harm or call.name == "count"
        if call.name in ("jam", "break_off"):
            return CallResult("Error: it is stuck", failed=True)
        return CallResult(f'{{"touched": {self.touched}}}', failed=False)


@pytest.mark.parametrize("harm", [(), ("jam",), ("break_off",), ("jam", "break_off")], ids=str)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_fresh_world_returns_what_a_walk_has_made_though_calls_fail_half_done(harm, length):
    walker = Walker.__new__(Walker)
    walker.world = HalfDone(harm)
    walks = [walker.walk(TASK, length, Random(seed)) for seed in range(40)]
    made = [walk for walk in walks if walk]
    assert made
    for walk in made:
        assert len({one.call.name for one in walk}) == len(walk) == length  # none twice
        results, _ = walker.carry_out(TASK, [one.call for one in walk])
        assert [result.text for result in results] == [one.result for one in walk]


class ScriptedWorld:
    """A world whose tools return what `texts` says, by name; `count` alone changes it."""

    def __init__(self, texts, parameters=None):
        self.texts = texts
        self.tools = tuple(Tool(name, "", parameters or {}) for name in texts)
        self.calls, self.touched, self.stopped = [], 0, False

    def reset(self, row):
        self.calls, self.touched = [], 0

    def state(self):
        return {"touched": self.touched}

    def call(self, call):
        self.calls.append(call)
        self.touched += call.name == "count"
        return CallResult(self.texts[call.name], failed=False)

    def stop(self):
        self.stopped = True


def walker_of(world):
    walker = Walker.__new__(Walker)
    walker.world = world
    return walker


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("look", '{"a": 1}', True),
        ("look", "", False),
        ("look", '{"tweets": []}', False),
        ("count", "", True),
        ("look", "x" * MOST_TOLD, True),
        ("look", "x" * (MOST_TOLD + 1), False),
        ("count", "x" * (MOST_TOLD + 1), False),
        ("look", "Error", False),
        ("look", '{"success": false}', False),
    ],
)
def test_a_call_is_kept_that_succeeds_and_tells_or_changes_something_not_too_long(name, text, kept):
    world = ScriptedWorld({name: text})
    found = walker_of(world).walk(TASK, 1, Random(0))
    assert found == ([PlannedCall(Call(name, {}), text, {})] if kept else None)
    if not kept:
        assert len(world.calls) <= TRIES


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_call_returned_is_taken_by_another_unless_they_are_to_be_apart(apart):
    parameters = {"properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]}
    world = ScriptedWorld({"find": '{"order_id": 7}', "show": '{"shown": 1}'})
    world.tools = (Tool("find", ""), Tool("show", "", parameters))
    walks = [walker_of(world).walk(TASK, 2, Random(seed), apart) for seed in range(20)]
    found = [walk[1] for walk in walks if walk and walk[1].call.name == "show"]
    if apart:
        assert not [one for one in found if one.sources]
        return
    led = [one for one in found if one.sources]
    assert led
    for one in led:
        assert (one.call.arguments, one.sources, one.facts) == (
            {"order_id": 7},
            {"order_id": 0},
            {},
        )


class GuessingWorld(ScriptedWorld):
    """`book` takes a place, which nothing names; it changes the world. `places`: those that there
    are; any if None. `log`: all calls, in all fresh worlds.
    """

    def __init__(self, places):
        super().__init__({"book": '{"booked": 1}', "look": '{"a": 1}', "peek": '{"b": 2}'})
        unit, place = {"enum": ["night", "week"]}, {"type": "string"}
        schema = {"properties": {"unit": unit, "place": place}, "required": ["unit", "place"]}
        self.tools = (Tool("book", "", schema), *self.tools[1:])
        self.places, self.log = places, []

    def call(self, call):
        self.log.append(call)
        if call.name == "book" and self.places and call.arguments["place"] not in self.places:
            return CallResult("Error: no such place", failed=True)
        self.touched += call.name == "book"
        return CallResult(f'{{"{call.name}": {self.touched}}}', failed=False)


@pytest.mark.parametrize("places", [None, ("Emma",)])
@pytest.mark.parametrize("seed", range(20))
def test_a_guess_is_made_only_where_the_world_refuses_a_text_that_means_nothing(places, seed):
    world = GuessingWorld(places)
    walker = walker_of(world)
    found = walker.walk(TASK._replace(row={"title": "Emma"}), 2, Random(seed))
    booked = [call.arguments for call in world.log if call.name == "book"]
    odd = [arguments for arguments in booked if arguments["place"] == ODD]
    assert all(one["unit"] in ("night", "week") for one in booked)  # only a guess is tried
    if places is None:
        assert booked == odd and len(odd) <= 1  # the tool is not called again
        assert [one.call.name for one in found or ()].count("book") == 0
    else:
        assert {one["place"] for one in booked} <= {ODD, "Emma"}
    made = [one.call for one in found]
    assert [one.text for one in walker.carry_out(TASK, made)[0]] == [one.result for one in found]


class UndoingWalker(Walker):
    def undo(self, task, made):
        self.undone.append([one.call.name for one in made])


def test_each_call_that_is_not_kept_is_undone_and_no_other():
    """`jam` fails, and `mute` says nothing."""
    seen = set()
    for seed in range(20):
        world = ScriptedWorld({"look": '{"a": 1}', "jam": "Error: no", "mute": "", "peek": "b"})
        walker = UndoingWalker.__new__(UndoingWalker)
        walker.world, walker.undone = world, []
        found = walker.walk(TASK, 2, Random(seed))
        names = [call.name for call in world.calls]
        assert len(walker.undone) == len([name for name in names if name in ("jam", "mute")])
        made = [one.call.name for one in found or ()]
        assert found is None or all(undone == made[: len(undone)] for undone in walker.undone)
        seen.update(name for name in names if name in ("jam", "mute"))
    assert seen == {"jam", "mute"}


@pytest.mark.parametrize("length", [1, 3])
def test_so_many_calls_may_fail_for_each_that_is_to_succeed(length):
    world = ScriptedWorld({"jam": "Error: no"})
    assert walker_of(world).walk(TASK, length, Random(0)) is None
    assert len(world.calls) == length * TRIES


def test_a_place_has_the_values_of_the_task_and_is_another_behind_a_call_that_changes_it():
    walker = walker_of(ScriptedWorld({"count": "", "look": ""}))
    for row in ({"city": "Oslo"}, {"initial_config": {"city": "Oslo"}, "question": "Rome"}):
        task = TASK._replace(row=row)
        walker.begin(task)
        assert [one.value for one in walker.place(task).values] == ["Oslo", 0]
    behind = [walker.carry_out(TASK, calls)[1] for calls in ([], [Call("look")], [Call("count")])]
    assert behind[0] == behind[1] != behind[2]


def test_a_call_is_compared_with_the_world_as_it_was_before_it():
    """Behind one that has changed the world, one that does nothing is of no use."""
    world = ScriptedWorld({"count": "", "look": ""})
    assert {walker_of(world).walk(TASK, 2, Random(seed)) is None for seed in range(20)} == {True}


def test_a_user_has_to_say_what_no_output_gave():
    call = PlannedCall(Call("buy", {"item": "fig", "order_id": 7}), "", {"order_id": 0})
    assert call.facts == {"item": "fig"}


def test_a_tool_is_called_at_most_twice_and_one_that_an_output_leads_to_much_more_often():
    led = {"properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]}
    tools = (Tool("show", "", led), Tool("look", ""))
    pool, told, rng = [KnownValue(7, "order_id", 0)], [KnownValue(7, "order_id")], Random(0)
    drawn = Counter(_next_tool(tools, [], pool, rng).name for _ in range(900))
    assert drawn["show"] / drawn["look"] == pytest.approx(1 + LED_TO, rel=0.35)
    drawn = Counter(_next_tool(tools, [], told, rng).name for _ in range(900))
    assert drawn["show"] / drawn["look"] == pytest.approx(1, rel=0.2)
    for made, names in [
        (["show"], {"show", "look"}),
        (["show", "show"], {"look"}),
        (["show", "look", "show", "look"], {None}),
    ]:
        found = [_next_tool(tools, made, pool, rng) for _ in range(60)]
        assert {one and one.name for one in found} == names


def test_a_world_is_stopped_at_the_end_of_its_context():
    world = ScriptedWorld({"look": "x"})
    with walker_of(world) as walker:
        assert walker.tools == world.tools and not world.stopped
    assert world.stopped


@pytest.mark.parametrize(
    ("text", "failed", "error"),
    [
        ("fine", True, True),
        ("Error: no", False, True),
        ("No such file", False, True),
        ("The file was sent. Error", False, False),
        ("Sent.", False, False),
        ('{"error": "none left"}', False, True),
        ('{"last_ERROR": 3}', False, True),
        ('{"error": null, "errors": [], "error_count": 0, "error_text": ""}', False, False),
        ('{"success": false}', False, True),
        ('{"Valid": false}', False, True),
        ('{"success": true, "open": false}', False, False),
        ('{"success": null, "status": "", "ok": 0}', False, False),
        ('{"name": "Stock not found"}', False, True),
        ('["not found"]', False, False),
        ("3", False, False),
        (f'{{"text": "{"a" * (MOST_READ - 8)} unknown"}}', False, True),
        (f'{{"text": "{"a" * MOST_READ} unknown"}}', False, False),
    ],
)
def test_a_call_has_failed_where_its_world_or_its_result_says_so(text, failed, error):
    assert bool(is_error(CallResult(text, failed=failed))) is error


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        *((f" {text}\n", True) for text in EMPTY),
        ('{"a": {"b": [null, ""]}}', True),
        ('{"a": {"b": [null, 0]}}', False),
        ("false", False),
        ("nothing", False),
        ("{", False),
    ],
)
def test_a_result_is_empty_where_no_value_in_it_is_told(text, empty):
    assert _is_empty(text) is empty
