"""What a rollout earns, by hand; and what holds for any rollout."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Call, Message, Tool
from agentlite.environments.rollout_rewards import COMPONENT_NAMES, RolloutScorer, attempt_of
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, ModelTurn, Trajectory
from agentlite.scoring.rewards import COMPONENTS, WEIGHTS, WITHOUT_GOLD, ComponentError, TraceStep

PARAMETERS = {"type": "object", "properties": {"item": {"type": "string"}}}
TOOLS = [Tool(name, "", PARAMETERS).schema for name in ("buy", "search")]
BUY, SEARCH = Call("buy", {"item": "fig"}), Call("search", {"item": "fig"})
PEAR, MELON = Call("buy", {"item": "pear"}), Call("buy", {"item": "melon"})
BUSY = "Error: TimeoutError: the shop is busy"


def did(call: Call, result: str = "bought", failed: bool = False):
    return call, result, failed


def no(call: Call, result: str = "Error: ValueError: none"):
    return did(call, result, failed=True)


def rollout(
    *turns: Any,
    sample: int = 0,
    ended: Any = "user",
    last: Any = "turn",
    problem: str = "",
    task: str = "t",
    **scores: float,
) -> Trajectory:
    """`turns`: each the words of an answer, or the calls of it with what came back."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Buy."}]
    made = []
    number = 0
    for n, turn in enumerate(turns):
        results: tuple[tuple[str, bool], ...] = ()
        if isinstance(turn, str):
            messages.append({"role": "assistant", "content": turn})
            if n + 1 < len(turns):
                messages.append({"role": "user", "content": "And?"})
        else:
            wires = []
            answers = []
            for call, result, failed in turn:
                function = {"name": call.name, "arguments": json.dumps(call.arguments)}
                wires.append({"id": f"c{number}", "type": "function", "function": function})
                answers.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
                results += ((result, failed),)
                number += 1
            messages += [{"role": "assistant", "content": None, "tool_calls": wires}, *answers]
        at_end = n + 1 == len(turns)
        made.append(
            ModelTurn(
                task,
                sample,
                n,
                turn if isinstance(turn, str) else "",
                last if at_end else "turn",
                1,
                results,
                problem=problem if at_end else "",
            )
        )
    return Trajectory(task, sample, "", messages, TOOLS, made, ended, scores)


def earned(one: Trajectory, gold: Any = None, steps: int | None = None, **functions: Any):
    return RolloutScorer([EnvironmentTask("t", (), {}, gold, optimal_steps=steps)], functions)(
        one
    ).components


