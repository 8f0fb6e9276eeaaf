"""Rollouts of a task -> weights of what they earn, and what each turn earns beside the others."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal

from agentlite.environments.trajectories import COUNTED, LOST, ModelTurn, Trajectory
from agentlite.scoring.rewards import settle_weights

TurnCredit = Literal["turn", "state"]
EPSILON = 1e-4  # TRL adds it to a standard deviation


def rollout_weights(names: Iterable[str], changed: Mapping[str, float]) -> dict[str, float]:
    """Each score of the environment weighs 1 and what is counted 0, unless `changed`. Raises
    UserError 2.
    """
    defaults = dict.fromkeys(names, 1.0) | dict.fromkeys(COUNTED, 0.0)
    return settle_weights(changed, defaults=defaults, penalties=COUNTED)


def turn_advantages(
    group: Sequence[Trajectory], weights: Mapping[str, float], credit: TurnCredit, scaled: bool
) -> list[list[float]]:
    """For each rollout of a task, the advantage of each of its turns.

    A turn's return is what its rollout earns from there on: the scores at the end, and what is
    counted at this turn and later. `turn` compares it with the returns of the same turn in the
    other rollouts. `state` compares it with those of all turns of the group that began in the same
    state, and adds the advantage of the whole rollout (GiGPO, arXiv 2505.10978, without a
    discount). `scaled`: divided by the standard deviation of what is compared. A rollout that
    was lost is not compared: its advantages are 0.
    """
    returns = [_returns(one, weights) if one.ended not in LOST else [] for one in group]
    if credit == "turn":
        steps = _compared(returns, [[*range(len(of))] for of in returns], scaled)
    else:
        states = [[turn.state for turn in one.turns] for one in group]
        alike = _compared(returns, states, scaled)
        wholes = _compared([of[:1] for of in returns], [[""] for _ in group], scaled)
        steps = [[whole[0] + step for step in of] for whole, of in zip(wholes, alike, strict=True)]
    return [of or [0.0] * len(one.turns) for of, one in zip(steps, group, strict=True)]


def _returns(one: Trajectory, weights: Mapping[str, float]) -> list[float]:
    """What is earned from each turn on; that of the first is the total."""
    earned = sum(weight * one.scores.get(name, 0.0) for name, weight in weights.items())
    returns = []
    for turn in reversed(one.turns):
        earned += sum(weights.get(name, 0.0) * count for name, count in _counted(turn).items())
        returns.append(earned)
    return returns[::-1]


def _counted(turn: ModelTurn) -> dict[str, int]:
    failed = sum(failed for _, failed in turn.results)
    return {"turns": 1, "calls": len(turn.results), "failed_calls": failed}


def _compared(
    values: Sequence[Sequence[float]], keys: Sequence[Sequence[Hashable]], scaled: bool
) -> list[list[float]]:
    """Each value less the mean of those with its key."""
    alike: dict[Hashable, list[float]] = defaultdict(list)
    for of_one, keys_of_one in zip(values, keys, strict=True):
        for value, key in zip(of_one, keys_of_one, strict=False):
            alike[key].append(value)
    means = {key: fmean(found) for key, found in alike.items()}
    scales = {
        key: stdev(found) + EPSILON if scaled and len(found) > 1 else 1.0
        for key, found in alike.items()
    }
    return [
        [
            (value - means[key]) / scales[key]
            for value, key in zip(of_one, keys_of_one, strict=False)
        ]
        for of_one, keys_of_one in zip(values, keys, strict=True)
    ]
