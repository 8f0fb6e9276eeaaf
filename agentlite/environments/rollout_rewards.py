"""What a rollout earns: its world's scores, what is counted of it, its trace, rewards of your own.

docs/rewards.md has the formulas.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Gold, GoldCall, Parsed, call_key, gold_call, read_message
from agentlite.data.formats.tool_calls import read_tools
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
    components_without_gold,
    score_attempt,
    settle_weights,
)
from agentlite.scoring.rewards.attempt import trace_step
from agentlite.scoring.rewards.call_matching import uses_by_tool

# their weights are 0 or less
COUNTS = ("turns", "calls", "failed_calls", "tool_errors", "repeated_calls")
EXTRA_CALLS, PROGRESS = "extra_calls", "progress"
COMPONENT_NAMES = (*WEIGHTS, PROGRESS, *COUNTS, EXTRA_CALLS)  # beside the scores of a world


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
        functions = {} if rollout.rewards or rollout.reward_problem else self.user_functions
        components, feedback, error = score_attempt(attempt, functions)
        if not self.has_gold:
            components = components_without_gold(components)
        else:
            components[PROGRESS] = _progress(rollout, task, attempt)
        if self.has_fewest:
            components[EXTRA_CALLS] = float(max(0, rollout.calls - (task.fewest_calls or 0)))
        # within a turn of the user's: another one may well ask for the same again
        keys_by_turn = [[call_key(step.call) for step in steps] for steps in trace_by_user(rollout)]
        repeats = sum(len(keys) - len({*keys}) for keys in keys_by_turn)
        components |= {
            "turns": float(len(rollout.turns)),
            "calls": float(rollout.calls),
            "failed_calls": float(rollout.failed_calls),
            "tool_errors": rollout.failed_calls / max(1, rollout.calls),
            "repeated_calls": repeats / max(1, rollout.calls),
            **rollout.rewards,
            **rollout.scores,
        }
        return RewardResult(components, feedback, error or rollout.reward_problem)

    def add_rewards(self, rollout: Trajectory) -> Trajectory:
        """With what the user's functions give."""
        components, _, error = self(rollout)
        rewards = {name: components[name] for name in self.user_functions if name in components}
        return replace(rollout, rewards=rewards, reward_problem=error)

    def weights(self, scores: Sequence[str], changed: Mapping[str, float]) -> dict[str, float]:
        """Each of the environment's `scores` and of the user's functions weighs 1, components and
        penalties as they do for single answers, and what is counted 0, unless `changed`.
        """
        clashes = [name for name in scores if name in COMPONENT_NAMES and name != PROGRESS]
        clashes += [name for name in self.user_functions if name in {*COMPONENT_NAMES, *scores}]
        if clashes:
            raise UserError(
                f"another component is called {clashes[0]}.",
                "Rename the function, or the score in get_scores().",
                location="rewards" if clashes[0] in self.user_functions else clashes[0],
            )
        names = {*COMPONENTS, *PENALTIES, PROGRESS} if self.has_gold else {*WITHOUT_GOLD}
        names |= {*COUNTS, EXTRA_CALLS} if self.has_fewest else {*COUNTS}
        defaults = {name: WEIGHTS.get(name, 0.0) for name in COMPONENT_NAMES if name in names}
        return settle_weights(
            changed,
            self.user_functions,
            defaults=defaults | dict.fromkeys(scores, 1.0),
            penalties={*PENALTIES, *COUNTS, EXTRA_CALLS},
        )


def attempt_of(rollout: Trajectory, task: EnvironmentTask) -> Attempt:
    """All that rewards may look at: the whole dialog with its trace, beside the right calls."""
    last_turn = rollout.turns[-1] if rollout.turns else None
    answers = [message for message in rollout.messages if message["role"] == "assistant"]
    content = answers[-1].get("content") or "" if answers else ""
    gold_calls = tuple(map(gold_call, chain.from_iterable(task.gold or ())))
    return Attempt(
        Parsed(content, (), last_turn.problem if last_turn else ""),
        Gold(gold_calls, task.fewest_calls, task.gold is not None),
        read_tools(rollout.tools),
        finished=last_turn is None or last_turn.ended != "cut",
        text=last_turn.text if last_turn else "",
        trace=tuple(chain.from_iterable(trace_by_user(rollout))),
        messages=tuple(map(read_message, rollout.messages)),
        ended=rollout.ended,
        scores=rollout.scores,
        row=task.row,
    )


def trace_by_user(rollout: Trajectory) -> list[list[TraceStep]]:
    """The calls that were carried out, with their results, by turn of the user's, which ends with a
    turn of the model without a call.
    """
    answers = [message for message in rollout.messages if message["role"] == "assistant"]
    groups: list[list[TraceStep]] = []
    starts_group = True
    for message, turn in zip(answers, rollout.turns, strict=True):
        if starts_group:
            groups.append([])
        results = zip(read_message(message).calls, turn.results, strict=False)  # none behind a hang
        groups[-1] += [trace_step(call, text, failed) for call, (text, failed) in results]
        starts_group = not turn.results  # words end a turn of the user's, and so does half a call
    return groups


def _progress(rollout: Trajectory, task: EnvironmentTask, attempt: Attempt) -> float:
    """The share of the user's turns before the first at whose end a right call was still not
    carried out. A call may be made before the user asks for it.
    """
    made_calls: list[Call] = []
    gold_calls: list[GoldCall] = []
    finished_turns, gold = 0, task.gold or ()
    for steps, calls in zip(trace_by_user(rollout), gold, strict=False):
        made_calls += [step.call for step in steps if step.ok]
        gold_calls += map(gold_call, calls)
        uses = uses_by_tool(gold_calls, made_calls, attempt.tools).values()
        if sum(use.count_satisfied() for use in uses) < len(gold_calls):
            break
        finished_turns += 1
    return finished_turns / len(gold) if gold else 1.0
