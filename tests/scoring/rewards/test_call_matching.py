"""Which call is assigned to which expected one, how well it fits, and the default weights."""

import re

import pytest
from support.samples import ROOT

from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Parsed, Tool
from agentlite.scoring.rewards import WEIGHTS, Attempt, TraceStep, score_attempt
from agentlite.scoring.rewards.call_matching import uses


def test_the_default_weights_are_those_of_the_documentation():
    text = (ROOT / "docs/rewards.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (-?[\d.]+) \|", text, re.MULTILINE)
    assert {name: float(weight) for name, weight in rows if name in WEIGHTS} == WEIGHTS
    assert WEIGHTS["task_completion"] == 0.40 and WEIGHTS["timeout"] == -0.5


def test_where_the_gold_has_a_number_of_steps_it_goes_before_five():
    tool = Tool("f", "", {"type": "object"})
    call = Call("f", {})
    steps = tuple(TraceStep(Call("f", {"x": n}) if n else call, True) for n in range(4))
    for optimal, efficiency in ((None, 1.0), (3, 3 / 4), (2, 1 / 2)):
        gold = Gold((GoldCall("f", {}),), optimal)
        found = score_attempt(Attempt(Parsed("Done."), gold, (tool,), trace=steps))
        assert found.components["efficiency"] == pytest.approx(efficiency)


@pytest.mark.parametrize(
    ("expected", "made", "taken"),
    [
        (["*"], ["f"], ["f"]),
        (["f", "*"], ["f", "g"], ["f", "g"]),  # f is spoken for
        (["*", "g"], ["f", "g"], ["f", "g"]),
        (["g", "*"], ["f", "g"], ["f", "g"]),
        (["f", "*"], ["f", "f"], ["f", "f"]),  # the second f is not
        (["*", "*"], ["g", "f"], ["f", "g"]),
        (["f", "*"], ["f"], ["*", "f"]),
        (["*"], ["no_such_tool"], ["*"]),
        (["f", "*"], ["no_such_tool", "f"], ["*", "f"]),
        (["*"], [], ["*"]),
    ],
)
def test_any_tool_stands_for_a_tool_on_offer_that_no_other_expected_call_names(
    expected, made, taken
):
    tools = [Tool(name, "", {"type": "object"}) for name in ("f", "g")]
    gold = [GoldCall(ANY_TOOL if name == "*" else name, {}) for name in expected]
    found = uses(gold, [Call(name, {"n": n}) for n, name in enumerate(made)], tools)
    names = [one.name for use in found.values() for one in use.expected]
    assert sorted("*" if name == ANY_TOOL else name for name in names) == taken
