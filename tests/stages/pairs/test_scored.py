"""Which candidates have a total, and what it is made of."""

from pathlib import Path

import pytest

from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, Score
from agentlite.stages.pairs.earlier_candidates import Stored
from agentlite.stages.pairs.scored import RIGHT, Scored, scored, settle_conditions
from agentlite.workspace.run_folder import Plan


def candidate(sample: int, model: str = "m") -> Candidate:
    return Candidate("r", 1, "hermes", model, sample, "Yes.", "turn", 2)


def stored(weights: dict[str, float] | None) -> Stored:
    """In this order: the gold, two with scores, one whose reward failed, one without a score."""
    candidates = [candidate(0, GOLD), *(candidate(number) for number in range(4))]
    scores = [
        Score(*candidates[0].key, {"exact": 1.0, "mine": 1.0}),
        Score(*candidates[1].key, {"exact": 1.0, "mine": 0.5}),
        Score(*candidates[2].key, {"exact": 0.0, "mine": 0.25}),
        Score(*candidates[3].key, {"exact": 1.0, "mine": 1.0}, error="it failed"),
    ]
    settings = {} if weights is None else {"weights": weights}
    return Stored(
        Path("pairs"), candidates, {one.key: one for one in scores}, Plan("", settings, {})
    )


def test_only_a_candidate_of_the_model_whose_rewards_did_not_fail_has_a_total() -> None:
    found = scored(stored({"exact": 0.5, "mine": 2.0}))
    assert [(one.line, one.candidate.sample) for one in found] == [(2, 0), (3, 1)]
    assert [one.scores["reward"] for one in found] == pytest.approx([1.5, 0.5])
    assert found[0].scores == {"exact": 1.0, "mine": 0.5, "reward": pytest.approx(1.5)}


def test_without_weights_a_reward_of_the_user_weighs_1_and_what_nobody_scored_nothing() -> None:
    assert [one.scores["reward"] for one in scored(stored(None))] == pytest.approx([0.5, 0.25])


def test_a_candidate_meets_all_conditions_or_none() -> None:
    one = Scored(1, candidate(0), {"exact": 1.0, "reward": 0.5})
    at_least = Condition("reward", ">=", 0.5)
    assert one.meets([]) and one.meets([at_least]) and one.meets([RIGHT, at_least])
    assert not one.meets([RIGHT, Condition("reward", ">=", 0.51)])


def test_conditions_of_the_user_stand_in_for_being_right() -> None:
    candidates = scored(stored(None))
    mine = [Condition("mine", ">=", 0.3)]
    assert settle_conditions(mine, candidates, Path(), "--keep") == mine
    assert settle_conditions([], candidates, Path(), "--keep") == (RIGHT,)
    assert settle_conditions([], [], Path(), "--keep") == (RIGHT,)  # nothing was sampled
    with pytest.raises(UserError) as refused:
        settle_conditions([*mine, Condition("mien", ">=", 0.3)], candidates, Path(), "--desirable")
    assert refused.value.location == "--desirable" and "'mine'" in refused.value.fix
