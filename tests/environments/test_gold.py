"""The gold as a model: its rollouts have BFCL's verdict, and each of its calls its own turn."""

import pytest
from support.examples import ALL

from agentlite.environments.registry import environment
from agentlite.environments.rollout import RolloutSetup, gold_answers, roll
from agentlite.environments.world import WorldLimits
from agentlite.rendering import choose
from agentlite.scoring.metrics.bfcl import MULTI_TURN
from agentlite.workspace.input_files import load_template

EVERY = 1 if ALL else 10


@pytest.mark.long
@pytest.mark.parametrize("category", [*MULTI_TURN][:2])
def test_the_gold_of_bfcl_is_right_by_its_own_verdict(category):
    """With its own tools alone on offer, and each call written and read in a protocol."""
    template = load_template("smollm2-135m")
    protocol = choose("hermes", template).protocols["hermes"]
    acting = environment(f"bfcl:{category}", extra_tools=0)
    tasks = list(acting.tasks())[::EVERY]
    setup = RolloutSetup(acting, protocol, template, 10**6, 20, WorldLimits(60.0))
    answers = gold_answers(tasks, protocol, template)
    done = list(roll(setup, [(task, 0) for task in tasks], answers, 8))
    assert len(done) == len(tasks)
    assert not [one.task for one in done if one.scores["bfcl"] != 1.0]
    # functions that are held back come later, and each turn says what was on offer
    for one in done:
        offered = [len(one.tools_at(turn)) for turn in one.turns]
        if category == "multi_turn_miss_func":
            assert offered == sorted(offered) and offered[0] < offered[-1] == len(one.tools)
        else:
            assert {*offered} == {len(one.tools)} and one.turns[0].offered is None
