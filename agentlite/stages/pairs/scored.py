"""Candidates with their total, and the conditions on their scores that say which are good."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import GOLD, Candidate
from agentlite.scoring.rewards import WEIGHTS, settle_weights, total
from agentlite.stages.pairs.stored import Stored

REWARD = "reward"  # the weighted total, beside the components that a condition can name
RIGHT = Condition("exact", ">=", 1.0)  # where the user has no condition


class Scored(NamedTuple):
    """A candidate at its line of the file, with its components and their total."""

    line: int
    candidate: Candidate
    scores: Mapping[str, float]

    def meets(self, conditions: Iterable[Condition]) -> bool:
        return all(condition.holds(self.scores[condition.name]) for condition in conditions)


def scored(stored: Stored) -> list[Scored]:
    """Those of the model that have a score."""
    names = {name for score in stored.scores.values() for name in score.components}
    weights = settle_weights(
        dict(stored.plan.settings.get("weights") or {}), stored.user_components
    )
    counted = {name: weight for name, weight in weights.items() if name in names}
    found = []
    for line, candidate in enumerate(stored.candidates, 1):
        score = stored.scores.get(candidate.key)
        if candidate.model != GOLD and score and not score.error:
            reward = total(score.components, counted)
            found.append(Scored(line, candidate, {**score.components, REWARD: reward}))
    return found


def settle_conditions(
    conditions: Sequence[Condition], candidates: Sequence[Scored], folder: Path, option: str
) -> Sequence[Condition]:
    """Those of the user; that an answer is exactly right where there are none. Raises UserError 2
    for a score that the candidates do not have.
    """
    names = list(candidates[0].scores) if candidates else [REWARD, *WEIGHTS]
    if not conditions and RIGHT.name not in names:
        raise UserError(
            "its prompts have no gold that says which candidates are right.",
            f"Say which are good enough: {option} '{REWARD}>=0.8'.",
            location=str(folder),
        )
    for condition in conditions:
        if condition.name not in names:
            raise UserError(
                f"its candidates have no score {condition.name}.",
                nearest(condition.name, names),
                location=option,
            )
    return conditions or (RIGHT,)
