"""Rollouts in a world of this process: how many go on at once, how each ends, and what is kept."""

from typing import Any

import pytest
from support.shop import call

from agentlite.core.records import Call, Message, Tool
from agentlite.core.row_files import Appender
from agentlite.core.user_code import UserFunction
from agentlite.environments.registry import Environment
from agentlite.environments.rollout import RolloutAnswer, RolloutSetup, roll
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult, WorldError, WorldLimits
from agentlite.rendering import choose, encode_answer
from agentlite.stages.rollout import keep_answers

TOOLS = tuple(
    Tool(name, "", {"type": "object", "properties": {"item": {"type": "string"}}})
    for name in ("buy", "pay", "more")
)
SHOP = Environment(UserFunction("shop.py", "Shop"), lambda: iter(()), {})
BUY, PAY = (call(name, item="fig") for name in ("buy", "pay"))


class FakeWorld:
    """`pay` leaves nothing to do. `open`: the worlds that
    were reset and not stopped. A row's `breaks`: the step at which the world is lost; its `tools`:
    the names of those on offer at first and behind each call.
    """

    open: list["FakeWorld"]
    most = 0
    says: str | None = None  # what `reset` returns

    def __init__(self) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.calls: list[Call] = []

    def __enter__(self) -> "FakeWorld":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self in FakeWorld.open:
            FakeWorld.open.remove(self)

    def reset(self, row: dict[str, Any]) -> str | None:
        FakeWorld.open.append(self)
        FakeWorld.most = max(FakeWorld.most, len(FakeWorld.open))
        self.row = row
        self.offer()
        self.may_break("reset")
        return FakeWorld.says

    def offer(self) -> None:
        named = self.row.get("tools", [[one.name for one in TOOLS]])
        names = named[min(len(self.calls), len(named) - 1)]
        self.tools = tuple(one for one in TOOLS if one.name in names)

    def may_break(self, step: str) -> None:
        if self.row.get("breaks") == step:
            raise WorldError(f"{step} failed: torn")

    def call(self, one: Call) -> CallResult:
        self.may_break("call")
        self.calls.append(one)
        self.offer()
        return CallResult(f"{len(self.calls)}", failed=False, done=one.name == "pay")

    def next_user(self, words: str) -> str | None:
        self.may_break("next_user")
        return "And?" if words == "Wait." else None

    def scores(self) -> dict[str, float]:
        self.may_break("scores")
        return {"env": len(self.calls) / 4}

    def turn_scores(self) -> list[dict[str, float]]:
        self.may_break("turn_scores")
        return [{"right": 1.0}]

    def state(self) -> Any:
        self.may_break("state")
        return {"calls": len(self.calls)}


@pytest.fixture(autouse=True)
def fresh(monkeypatch) -> None:
    monkeypatch.setattr("agentlite.environments.rollout.World", lambda *_: FakeWorld())
    FakeWorld.open, FakeWorld.most, FakeWorld.says = [], 0, None


@pytest.fixture
def setup(smollm2):
    protocol = choose("hermes", smollm2).protocols["hermes"]
    return RolloutSetup(SHOP, protocol, smollm2, 10**6, 3, WorldLimits())


def task(name="t", **row):
    return EnvironmentTask(name, (Message("user", "Buy."),), row, split="test")


def saying(*texts):
    def answers(prompts):
        for index, prompt in enumerate(prompts):
            yield RolloutAnswer(index, texts[min(prompt.turn, len(texts) - 1)], "turn", 3)

    return answers


def ended(setup, answers, *waiting, batch_size=3):
    return list(roll(setup, waiting or [(task(), 0)], answers, batch_size))


def test_a_kept_answer_is_given_to_the_prompt_that_it_answered_and_to_no_other(setup, tmp_path):
    asked = []

    def answers(prompts):
        for index, prompt in enumerate(prompts):
            asked.append((prompt.key.sample, prompt.turn))
            text = BUY if prompt.turn == 0 else f"Yes,{FakeWorld.says}."
            ids = tuple(encode_answer(text, "turn", setup.template, prompt.ids))
            yield RolloutAnswer(index, text, "turn", len(ids), ids, (-1.0,) * len(ids))

    def again(says, *samples):
        FakeWorld.says = says
        asked.clear()
        with Appender(tmp_path / "answers.jsonl") as kept:
            keeping = keep_answers(answers, kept, lambda: None)
            return ended(setup, keeping, *[(task(), number) for number in samples])

    (first,) = again(" It is Monday", 0)
    assert asked == [(0, 0), (0, 1)] and first.turns[0].ids
    assert again(" It is Monday", 0) == [first] and asked == []
    (second,) = again(" It is Tuesday", 0)
    assert asked == [(0, 0), (0, 1)] and second.messages[-1]["content"] == "Yes, It is Tuesday."
    # one of two goes on where it was, and is then asked for together with the other
    both = again(" It is Monday", 0, 1)
    assert asked == [(1, 0), (1, 1)] and first in both and len(both) == 2


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_as_many_rollouts_go_on_together_as_are_to_and_no_world_is_left(setup, batch_size):
    waiting = [(task(f"t{n}"), 0) for n in range(7)]
    sizes = []

    def answers(prompts):
        sizes.append(len(prompts))
        yield from saying(BUY, BUY, "Done.")(prompts)

    found = ended(setup, answers, *waiting, batch_size=batch_size)
    assert len(found) == 7 and FakeWorld.most == max(sizes) == batch_size
    assert FakeWorld.open == []


@pytest.mark.parametrize("step", ["reset", "call", "next_user", "scores", "turn_scores"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_world_that_is_lost_at_any_step_costs_its_own_rollout_and_no_other_one(
    setup, step, batch_size
):
    def answers(prompts):
        for index, prompt in enumerate(prompts):
            text = BUY if prompt.turn == 0 else f"Done with {prompt.key.task}."
            yield RolloutAnswer(index, text, "turn", 3)

    waiting = [(task("t0", breaks=step), 0), (task("t1"), 0), (task("t2"), 0)]
    found = ended(setup, answers, *waiting, batch_size=batch_size)
    lost, *others = sorted(found, key=lambda one: one.task)
    assert (lost.ended, lost.problem) == ("world", f"{step} failed: torn")
    assert (lost.scores, lost.by_turn) == ({}, []) and FakeWorld.open == []
    assert len(lost.turns) == {"reset": 0, "call": 1}.get(step, 2)
    for one in others:
        assert [turn.text for turn in one.turns] == [BUY, f"Done with {one.task}."]
        assert (one.ended, one.problem, one.scores) == ("user", "", {"env": 0.25})


@pytest.mark.parametrize("second", [BUY, PAY])
def test_a_world_that_has_nothing_left_to_do_ends_it_behind_the_whole_turn(setup, second):
    (found,) = ended(setup, saying(f"{PAY}\n{second}"))
    assert (found.ended, len(found.turns), found.calls) == ("done", 1, 2)


@pytest.mark.parametrize(
    ("texts", "reason", "turns"),
    [
        ([BUY], "turns", 4),  # one more than the limit, as BFCL counts
        ([BUY, BUY, BUY, "Wait.", BUY], "turns", 8),
        ([BUY, BUY, BUY, "Wait.", BUY, BUY, BUY, "Done."], "user", 8),
    ],
)
def test_turns_with_calls_are_counted_from_each_turn_of_the_users(setup, texts, reason, turns):
    (found,) = ended(setup, saying(*texts))
    assert (found.ended, len(found.turns)) == (reason, turns)
