"""`agentlite pairs --from rollout`: a pair is the turn at which the best and the worst part."""

import json
from typing import get_args

import msgspec
import pytest
from support.generated_rollouts import rollout as acted
from support.generated_rollouts import says
from support.generated_run import stage
from support.shop import call, shop, tasks

import agentlite
from agentlite.config.settings import DpoSettings
from agentlite.core.errors import UserError
from agentlite.core.row_files import read_rows
from agentlite.environments.rollout import RolloutAnswer
from agentlite.environments.trajectories import EndedBy
from agentlite.scoring.rewards import WITHOUT_GOLD
from agentlite.stages.dpo import read_preferences
from agentlite.stages.pairs.stored import usable_rollouts
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import finished_stage

pytestmark = pytest.mark.long

MODEL = "smollm2-135m"


def turns(item, sample):
    """Five ways through the shop: all buy one first and part then, but for the last one."""
    buy, wrong = call("buy", item=item), call("buy", item="melon")
    return {
        0: (buy, "One.", buy, "Two."),  # 1
        1: (buy, "One.", "I cannot.", "No."),  # 0.5
        2: (buy, "One.", wrong, buy, "Two."),  # 1, by another call
        3: (wrong, "None.", "I cannot.", "No."),  # 0
        4: (buy, "One.", buy, "Two."),  # as 0
    }[sample]


@pytest.fixture
def rollout(tmp_path, monkeypatch):
    def answers(sample, prompts, protocol, decoding):
        for n, prompt in enumerate(prompts):
            text = turns(prompt.key.task, prompt.key.sample)[prompt.turn]
            yield RolloutAnswer(n, text, "turn", len(text))

    monkeypatch.setattr("agentlite.stages.rollout.rollout_answers", answers)
    monkeypatch.setattr("agentlite.stages.rollout.load_for_inference", lambda *_: None)
    monkeypatch.setattr("agentlite.stages.rollout.check_libraries", lambda _: None)
    shop(tmp_path, tasks())

    def run(samples=5, **options):
        return agentlite.rollout(
            env=f"{tmp_path / 'shop.py'}:Shop",
            tasks=str(tmp_path / "tasks.jsonl"),
            model=MODEL,
            num_samples=samples,
            call_seconds=60.0,
            run=str(tmp_path / "run"),
            **options,
        )

    return run


def pairs(folder, **options):
    return agentlite.pairs(run=str(folder / "run"), **{"candidates": "rollout", **options})


def read(folder, name="pairs"):
    base = folder / "run" / name
    records = {row["id"]: row for row in read_rows(base / "records.jsonl")}
    return [(row, records[row["record_id"]]) for row in read_rows(base / "pairs.jsonl")]


def test_the_pair_is_the_first_turn_that_differs_with_the_dialog_before_it(tmp_path, rollout):
    rollout()
    result = pairs(tmp_path)
    assert result.figures["pairs"] == 4 == result.figures["tasks"]
    assert result.next == f"agentlite dpo --run {tmp_path / 'run'}"
    for pair, record in read(tmp_path):
        item = record["messages"][0]["content"].removeprefix("Buy a ").rstrip(".")
        # the best is the first of those that score 1; the worst bought nothing, from the start
        assert pair["chosen"]["text"] == call("buy", item=item)
        assert pair["rejected"]["text"] == call("buy", item="melon")
        # both are well-formed, which earns .1 where nobody knows the right calls
        assert (pair["chosen"]["total"], pair["rejected"]["total"]) == (1.1, 0.1)
        assert pair["turn"] == 1 and len(record["messages"]) == 2


