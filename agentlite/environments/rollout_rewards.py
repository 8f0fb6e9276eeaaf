"""What a rollout earns: its world's scores, what is counted of it, its trace, rewards of your own.

docs/rewards.md has the formulas.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, islice

from msgspec.structs import replace

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Gold, GoldCall, Parsed, gold_call, read_message
from agentlite.data.formats.tool_calls import read_tools
from agentlite.environments.gold_calls import call_key
from agentlite.environments.tasks import TaskRow
from agentlite.environments.trajectories import LOST, ModelTurn, Trajectory
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
COUNTED = (*BY_TURN, "tool_errors", "repeated_calls", "user_errors")
EXTRA_CALLS, PROGRESS = "extra_calls", "progress"
ALL = (*WEIGHTS, PROGRESS, *COUNTED, EXTRA_CALLS)  # beside the scores of a world


class RolloutScorer:
    """Scores rollouts of some tasks. All have the same components: where one task does not say
    which calls are right, or how few of them are enough, what needs that is left out of every
    score.
    """

    def __init__(self, tasks: Iterable[TaskRow], user_functions: Mapping[str, Component]):
        self.tasks = {task.id: task for task in tasks}
        self.user_functions = user_functions
        self.has_gold = all(task.gold is not None for task in self.tasks.values())
        self.has_fewest = all(task.fewest_calls is not None for task in self.tasks.values())

    def __call__(self, one: Trajectory) -> RewardResult:
        """A rollout that was lost has no component. The user's functions are not asked again where
        the rollout has what they gave.
        """
        if one.ended in LOST:
            return RewardResult({}, "")
        task = self.tasks[one.task]
        attempt = attempt_of(one, task)
        is_scored = bool(one.rewards or one.reward_problem)
        functions = {} if is_scored else self.user_functions
        components, feedback, error = score_attempt(attempt, functions)
        if not self.has_gold:
            components = without_comparisons(components)
        else:
            components[PROGRESS] = _progress(one, task, attempt)
        if self.has_fewest:
            components[EXTRA_CALLS] = float(max(0, one.calls - (task.fewest_calls or 0)))
        components |= {**_counted(one), **one.rewards, **one.scores}
        return RewardResult(components, feedback, error or one.reward_problem)

    def rewarded(self, one: Trajectory) -> Trajectory:
        """With what the user's functions give."""
        components, _, error = self(one)
        own = {name: components[name] for name in self.user_functions if name in components}
        return replace(one, rewards=own, reward_problem=error)

    def weights(self, scores: Iterable[str], changed: Mapping[str, float]) -> dict[str, float]:
        """Each of the environment's `scores` and of the user's functions weighs 1, and anything
        else 0, unless `changed`.
        """
        scores = list(scores)
        if taken := [name for name in scores if name in ALL and name != PROGRESS]:
            raise UserError(
                f"the environment has a score named {taken[0]}, as a component of every rollout "
                "is.",
                "Give it another name in get_scores().",
                location=taken[0],
            )
        if taken := [name for name in self.user_functions if name in {*ALL, *scores}]:
            raise UserError(
                f"another component is called {taken[0]}.",
                "Rename the function.",
                location="rewards",
            )
        known = {*COMPONENTS, *PENALTIES, PROGRESS} if self.has_gold else {*WITHOUT_GOLD}
        known |= {*COUNTED, EXTRA_CALLS} if self.has_fewest else {*COUNTED}
        defaults = dict.fromkeys([name for name in ALL if name in known], 0.0)
        return settle_weights(
            changed,
            self.user_functions,
            defaults=defaults | dict.fromkeys(scores, 1.0),
            penalties={*PENALTIES, *COUNTED, EXTRA_CALLS},
        )


def attempt_of(one: Trajectory, task: TaskRow) -> Attempt:
    """All that rewards may look at: the whole dialog with its trace, beside the right calls."""
    last = one.turns[-1] if one.turns else None
    answers = [message for message in one.messages if message["role"] == "assistant"]
    words = answers[-1].get("content") or "" if answers else ""
    due = [gold_call(call) for call in chain.from_iterable(task.gold or ())]
    return Attempt(
        Parsed(words, (), last.problem if last else ""),
        Gold(tuple(due), task.fewest_calls, task.gold is not None),
        read_tools(one.tools),
        finished=last is None or last.ended != "cut",
        text=last.text if last else "",
        trace=tuple(chain.from_iterable(trace_of(one))),
        messages=tuple(map(read_message, one.messages)),
        ended=one.ended,
        scores=one.scores,
        row=task.row,
    )


def trace_of(one: Trajectory) -> list[list[TraceStep]]:
    """The calls that were carried out, with their results, by turn of the model."""
    answers = [message for message in one.messages if message["role"] == "assistant"]
    return [
        [
            trace_step(call, text, failed)
            for call, (text, failed) in zip(read_message(message).calls, turn.results, strict=False)
        ]
        for message, turn in zip(answers, one.turns, strict=True)
    ]


def _counted(one: Trajectory) -> dict[str, float]:
    repeated = 0  # within a turn of the user's: another one may well ask for the same again
    for steps in _by_user_turn(one):
        keys = {call_key(step.call.name, step.call.arguments) for step in steps}
        repeated += len(steps) - len(keys)
    user = one.simulated_user
    faulty = {fault.reply for fault in user.faults} if user else set()
    return {
        "turns": float(len(one.turns)),
        "calls": float(one.calls),
        "failed_calls": float(one.failed_calls),
        "tool_errors": one.failed_calls / max(1, one.calls),
        "repeated_calls": repeated / max(1, one.calls),
        "user_errors": len(faulty) / len(user.replies) if user and user.replies else 0.0,
    }


def counted_at(turn: ModelTurn) -> dict[str, int]:
    """What a turn adds to the numbers in BY_TURN."""
    failed = sum(failed for _, failed in turn.results)
    return {"turns": 1, "calls": len(turn.results), "failed_calls": failed}


def _by_user_turn(one: Trajectory) -> list[list[TraceStep]]:
    """The executed calls of each turn of the user's."""
    steps = iter(trace_of(one))
    return [list(chain.from_iterable(islice(steps, len(followed)))) for followed in one.user_turns]


def _progress(one: Trajectory, task: TaskRow, attempt: Attempt) -> float:
    """The share of the user's turns before the first at whose end a right call was still not
    carried out. A call may be made before the user asks for it.
    """
    done: list[Call] = []
    due: list[GoldCall] = []
    satisfied, gold = 0, task.gold or ()
    for steps, calls in zip(_by_user_turn(one), gold, strict=False):
        done += [step.call for step in steps if step.ok]
        due += map(gold_call, calls)
        matched = uses(ordered(due), ordered(done), attempt.tools).values()
        if sum(use.served() for use in matched) < len(due):
            break
        satisfied += 1
    return satisfied / len(gold) if gold else 1.0
