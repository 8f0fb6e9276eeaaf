"""What a rollout earns: its world's scores, what is counted of it, its trace, rewards of your own;
and what each of its turns earns beside the other rollouts of its task.

docs/rewards.md has the formulas.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain, islice
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Gold, GoldCall, Parsed, gold_call, read_message
from agentlite.data.formats.tool_calls import read_tools
from agentlite.environments.gold_calls import call_key
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, Trajectory
from agentlite.scoring.rewards import (
    COMPONENTS,
    PENALTIES,
    WEIGHTS,
    WITHOUT_GOLD,
    Attempt,
    Component,
    RewardResult,
    TraceStep,
    score_attempt,
    settle_weights,
    without_comparisons,
)
from agentlite.scoring.rewards.attempt import trace_step
from agentlite.scoring.rewards.call_matching import ordered, uses

# numbers that add up from turn to turn, and those of the whole rollout; their weights are 0 or less
BY_TURN = ("turns", "calls", "failed_calls")
COUNTED = (*BY_TURN, "tool_errors", "repeated_calls")
EXTRA_CALLS, PROGRESS = "extra_calls", "progress"
EPSILON = 1e-4  # TRL adds it to a standard deviation
ALL = (*WEIGHTS, PROGRESS, *COUNTED, EXTRA_CALLS)  # beside the scores of a world


class RolloutScorer:
    """Scores rollouts of some tasks. All have the same components: where one task does not say
    which calls are right, or how few of them are enough, what needs that is left out of every
    score.
    """

    def __init__(self, tasks: Iterable[EnvironmentTask], user_functions: Mapping[str, Component]):
        self.tasks = {task.id: task for task in tasks}
        self.user_functions = user_functions
        self.has_gold = all(task.gold is not None for task in self.tasks.values())
        self.has_fewest = all(task.fewest_calls is not None for task in self.tasks.values())

    def __call__(self, rollout: Trajectory) -> RewardResult:
        """A rollout that was lost has no component. The user's functions are not asked again where
        the rollout has what they gave.
        """
        if rollout.ended in LOST:
            return RewardResult({}, "")
        task = self.tasks[rollout.task]
        attempt = attempt_of(rollout, task)
        is_scored = bool(rollout.rewards or rollout.reward_problem)
        functions = {} if is_scored else self.user_functions
        components, feedback, error = score_attempt(attempt, functions)
        if not self.has_gold:
            components = without_comparisons(components)
        else:
            components[PROGRESS] = _progress(rollout, task, attempt)
        if self.has_fewest:
            components[EXTRA_CALLS] = float(max(0, rollout.calls - (task.fewest_calls or 0)))
        components |= {**_counted(rollout), **rollout.rewards, **rollout.scores}
        return RewardResult(components, feedback, error or rollout.reward_problem)

    def rewarded(self, rollout: Trajectory) -> Trajectory:
        """With what the user's functions give."""
        components, _, error = self(rollout)
        own = {name: components[name] for name in self.user_functions if name in components}
        return replace(rollout, rewards=own, reward_problem=error)

    def weights(self, scores: Iterable[str], changed: Mapping[str, float]) -> dict[str, float]:
        """Each of the environment's `scores` and of the user's functions weighs 1, components and
        penalties as they do for single answers, and what is counted 0, unless `changed`.
        """
        scores = list(scores)
        taken = [name for name in scores if name in ALL and name != PROGRESS]
        taken += [name for name in self.user_functions if name in {*ALL, *scores}]
        if taken:
            raise UserError(
                f"another component is called {taken[0]}.",
                "Rename the function, or the score in get_scores().",
                location="rewards" if taken[0] in self.user_functions else taken[0],
            )
        known = {*COMPONENTS, *PENALTIES, PROGRESS} if self.has_gold else {*WITHOUT_GOLD}
        known |= {*COUNTED, EXTRA_CALLS} if self.has_fewest else {*COUNTED}
        defaults = {name: WEIGHTS.get(name, 0.0) for name in ALL if name in known}
        return settle_weights(
            changed,
            self.user_functions,
            defaults=defaults | dict.fromkeys(scores, 1.0),
            penalties={*PENALTIES, *COUNTED, EXTRA_CALLS},
        )


def attempt_of(rollout: Trajectory, task: EnvironmentTask) -> Attempt:
    """All that rewards may look at: the whole dialog with its trace, beside the right calls."""
    last = rollout.turns[-1] if rollout.turns else None
    answers = [message for message in rollout.messages if message["role"] == "assistant"]
    words = answers[-1].get("content") or "" if answers else ""
    due = [gold_call(call) for call in chain.from_iterable(task.gold or ())]
    return Attempt(
        Parsed(words, (), last.problem if last else ""),
        Gold(tuple(due), task.fewest_calls, task.gold is not None),
        read_tools(rollout.tools),
        finished=last is None or last.ended != "cut",
        text=last.text if last else "",
        trace=tuple(chain.from_iterable(trace_of(rollout))),
        messages=tuple(map(read_message, rollout.messages)),
        ended=rollout.ended,
        scores=rollout.scores,
        row=task.row,
    )


