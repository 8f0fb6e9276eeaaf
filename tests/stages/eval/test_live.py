"""`agentlite eval --env`: each model acts in every task, is measured and compared, and resumes."""

import json

import pytest
from support.shop import call, scripted, shop, tasks

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.row_files import read_rows
from agentlite.environments.rollout import RolloutAnswer


@pytest.fixture
def acting(monkeypatch):
    """Two models in place of one in memory: the second one buys, the first one only talks."""

    def answers(sample, prompts, protocol, decoding):
        (loaded,) = sample.args
        if loaded == "hf-internal-testing/tiny-random-LlamaForCausalLM":
            yield from (RolloutAnswer(n, "I cannot.", "turn", 3) for n in range(len(prompts)))
        elif decoding.temperature == 0:
            yield from scripted(prompts)
        else:  # a sample that is right in half of the draws
            for n, prompt in enumerate(prompts):
                item = prompt.key.task if prompt.key.sample else "melon"
                said = (call("buy", item=item), "One.", call("buy", item=item), "Two.")
                yield RolloutAnswer(n, said[prompt.turn], "turn", 3)

    monkeypatch.setattr("agentlite.stages.rollout.rollout_answers", answers)
    monkeypatch.setattr(
        "agentlite.stages.rollout.load_for_inference", lambda source, loading: source.name
    )
    monkeypatch.setattr("agentlite.stages.rollout.check_libraries", lambda _: None)


GOOD, TALKER = "smollm2-135m", "tiny"


@pytest.fixture
def models(tmp_path, monkeypatch, acting):
    """TALKER is a folder with the same tokenizer."""
    find = agentlite.stages.rollout.find_model

    def found(name, run, begun=None):
        source = find(GOOD, run, begun)
        if name == TALKER:
            talker = "hf-internal-testing/tiny-random-LlamaForCausalLM"
            return source._replace(name=talker, digest="talker")
        return source

    monkeypatch.setattr("agentlite.stages.rollout.find_model", found)
    shop(tmp_path, tasks())
    return tmp_path


def evaluate(folder, *models, **options):
    made = {"env": f"{folder / 'shop.py'}:Shop", "tasks": str(folder / "tasks.jsonl")}
    defaults = {"split": "all", "call_seconds": 60.0, "batch_size": 3}
    run = str(folder / "run")
    return agentlite.evaluate(run=run, model=models, **{**made, **defaults, **options})


BASE = "run/eval/shop.py-Shop"


@pytest.mark.long
def test_two_models_are_measured_live_and_set_side_by_side(models):
    result = evaluate(models, TALKER, GOOD, gate="env>=1,tool_errors<=0")
    assert result.status == "done" and not result.failed
    talker, good = result.figures[TALKER], result.figures[GOOD]
    assert talker["metrics"]["env"]["mean"] == 0 and "tool_errors" not in talker["metrics"]
    assert good["metrics"]["env"]["mean"] == 1 and good["metrics"]["env"]["count"] == 4
    assert good["by"]["ended"]["user"]["prompts"] == 4 == good["prompts"]
    compared = json.loads((models / BASE / "compare.json").read_bytes())
    assert compared["models"] == [TALKER, GOOD] and compared["prompts"] == 4
    rows = {row["metric"]: row for row in compared["differences"]}
    assert (rows["env"]["mean"], rows["env"]["count"]) == (1.0, 4)
    assert rows["timeout"]["mean"] == 0 and "repeated_calls" not in rows
    assert result.sentences[0] == f"{GOOD} completes 4 of 4 tasks; {TALKER} for 0."
    page = (models / "run/report.html").read_text(encoding="utf-8")
    assert "<b>shop.py-Shop</b>" in page and result.sentences[0] in page
    assert evaluate(models, TALKER, GOOD).status == "up to date"


@pytest.mark.long
def test_a_figure_of_the_user_is_measured_compared_and_gated(models):
    text = """
def quiet(attempt):
    assert {*attempt.scores} == {"env"} and attempt.row["item"] and attempt.ended == "user"
    return 1 / len(attempt.trace) if attempt.trace else 0.0

def broken(attempt):
    raise ValueError("no wish")
"""
    (models / "own.py").write_text(text, encoding="utf-8")
    own = (f"{models / 'own.py'}:quiet",)
    result = evaluate(models, TALKER, GOOD, rewards=own, gate="quiet>=0.3")
    assert not result.failed
    assert result.figures[GOOD]["metrics"]["quiet"]["mean"] == pytest.approx(1 / 3)
    rows = json.loads((models / BASE / "compare.json").read_bytes())["differences"]
    assert "quiet" in {row["metric"] for row in rows}
    assert evaluate(models, GOOD, rewards=own, gate="quiet>=0.5").failed
    assert evaluate(models, TALKER, GOOD, rewards=own).status == "up to date"
    with pytest.raises(UserError) as found:
        evaluate(models, GOOD, rewards=(f"{models / 'own.py'}:broken",))
    assert found.value.exit_code == 4 and "no wish" in found.value.problem
    with pytest.raises(UserError) as found:
        evaluate(models, GOOD, rewards=own, env="")
    assert "eval.rewards" in str(found.value) and "no --env" in found.value.problem


@pytest.mark.long
def test_samples_say_how_often_all_of_k_are_right(models):
    figures = evaluate(models, GOOD, num_samples=2).figures[GOOD]
    assert figures["passes"]["pass^1"]["mean"] == 0.5 and figures["passes"]["pass^2"]["mean"] == 0
    assert figures["metrics"]["env"]["mean"] == 1  # of the greedy rollouts alone
    rows = list(read_rows(models / BASE / GOOD / "samples.jsonl"))
    assert len(rows) == 8
    assert evaluate(models, GOOD, num_samples=2).status == "up to date"


@pytest.mark.long
def test_bfcls_verdict_is_a_figure_and_holds_for_the_gate(models):
    shared = {"model": (TALKER,), "split": "all", "limit": 1, "max_length": 8192}
    result = agentlite.evaluate(
        env="bfcl:multi_turn_base", gate="bfcl>=0.5", run=str(models / "run"), **shared
    )
    figures = result.figures[TALKER]
    assert figures["metrics"]["bfcl"]["mean"] == 0
    assert len(result.failed) == 1 and "bfcl" in result.failed[0]
    # a talker calls nothing: the first turn is wrong, and so are all behind it
    [row] = read_rows(models / "run/eval/bfcl-multi_turn_base" / TALKER / "trajectories.jsonl")
    assert {turn["turn_right"] for turn in row["by_turn"]} == {0}


@pytest.mark.parametrize(
    ("options", "location", "problem"),
    [
        ({"predictions": ("x.jsonl",)}, "eval.predictions", "is for recorded dialogs"),
        ({"judge": "http://x/v1"}, "eval.judge", "is for recorded dialogs"),
        ({"ratings": ("x.csv",)}, "eval.ratings", "is for recorded dialogs"),
        ({"split": "dev", "dev": 0.0}, None, "none of 4 tasks is in split dev"),
        ({"max_length": 300, "max_new_tokens": 290}, None, "longer than 10 tokens"),
        ({"env": "shop"}, "--env", "names no environment"),
    ],
)
def test_what_cannot_be_measured_is_refused(models, options, location, problem):
    with pytest.raises(UserError) as found:
        evaluate(models, GOOD, **options)
    assert problem in found.value.problem and found.value.exit_code == 2
    assert location in (None, found.value.location)
