"""Rollouts of a training whose users a model plays: no step asks again what one has asked."""

import json

import pytest
from support.scripted_server import ScriptedServer

from agentlite.config.settings import GrpoSettings
from agentlite.core.row_files import read_rows
from agentlite.engine.local_sampler import Sample
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.stages.acting import prepare
from agentlite.stages.grpo_live import _rollouts
from agentlite.stages.grpo_trajectories import LiveRollouts

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