def trace_of(rollout: Trajectory) -> list[list[TraceStep]]:
    """The calls that were carried out, with their results, by turn of the model."""
    answers = [message for message in rollout.messages if message["role"] == "assistant"]
    return [
        [
            trace_step(call, text, failed)
            for call, (text, failed) in zip(read_message(message).calls, turn.results, strict=False)
        ]
        for message, turn in zip(answers, rollout.turns, strict=True)
    ]


def _trace_by_user(rollout: Trajectory) -> list[list[TraceStep]]:
    """The calls of each turn of the user's."""
    steps = iter(trace_of(rollout))
    return [
        list(chain.from_iterable(islice(steps, len(followed)))) for followed in rollout.user_turns
    ]


def _counted(rollout: Trajectory) -> dict[str, float]:
    repeated = 0  # within a turn of the user's: another one may well ask for the same again
    for steps in _trace_by_user(rollout):
        repeated += len(steps) - len({call_key(step.call) for step in steps})
    return {
        "turns": float(len(rollout.turns)),
        "calls": float(rollout.calls),
        "failed_calls": float(rollout.failed_calls),
        "tool_errors": rollout.failed_calls / max(1, rollout.calls),
        "repeated_calls": repeated / max(1, rollout.calls),
    }


def _progress(rollout: Trajectory, task: EnvironmentTask, attempt: Attempt) -> float:
    """The share of the user's turns before the first at whose end a right call was still not
    carried out. A call may be made before the user asks for it.
    """
    done: list[Call] = []
    due: list[GoldCall] = []
    satisfied, gold = 0, task.gold or ()
    for steps, calls in zip(_trace_by_user(rollout), gold, strict=False):
        done += [step.call for step in steps if step.ok]
        due += map(gold_call, calls)
        matched = uses(ordered(due), ordered(done), attempt.tools).values()
        if sum(use.served() for use in matched) < len(due):
            break
        satisfied += 1
    return satisfied / len(gold) if gold else 1.0


class ScoredRollout(NamedTuple):
    """A rollout with its components; None where it has none: its world was lost, or a reward of the
    user's failed.
    """

    rollout: Trajectory
    components: Mapping[str, float] | None


def turn_advantages(
    group: Sequence[ScoredRollout],
    weights: Mapping[str, float],
    credit: Literal["turn", "state"],
    scaled: bool,
) -> list[list[float]]:
    """For each rollout of a task, the advantage of each of its turns.

    A turn's return is what its rollout earns from there on: what is counted at this turn and later,
    and every other component at the end. `turn` compares it with the returns of the same turn in
    the other rollouts. `state` compares it with those of all turns of the group that began in the
    same state, and adds the advantage of the whole rollout (GiGPO, arXiv 2505.10978, without a
    discount). `scaled`: divided by the standard deviation of what is compared. A rollout without
    components is not compared: its advantages are 0.
    """
    returns = [_returns(scored, weights) for scored in group]
    if credit == "turn":
        steps = _compared(returns, [[*range(len(of))] for of in returns], scaled)
    else:
        states = [[turn.state for turn in scored.rollout.turns] for scored in group]
        alike = _compared(returns, states, scaled)
        wholes = _compared([of[:1] for of in returns], [[""] for _ in group], scaled)
        steps = [[whole[0] + step for step in of] for whole, of in zip(wholes, alike, strict=True)]
    return [
        of or [0.0] * len(scored.rollout.turns) for of, scored in zip(steps, group, strict=True)
    ]


def _returns(scored: ScoredRollout, weights: Mapping[str, float]) -> list[float]:
    """What is earned from each turn on; that of the first is the total."""
    if scored.components is None:
        return []
    earned = sum(
        weight * scored.components.get(name, 0.0)
        for name, weight in weights.items()
        if name not in BY_TURN
    )
    returns = []
    for turn in reversed(scored.rollout.turns):
        failed = sum(failed for _, failed in turn.results)
        for name, count in zip(BY_TURN, (1, len(turn.results), failed), strict=True):
            earned += weights.get(name, 0.0) * count
        returns.append(earned)
    return returns[::-1]


def _compared(
    values: Sequence[Sequence[float]], keys: Sequence[Sequence[Hashable]], scaled: bool
) -> list[list[float]]:
    """Each value less the mean of those with its key."""
    alike: dict[Hashable, list[float]] = defaultdict(list)
    for of_rollout, keys_of_rollout in zip(values, keys, strict=True):
        for value, key in zip(of_rollout, keys_of_rollout, strict=False):
            alike[key].append(value)
    means = {key: fmean(of_key) for key, of_key in alike.items()}
    scales = {
        key: stdev(of_key) + EPSILON if scaled and len(of_key) > 1 else 1.0
        for key, of_key in alike.items()
    }
    return [
        [
            (value - means[key]) / scales[key]
            for value, key in zip(of_rollout, keys_of_rollout, strict=False)
        ]
        for of_rollout, keys_of_rollout in zip(values, keys, strict=True)
    ]