ONE = ((BUY,),)
TWO = ((BUY,), (PEAR,))
# what a rollout does, the gold of its task, its optimal_steps, and what is checked by hand
CASES = {
    "the right call and words": (
        rollout([did(BUY)], "Done."),
        (ONE, None),
        {
            "turns": 2,
            "calls": 1,
            "failed_calls": 0,
            "tool_errors": 0,
            "repeated_calls": 0,
            "extra_calls": 0,
            "progress": 1,
            "timeout": 0,
            "task_completion": 1,
            "efficiency": 1,
            "tool_accuracy": 1,
            "exact": 1,
            "missed_call": 0,
            "redundant_call": 0,
        },
    ),
    "a failed call that is made again": (
        rollout([no(BUY)], [did(BUY)], "Done."),
        (ONE, None),
        {
            "turns": 3,
            "calls": 2,
            "failed_calls": 1,
            "tool_errors": 1 / 2,
            "repeated_calls": 1 / 2,
            "extra_calls": 1,
            "progress": 1,
            "redundant_call": 1,
            "task_completion": 1 / 2,
            "efficiency": 1 / 2,
        },
    ),
    "the same call twice in one turn of the user's": (
        rollout([did(BUY)], [did(BUY), did(BUY)], "Done."),
        (ONE, None),
        {"repeated_calls": 2 / 3, "redundant_call": 2},
    ),
    "what is asked first, done later": (
        rollout("No.", [did(BUY), did(PEAR)], "Both."),
        (TWO, None),
        {"progress": 0, "task_completion": 1},
    ),
    "a call where none is right": (
        rollout([did(BUY)], "Done."),
        (((),), None),
        {"extra_calls": 1, "task_completion": 0, "efficiency": 0, "wrong_tool": 1, "progress": 1},
    ),
    "a last text that cannot be read": (
        rollout([did(BUY)], "<tool_call>", problem="call not closed"),
        (ONE, None),
        {"format_error": 1, "format_compliance": 0, "task_completion": 1},
    ),
    "a tool that is not on offer": (
        rollout([no(Call("sell", {}))], "Done."),
        (None, None),
        {"format_compliance": 0, "failed_calls": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_components_by_hand(name):
    one, (gold, steps), by_hand = CASES[name]
    found = earned(one, gold, steps)
    assert {key: found[key] for key in by_hand} == pytest.approx(by_hand)
    # what needs the gold is there if the gold is
    assert ("task_completion" in found) == ("progress" in found) == (gold is not None)
    assert ("extra_calls" in found) == (gold is not None or steps is not None)


@pytest.mark.parametrize("ended", LOST)
def test_a_lost_rollout_has_no_component_and_asks_no_function(ended):
    def never(attempt):
        raise AssertionError

    assert earned(rollout([did(BUY)], ended=ended), ONE, own=never) == {}


def test_a_function_of_the_user_sees_the_whole_trace():
    one = rollout([no(BUY, BUSY)], [did(PEAR, "1 pear")], "Done.", env=0.5, ended="turns")
    attempt = attempt_of(one, EnvironmentTask("t", (), {"stock": 3}, ONE))
    assert attempt.trace == (
        TraceStep(Call("buy", {"item": "fig"}, "c0"), False, True, BUSY),
        TraceStep(Call("buy", {"item": "pear"}, "c1"), True, False, "1 pear"),
    )
    assert (attempt.ended, attempt.scores, attempt.row) == ("turns", {"env": 0.5}, {"stock": 3})
    assert [message.role for message in attempt.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert attempt.messages[2] == Message("tool", BUSY, call_id="c0")
    assert attempt.text == "Done." == attempt.parsed.content and attempt.finished
    assert attempt.gold.optimal_steps == 1 and [one.name for one in attempt.tools] == [
        "buy",
        "search",
    ]


def test_a_function_that_fails_is_the_error_and_a_stored_value_is_not_asked_for_again():
    def own(attempt):
        if attempt.scores["env"] > 1:
            raise ComponentError("own raised")
        return attempt.scores["env"]

    scorer = RolloutScorer([EnvironmentTask("t")], {"own": own})
    right, wrong = (scorer.add_rewards(rollout("No.", env=env)) for env in (0.5, 2.0))
    assert (right.rewards, right.reward_problem) == ({"own": 0.5}, "")
    assert (wrong.rewards, wrong.reward_problem) == ({}, "own raised")
    stored = RolloutScorer([EnvironmentTask("t")], {"own": lambda _: 1 / 0})
    assert stored(right).components["own"] == 0.5 and stored(wrong).error == "own raised"


CALLS = st.sampled_from([BUY, SEARCH, PEAR, MELON, Call("sell", {})])
MADE = st.tuples(CALLS, st.sampled_from(["ok", BUSY, ""]), st.booleans())
TURNS = st.lists(st.one_of(st.just("Well."), st.lists(MADE, min_size=1, max_size=3)), max_size=5)
GOLDS = st.lists(st.lists(CALLS, max_size=2).map(tuple), max_size=3).map(tuple)


@given(
    st.lists(st.tuples(TURNS, st.sampled_from(["turn", "cut"])), min_size=1, max_size=4),
    st.none() | GOLDS,
    st.randoms(),
)
def test_ranges_and_no_rollout_depends_on_those_beside_it(made, gold, chance):
    rollouts = [
        rollout(*turns, sample=n, last=last, env=0.5) for n, (turns, last) in enumerate(made)
    ]
    scorer = RolloutScorer([EnvironmentTask("t", (), {}, gold)], {})
    first = {one.sample: scorer(one).components for one in rollouts}
    chance.shuffle(rollouts)
    again = {one.sample: scorer(one).components for one in rollouts}
    assert first == again
    shares = {*COMPONENTS, "tool_errors", "repeated_calls", "progress", "env"}
    for one in rollouts:
        found = first[one.sample]
        assert found.keys() == first[0].keys()
        for name, value in found.items():
            assert value >= 0 and (value <= 1 if name in shares else value == int(value)), name
        assert found["failed_calls"] <= found["calls"] >= found.get("extra_calls", 0)
        assert found["timeout"] <= found["failed_calls"] + 1
        assert (found["repeated_calls"] < 1) or not one.calls
        assert found["tool_errors"] * found["calls"] == pytest.approx(found["failed_calls"])


def test_scores_and_own_functions_weigh_1_components_as_for_an_answer_and_counts_nothing():
    scorer = RolloutScorer([EnvironmentTask("t", (), {}, ONE)], {"own": lambda _: 1.0})
    weights = scorer.weights(["env", "state"], {"turns": -0.1, "efficiency": 2})
    assert {name: weight for name, weight in weights.items() if weight} == {
        **{name: weight for name, weight in WEIGHTS.items() if weight},
        "env": 1.0,
        "state": 1.0,
        "own": 1.0,
        "turns": -0.1,
        "efficiency": 2.0,
    }
    assert {*weights} == {*COMPONENT_NAMES, "env", "state", "own"}
    assert scorer.weights(["progress"], {})["progress"] == 1.0
    # without a score of the world's, a reward is left; without gold, what needs none
    assert sum(max(0, weight) for weight in scorer.weights([], {}).values()) == 2.0
    bare = RolloutScorer([EnvironmentTask("t")], {}).weights([], {})
    assert {name for name, weight in bare.items() if weight} == WITHOUT_GOLD
