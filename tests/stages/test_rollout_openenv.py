"""`rollout` and `eval` in the environment of an OpenEnv server, from its tasks to the figures."""

import json

import pytest
from support.openenv_servers import served
from support.shop import call

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.row_files import read_rows
from agentlite.engine import act
from agentlite.environments.rollout import RolloutAnswer

pytestmark = pytest.mark.long  # a process for each world


@pytest.fixture
def acting(monkeypatch):
    """A model that guesses 5, and then by the hints, in place of one in memory."""

    def answers(sample, prompts, protocol, decoding):
        for n, prompt in enumerate(prompts):
            yield RolloutAnswer(n, call("step", number=5 + prompt.turn), "turn", 3)

    monkeypatch.setattr(act, "answers", answers)
    monkeypatch.setattr("agentlite.engine.load.load_for_inference", lambda *_: None)
    monkeypatch.setattr("agentlite.stages.acting.check_libraries", lambda _: None)


def given(folder, url, rows):
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = {"run": str(folder / "run"), "split": "all", "batch_size": 1, "call_seconds": 60.0}
    return {**run, "env": f"openenv:{url}", "tasks": str(folder / "tasks.jsonl")}


@pytest.mark.usefixtures("acting")
def test_a_model_is_measured_live(tmp_path):
    rows = [{"id": str(number), "reset": {"number": number}} for number in (5, 6, 2)]
    with served("guess") as url:
        made = given(tmp_path, url, rows)
        result = agentlite.evaluate(model=("smollm2-135m",), **made)
        assert agentlite.evaluate(model=("smollm2-135m",), **made).status == "up to date"
    found = result.figures["smollm2-135m"]
    assert found["metrics"]["env"]["mean"] == pytest.approx((1.0 + 0.75 - 0.75) / 3)
    assert found["endings"]["ended_by_done"]["mean"] == 1.0
    assert found["by"]["ended"]["done"]["prompts"] == 3
    (_,) = (tmp_path / "run/eval").glob("openenv-http-127.0.0.1-*")
    assert "Evaluation on openenv-http" in (tmp_path / "run/report.md").read_text()


def test_the_right_calls_become_rows_to_learn_from(tmp_path):
    guess = [{"name": "step", "arguments": {"number": number}} for number in (2, 4)]
    rows = [{"id": str(n), "reset": {"number": 4, "seed": n}, "gold": [guess]} for n in range(2)]
    with served("guess") as url:
        result = agentlite.rollout(model="gold", **given(tmp_path, url, rows))
    assert result.figures["ended"] == {"done": 2}
    assert result.figures["scores"] == {"gold_calls": 1.0, "env": 0.75}
    (first, _) = read_rows(tmp_path / "run/rollout/trajectories.jsonl")
    told = [one["content"] for one in first["messages"] if one["role"] != "assistant"]
    hint = json.dumps({"said": "too low", "left": 2})
    assert told == ["Guess a number between 1 and 9.", hint, "right"]
    prepared = agentlite.prep(
        run=str(tmp_path / "run"), trajectories=("rollout",), model="smollm2-135m"
    )
    assert prepared.status == "done"


def test_a_server_that_is_not_there_ends_the_run_with_its_reason(tmp_path):
    guess = [[{"name": "step", "arguments": {"number": 4}}]]
    rows = [{"id": str(n), "reset": {"number": n}, "gold": guess} for n in range(3)]
    with pytest.raises(UserError, match="the server cannot be reached") as found:
        agentlite.rollout(model="gold", **given(tmp_path, "http://127.0.0.1:1", rows))
    assert found.value.fix
