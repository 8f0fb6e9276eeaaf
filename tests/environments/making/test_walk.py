"""agentlite.environments.making.walk: what a walk holds, a fresh world returns again."""

from random import Random

import pytest

from agentlite.core.records import Call, Tool
from agentlite.environments.making.walk import (
    MOST_READ,
    MOST_TOLD,
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
        ("look", '{"success": false}', False),
    ],
)
def test_a_call_is_kept_that_succeeds_and_tells_or_changes_something_not_too_long(name, text, kept):
    world = ScriptedWorld({name: text})
    found = walker_of(world).walk(TASK, 1, Random(0))
    assert found == ([PlannedCall(Call(name, {}), text, {})] if kept else None)
    if not kept:
        assert len(world.calls) <= TRIES


@pytest.mark.parametrize(
    ("text", "failed", "error"),
    [
        ("fine", True, True),
        ("Error: no", False, True),
        ("No such file", False, True),
        ('{"error": "none left"}', False, True),
        ('{"error": null, "errors": [], "error_count": 0, "error_text": ""}', False, False),
        ('{"success": false}', False, True),
        ('{"success": true, "open": false}', False, False),
        ('{"name": "Stock not found"}', False, True),
        (f'{{"text": "{"a" * (MOST_READ - 8)} unknown"}}', False, True),
        (f'{{"text": "{"a" * MOST_READ} unknown"}}', False, False),
    ],
)
def test_a_call_has_failed_where_its_world_or_its_result_says_so(text, failed, error):
    assert bool(is_error(CallResult(text, failed=failed))) is error
