"""A plan for each kind of dialog, and what confirms it."""

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from agentlite.core.records import Call, Tool
from agentlite.environments.synthesis.blueprint import (
    KINDS,
    MOST_READ,
    PlannedCall,
    PlannedTurn,
    draft_blueprint,
    is_error,
)
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult

TEXT = {"type": "string"}


def tool(name, description, required=(), **properties):
    schema = {"type": "object", "properties": properties, "required": [*required]}
    return Tool(name, description, schema)


TOOLS = (
    tool("find", "Finds an order.", ["customer"], customer=TEXT, shop=TEXT),
    tool("cancel", "Cancels a delivery.", ["order_id"], order_id={"type": "integer"}),
    tool("mail", "Sends a letter.", ["to"], to={"enum": ["Anna", "Bo"]}),
    tool("weather", "Tells the weather.", ["city"], city=TEXT),
    tool("clock", "Shows the time."),
    tool("seek", "Finds some order."),
)
FIND = PlannedCall(Call("find", {"customer": "Anna", "shop": "Oslo"}), '{"order_id": 7}')
CANCEL = PlannedCall(Call("cancel", {"order_id": 7}), "cancelled", {"order_id": 0})
CLOCK = PlannedCall(Call("clock"), "noon")
MAIL = PlannedCall(Call("mail", {"to": "Anna"}), "sent")
WALKED = [FIND, CANCEL, CLOCK, *(replace(CLOCK, call=Call("clock", {"n": n})) for n in range(9))]
SEEDS = range(30)


class Scripted:
    """A search whose walk is known. `returned`, `state`: what a fresh world returns to some calls
    and where it is behind them; as the walk has it where they are None.
    """

    world = SimpleNamespace(tools=TOOLS)
    task = EnvironmentTask("t", (), {})

    def __init__(self, walked=WALKED, returned=None, state=None):
        self.walked, self.returned, self.state = walked, returned, state
        self.walks, self.carried = [], 0

    def walk(self, length, apart=False):
        self.walks.append((length, apart))
        return self.walked[:length] if len(self.walked) >= length else []

    def results(self, calls: Sequence[Call]):
        self.carried += 1
        known = {repr(one.call): one.result for one in self.walked}
        texts = (
            [known.get(repr(call), "Error: no") for call in calls]
            if self.returned is None
            else self.returned(calls)
        )
        state = "s" if self.state is None else self.state(calls)
        return texts, state


def seeded(search, seed):
    search = search or Scripted()
    search.rng = Random(seed)
    return search


def turns(kind, search=None, seed=0):
    return KINDS[kind](seeded(search, seed))


@pytest.mark.parametrize(
    ("returned", "state", "is_plan"),
    [
        (None, None, True),
        (lambda calls: [str(n) for n, _ in enumerate(calls)], None, False),
        (None, lambda calls: calls[0].name, False),
    ],
    ids=["in any order", "other results", "another state"],
)
def test_calls_are_parallel_only_if_a_world_does_the_same_in_the_other_order(
    returned, state, is_plan
):
    lengths = set()
    for seed in SEEDS:
        search = Scripted(returned=returned, state=state)
        found = turns("parallel", search, seed)
        ((length, apart),) = search.walks
        lengths.add(length)
        assert apart and search.carried == 2
        assert found == ((PlannedTurn(tuple(WALKED[:length]), together=True),) if is_plan else ())
    assert lengths == {2, 3}


def made(kind, search=None, seed=0, extra=1):
    return draft_blueprint(kind, seeded(search, seed), extra)


def test_a_plan_is_kept_if_a_fresh_world_returns_what_the_walk_has_seen():
    found = made("single", Scripted(state=lambda calls: f"behind {len(calls)}"))
    assert (found.kind, found.task, found.state) == ("single", "t", "behind 1")
    assert found.turns == (PlannedTurn((FIND,)),) and found.calls == [FIND]
    assert made("single", Scripted(returned=lambda calls: ["other"] * len(calls))) is None
    assert made("single", Scripted([])) is None


def test_what_is_refused_is_not_on_offer_nor_is_anything_like_it():
    for seed in SEEDS:
        found = made("no_tool", seed=seed, extra=3)
        assert len(found.offered) == 3 and not {"find", "seek"} & {*found.offered}
    assert made("no_tool", extra=0) is None  # no tool would be on offer
    # a tool that is called does what is refused
    like = replace(FIND, call=Call("seek"))
    for seed in SEEDS:
        assert made("missing_function", Scripted([FIND, like, like]), seed, extra=3) is None


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
