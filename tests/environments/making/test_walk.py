"""agentlite.environments.making.walk: what a walk holds, a fresh world returns again."""

from random import Random

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.making.walk import (
    MOST_READ,
    MOST_TOLD,
    ODD,
    TRIES,
    PlannedCall,
    Walker,
    is_error,
)
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult

TASK = EnvironmentTask("t", (), {})


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
@pytest.mark.parametrize("seed", range(4))
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
