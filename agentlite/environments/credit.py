"""Rollouts of a task -> what each turn earns beside the others."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from agentlite.environments.rollout_rewards import BY_TURN, counted_at
from agentlite.environments.trajectories import Trajectory

TurnCredit = Literal["turn", "state"]
EPSILON = 1e-4  # TRL adds it to a standard deviation


class EarnedRollout(NamedTuple):
    """A rollout with its components; None where it has none: its world was lost, or a reward of the
    user's failed.
    """

    rollout: Trajectory
    components: Mapping[str, float] | None


def turn_advantages(
    group: Sequence[EarnedRollout], weights: Mapping[str, float], credit: TurnCredit, scaled: bool
) -> list[list[float]]:
    """For each rollout of a task, the advantage of each of its turns.

    A turn's return is what its rollout earns from there on: what is counted at this turn and later,
    and every other component at the end. `turn` compares it with the returns of the same turn in
    the other rollouts. `state` compares it with those of all turns of the group that began in the
    same state, and adds the advantage of the whole rollout (GiGPO, arXiv 2505.10978, without a
    discount). `scaled`: divided by the standard deviation of what is compared. A rollout without
    components is not compared: its advantages are 0.
    """
    returns = [_returns(one, weights) for one in group]
    if credit == "turn":
        steps = _compared(returns, [[*range(len(of))] for of in returns], scaled)
    else:
        states = [[turn.state for turn in one.rollout.turns] for one in group]
        alike = _compared(returns, states, scaled)
        wholes = _compared([of[:1] for of in returns], [[""] for _ in group], scaled)
        steps = [[whole[0] + step for step in of] for whole, of in zip(wholes, alike, strict=True)]
    return [of or [0.0] * len(one.rollout.turns) for of, one in zip(steps, group, strict=True)]


def _returns(one: EarnedRollout, weights: Mapping[str, float]) -> list[float]:
    """What is earned from each turn on; that of the first is the total."""
    if one.components is None:
        return []
    earned = sum(
        weight * one.components.get(name, 0.0)
        for name, weight in weights.items()
        if name not in BY_TURN
    )
    returns = []
    for turn in reversed(one.rollout.turns):
        earned += sum(weights.get(name, 0.0) * count for name, count in counted_at(turn).items())
        returns.append(earned)
    return returns[::-1]


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
