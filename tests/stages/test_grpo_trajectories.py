"""Rollouts of a training step: users that a model plays are asked once, rows have one width."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_server import ScriptedServer

from agentlite.config.settings import GrpoSettings
from agentlite.core.row_files import read_rows
from agentlite.engine.grpo import AnswerReward, LearnedRow
from agentlite.engine.local_sampler import Sample
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.stages.acting import prepare
from agentlite.stages.grpo_live import _rollouts
from agentlite.stages.grpo_trajectories import LiveRollouts, _of_one_prompt_length

TOOLS = [{"type": "function", "function": {"name": "note"}}]
TASKS = [
    {"id": name, "prompt": f"Tell me of {name}.", "gold": [[]], "user": {"goal": "Know all."}}
    for name in ("figs", "pears")
]


@pytest.fixture
def server():
    one = ScriptedServer(lambda body: "And then?")
    yield one
    one.close()


@pytest.fixture
def acting(tmp_path, server):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TASKS))
    settings = GrpoSettings(
        env=f"mock:{tmp_path / 'tools.json'}",
        tasks=str(tmp_path / "tasks.jsonl"),
        model="smollm2-135m",
        dev=0.0,
        test=0.0,
        batch_size=4,
        gradient_accumulation=1,
        group_size=2,
        tool_endpoint=(server.url,),
        tool_model="world",
        user_endpoint=(server.url,),
        user_model="anna",
        user_turns=2,
        endpoint_tries=1,
        max_failures=1.0,
    )
    return settings, prepare(_rollouts(settings), tmp_path, None)


def live(folder, acting, steps, template):
    settings, found = acting
    ids = (*template.encode("I see.", []), template.token_id(template.turn_end))

    def sample(requests, decoding):
        return [
            Sample(place, number, ids, "I see.", "turn", (-0.1,) * len(ids))
            for place, request in enumerate(requests)
            for number in range(len(request.seeds))
        ]

    scorer = RolloutScorer((task.kept for task in found.tasks), {})
    with LiveRollouts(folder, settings, found, scorer, {"gold_calls": 1.0}) as rollouts:
        return [rollouts.live(sample, [0, 1], step) for step in range(steps)]


@pytest.mark.long
def test_a_step_that_is_taken_again_asks_nothing_again(tmp_path, server, acting, smollm2):
    (folder := tmp_path / "grpo").mkdir()
    first = live(folder, acting, 2, smollm2)
    whole = (folder / "trajectories.jsonl").read_bytes()
    # two tasks, two turns of the user's: eight rollouts ask four questions
    assert len(server.bodies) == 4 and len(list(read_rows(folder / "trajectories.jsonl"))) == 8
    assert live(folder, acting, 2, smollm2) == first and len(server.bodies) == 4
    assert (folder / "trajectories.jsonl").read_bytes() == whole
    acting[1].forget_turns(folder)
    assert {path.name for path in folder.iterdir()} == {"trajectories.jsonl"}


@pytest.mark.long
def test_a_user_without_a_reply_costs_its_rollouts_and_moves_nothing(
    tmp_path, server, acting, smollm2
):
    server.reply = lambda body: "REFUSES" if "figs" in str(body) else "And then?"
    (folder := tmp_path / "grpo").mkdir()
    [rows] = live(folder, acting, 1, smollm2)
    ended = [(row["task"], row["ended"]) for row in read_rows(folder / "trajectories.jsonl")]
    assert sorted(ended) == [("figs", "unanswered")] * 2 + [("pears", "turns")] * 2
    earned = [row.reward.parts is not None for row in rows]
    assert earned == [name == "pears" for name, _ in ended]


@st.composite
def steps(draw: st.DrawFn) -> list[LearnedRow]:
    """Rows with prompts of any length. Some are of rollouts without a turn, but never all."""
    credited = draw(st.booleans())
    lengths = st.tuples(st.integers(1, 40), st.integers(1, 40))
    rows = []
    for number, (before, after) in enumerate(draw(st.lists(lengths, min_size=1, max_size=6))):
        if number and draw(st.booleans()):
            rows.append(LearnedRow([0], [0], [0], [0.0], AnswerReward({})))
            continue
        ids = [1000 * number + place for place in range(after)]
        mask = [1, *draw(st.lists(st.integers(0, 1), min_size=after - 1, max_size=after - 1))]
        likely = [-0.5 * sampled * (place + 1) for place, sampled in enumerate(mask)]
        advantages = [float(place) for place in range(after)] if credited else []
        prompt = [-one for one in range(1, before + 1)]
        rows.append(LearnedRow(prompt, ids, mask, likely, AnswerReward({}), advantages))
    return draw(st.permutations(rows))


def learned(row: LearnedRow) -> list[tuple[int, float, float]]:
    """Each token with a part in the loss, its log-probability and its own advantage."""
    advantages = row.advantages or [0.0] * len(row.ids)
    columns = zip(row.ids, row.mask, row.log_probabilities, advantages, strict=True)
    return [(token, likely, own) for token, sampled, likely, own in columns if sampled]


@given(steps())
def test_a_batch_is_as_wide_as_its_longest_row_and_the_same_tokens_are_learned(rows):
    """TRL pads prompts and what follows apart: without this a batch may be twice as wide."""
    cut = _of_one_prompt_length(rows)
    assert len({len(row.prompt) for row in cut}) == 1
    width = max(len(row.prompt) for row in cut) + max(len(row.ids) for row in cut)
    assert width <= max(len(row.prompt) + len(row.ids) for row in rows)
    for before, after in zip(rows, cut, strict=True):
        assert learned(after) == learned(before)
        credited = any(row.advantages for row in rows)
        assert len(after.advantages) == (len(after.ids) if credited else 0)
        if any(before.mask):
            assert [*after.prompt, *after.ids] == [*before.prompt, *before.ids]