def test_a_pair_may_begin_after_several_turns_and_dpo_reads_it(tmp_path, rollout):
    rollout(2)
    assert pairs(tmp_path).figures["mean_margin"] == 0.5
    for pair, record in read(tmp_path):
        assert pair["rejected"]["text"] == "I cannot." and pair["turn"] == 5
        roles = [message["role"] for message in record["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    settings = DpoSettings(data="pairs", model=MODEL, max_length=2048)
    template, stage = load_template(MODEL), finished_stage(tmp_path / "run/pairs", "pairs")
    rows = list(read_preferences(settings, stage, template))
    assert len(rows) == 4
    for row in rows:
        assert "1 in the cart" in template.tokenizer.decode(row.prompt)


def test_weights_of_what_is_counted_choose_the_shorter_way(tmp_path, rollout):
    rollout(3)
    # 0 and 2 both score 1: only a weight on failed calls tells them apart
    result = pairs(tmp_path, weights={"env": 0.0, "failed_calls": -1.0})
    for pair, _ in read(tmp_path):
        assert (pair["chosen"]["sample"], pair["rejected"]["sample"]) == (0, 2)
    assert result.figures["pairs"] == 4


def test_rollouts_whose_results_differ_before_they_part_have_no_prompt_in_common(tmp_path, rollout):
    shop(tmp_path, tasks(changes=True))
    rollout(2)
    figures = pairs(tmp_path, weights={"calls": -1.0}).figures
    assert figures["pairs"] == 0 and figures["no_pair"] == {"other results": 4}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"weights": {"env": -1.0}}, "-1 is no weight of a component"),
        ({"weights": {"turns": 0.5}}, "0.5 is no weight of a penalty"),
        ({"weights": {"tool_accuracy": 1.0}}, "no component 'tool_accuracy'"),
        ({"weights": {"accuracy": 1.0}}, "no component 'accuracy'"),
        ({"rewards": ("mine.py:f",)}, "no such file"),
        ({"weights": dict.fromkeys(("env", *WITHOUT_GOLD), 0.0)}, "all are zero"),
    ],
)
def test_a_mistake_is_refused(tmp_path, rollout, options, problem):
    rollout(2)
    with pytest.raises(UserError) as found:
        pairs(tmp_path, **options)
    assert problem in found.value.problem and found.value.exit_code == 2


OWN = """
def steady(attempt):
    # the whole trace: no call failed, and what the task, the world and the end say
    assert attempt.row["prompt"].startswith("Buy") and attempt.ended == "user"
    assert {*attempt.scores} == {"env"} and attempt.messages[0].role == "user"
    if broken(attempt):
        raise ValueError("no wish")
    return float(all(step.ok and "in the cart" in step.result for step in attempt.trace))

def broken(attempt):
    return False
"""


def own(folder, broken="False", name="own.py"):
    text = OWN.replace("return False", f"return {broken}")
    (folder / name).write_text(text, encoding="utf-8")
    return (f"{folder / name}:steady",)


def test_a_reward_of_the_user_is_given_the_whole_trace_and_weighs_1(tmp_path, rollout):
    rollout(3)
    # 0 and 2 both earn 1 in the shop; by 2 a call failed
    rewards = own(tmp_path)
    pairs(tmp_path, rewards=rewards, weights={"env": 0.0})
    for pair, _ in read(tmp_path):
        assert (pair["chosen"]["sample"], pair["rejected"]["sample"]) == (0, 2)
        assert (pair["chosen"]["total"], pair["rejected"]["total"]) == (1.1, 0.1)
    scores = list(read_rows(tmp_path / "run/pairs/scores.jsonl"))
    assert [row["components"]["steady"] for row in scores] == [1.0, 1.0, 0.0] * 4
    stats = json.loads((tmp_path / "run/pairs/stats.json").read_bytes())
    assert stats["weights"]["steady"] == 1.0
    half = {"env": 0.0, "steady": 0.5}
    figures = pairs(tmp_path, rewards=rewards, weights=half, out="half").figures
    assert (figures["pairs"], figures["mean_margin"], figures["failed_rewards"]) == (4, 0.5, 0)
    shorter = {"env": 0.0, "steady": 0.0, "turns": -1.0}
    pairs(tmp_path, rewards=rewards, weights=shorter, out="shorter")
    for pair, _ in read(tmp_path, "shorter"):
        assert pair["chosen"]["sample"] == 1  # the one that gave up has the fewest turns


def stored(folder, *rows, command="rollout"):
    settings = {"model": MODEL, "protocol": "hermes", "split": "train"}
    plan = {"command": command, "settings": settings, "inputs": {}}
    stage(folder, plan, {"trajectories.jsonl": map(msgspec.to_builtins, rows)}, {})
    return folder


@pytest.mark.parametrize("ended", get_args(EndedBy))
def test_a_rollout_whose_dialog_is_not_whole_is_left_out(tmp_path, ended):
    whole = acted("fig", [says("Done.")], {"env": 1.0})
    other = acted("fig", [says("Done.")], {"env": 0.0}, sample=1, ended=ended)
    found = usable_rollouts(stored(tmp_path / "rollout", whole, other), {})
    kept = ended not in ("world", "unanswered", "unwritten")
    assert [one.sample for one in found] == [0, 1][: 1 + kept]
