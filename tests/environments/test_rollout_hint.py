"""`--hint gold`: the model reads which right calls are left; what is kept does not have them."""

import json

import pytest
from support.shop import shop, tasks

from agentlite.environments import bfcl_tasks
from agentlite.environments.kinds import environment
from agentlite.environments.rollout import HINT, NO_HINT, RolloutAnswer, RolloutSetup, roll
from agentlite.environments.trajectories import Trajectory
from agentlite.environments.world import WorldLimits
from agentlite.rendering import choose

pytestmark = pytest.mark.long  # a process for each world
BEFORE = HINT.partition("{")[0]


def due(prompt):
    """The calls in the hint; None where it says that none is left."""
    words = [one.content for one in prompt.opened.record.messages if one.role == "user"]
    assert all(BEFORE not in text and NO_HINT not in text for text in words[:-1])
    if words[-1].endswith(NO_HINT):
        return []
    return json.JSONDecoder().raw_decode(words[-1].partition(BEFORE)[2])[0]


def obedient(prompts):
    """Knows nothing but the hint."""
    for index, prompt in enumerate(prompts):
        left = due(prompt)
        text = f"<tool_call>\n{json.dumps(left[0])}\n</tool_call>" if left else "Done."
        yield RolloutAnswer(index, text, "turn", 3, (1, 2, 3))


def rolled(made, smollm2, chosen, answers=obedient, earlier=()):
    protocol = choose("hermes", smollm2).protocols["hermes"]
    setup = RolloutSetup(made, protocol, smollm2, 10**6, 20, WorldLimits(60.0), hint=True)
    return list(roll(setup, [(task, 0) for task in chosen], dict(earlier), answers, 4))


@pytest.mark.parametrize("category", ["multi_turn_base", "multi_turn_miss_func"])
def test_who_knows_the_hint_alone_does_bfcl_right(smollm2, category):
    made = environment(f"bfcl:{category}", extra_tools=1)
    chosen = list(made.tasks())[:4]
    done = [one for one in rolled(made, smollm2, chosen) if isinstance(one, Trajectory)]
    assert [one.scores["bfcl"] for one in done] == [1.0] * 4
    assert category in bfcl_tasks.CATEGORIES


@pytest.fixture
def made(tmp_path):
    search, buy = (
        {"name": name, "arguments": {key: "apple"}}
        for name, key in (("search", "query"), ("buy", "item"))
    )
    rows = tasks()[:1]
    rows[0]["gold"] = [[search, buy, buy], [buy]]
    return shop(tmp_path, rows)


def test_the_calls_that_are_left_are_shown_and_nothing_of_it_is_kept(made, smollm2):
    seen = []

    def listening(prompts):
        seen.extend([one["name"] for one in due(prompt)] for prompt in prompts)
        yield from obedient(prompts)

    rows = rolled(made, smollm2, made.tasks(), listening)
    (done,) = [one for one in rows if isinstance(one, Trajectory)]
    # an equal call is left as often as it was not made; the second turn of the user's begins anew
    assert seen == [["search", "buy", "buy"], ["buy", "buy"], ["buy"], [], ["buy"], []]
    kept = json.dumps([done.messages, [turn.text for turn in done.turns]])
    assert "A note" not in kept and done.messages[0]["content"] == "Buy a apple."
    assert all(turn.ids == () == turn.prompt_ids for turn in done.turns)
    # stopped at any turn, it sees the same
    for turns in range(len(done.turns)):
        seen.clear()
        earlier = {done.key: done.turns[:turns]}
        again = rolled(made, smollm2, made.tasks(), listening, earlier)
        assert [one for one in again if isinstance(one, Trajectory)] == [done]
        assert len(seen) == len(done.turns) - turns
