"""A rollout that was stopped anywhere goes on there, and ends as one that was not."""

from typing import Any

import pytest
from support.shop import call

from agentlite.core.records import Message, Tool
from agentlite.environments.mock_world import MockWorld
from agentlite.environments.rollout import RolloutAnswer, RolloutSetup, roll
from agentlite.environments.simulated_user import UserProfile
from agentlite.environments.simulators import SimulatorReply
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import ModelTurn, RolloutKey, Trajectory
from agentlite.environments.world import WorldLimits
from agentlite.rendering import choose

PARAMETERS = {"type": "object", "properties": {"item": {"type": "string"}}}
TOOLS = [Tool(name, "", PARAMETERS).schema for name in ("get_stock", "buy")]
LOOK, BUY = (call(name, item="fig") for name in ("get_stock", "buy"))
# two questions in a turn, words to a user, a call that was answered before
TEXTS = (f"{LOOK}\n{BUY}", "Is that all?", f"{LOOK}\n{LOOK}", "Goodbye.")


class MockEnvironment:
    users = "task"
    name = "mock"

    def world(self, limits: WorldLimits) -> MockWorld:
        return MockWorld()


class Replies:
    """Models that stand for tools and users; `known` are the replies that are kept."""

    def __init__(self, kept: dict[Any, SimulatorReply]):
        self.kept, self.asked = kept, []

    def known(self, question):
        return self.kept.get(question.messages[1]["content"])

    def ask(self, questions):
        for number, question in enumerate(questions):
            key = question.messages[1]["content"]
            if key not in self.kept:
                self.asked.append(key)
                words = f"Reply {len(key)}." if question.role == "tool" else "Go on."
                self.kept[key] = SimulatorReply("", words)
            yield number, self.kept[key]


@pytest.fixture
def setup(smollm2):
    protocol = choose("hermes", smollm2).protocols["hermes"]
    users = {"t": UserProfile("Buy a fig.")}
    made = RolloutSetup(MockEnvironment(), protocol, smollm2, 10**6, 5, WorldLimits())
    return made._replace(states=True, users=users, user_turns=1)


@pytest.mark.parametrize("sampled", [True, False])
def test_it_goes_on_at_the_row_at_which_it_was_stopped_and_ends_with_the_same_trajectory(
    setup, smollm2, sampled
):
    row = {"tools": TOOLS, "world": "", "user_turns": [], "gold": None}
    task = EnvironmentTask("t", (Message("user", "Buy."),), row)
    end = smollm2.token_id(smollm2.turn_end)
    read: list[tuple[int, list[int]]] = []

    def answers(prompts):
        for index, prompt in enumerate(prompts):
            read.append((prompt.turn, prompt.ids))
            text = TEXTS[prompt.turn]
            ids = (*smollm2.encode(text), end) if sampled else ()
            yield RolloutAnswer(index, text, "turn", 3, ids)

    # each row with the replies that were on disk when it was written
    replies = Replies({})
    stages = [
        (one, dict(replies.kept)) for one in roll(setup, [(task, 0)], {}, answers, 1, replies)
    ]
    whole = stages[-1][0]
    asked, prompts = list(replies.asked), dict(read)
    assert isinstance(whole, Trajectory) and (whole.ended, len(whole.turns)) == (
        "turns",
        len(TEXTS),
    )
    assert len(asked) == len({*asked}) == 4
    turns = [one for one, _ in stages[:-1]]
    assert list({one.turn: one for one in turns}.values()) == whole.turns  # each when it is whole
    assert len(turns) == len(TEXTS) + 3  # and before, if it has a question
    for count in range(len(stages)):
        earlier: list[ModelTurn] = []
        for one, _ in stages[:count]:
            earlier[one.turn :] = [one]
        # a stop between two rows may have kept the replies that came since
        before, since = stages[count - 1][1] if count else {}, stages[count][1]
        for kept in [before] if before == since else [before, since]:
            again = Replies(dict(kept))
            read.clear()
            rows = list(roll(setup, [(task, 0)], {RolloutKey("t", 0): earlier}, answers, 1, again))
            assert rows[-1] == whole
            assert dict(read) == {n: ids for n, ids in prompts.items() if n >= len(earlier)}
            assert len(read) == len(TEXTS) - len(earlier)
            assert again.asked == [key for key in asked if key not in kept]


def test_a_reply_that_differs_from_what_was_stored_begins_anew(setup):
    row = {"tools": TOOLS, "world": "", "user_turns": [], "gold": None}
    task = EnvironmentTask("t", (Message("user", "Buy."),), row)
    read: list[int] = []

    def answers(prompts):
        for index, prompt in enumerate(prompts):
            read.append(prompt.turn)
            yield RolloutAnswer(index, TEXTS[prompt.turn], "turn", 3)

    replies = Replies({})
    first = list(roll(setup, [(task, 0)], {}, answers, 1, replies))
    turns = first[-1].turns[:3]
    for key in replies.asked[:3]:
        read.clear()
        other = Replies({**replies.kept, key: SimulatorReply("", "Another one.")})
        rows = list(roll(setup, [(task, 0)], {RolloutKey("t", 0): turns}, answers, 1, other))
        assert read == [*range(len(TEXTS))] and rows[-1] != first[-1]
