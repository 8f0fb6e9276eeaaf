"""Eval without a model: what is asked again, what a plan holds, how folders are
named.
"""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.config.settings import EvalSettings
from agentlite.core.errors import UserError
from agentlite.core.records import GreedyAnswer, Step
from agentlite.core.row_files import read_rows
from agentlite.rendering import Prompt
from agentlite.stages import eval as stage_of_eval
from agentlite.workspace.model_source import Source
from agentlite.workspace.run_folder import Plan, open_stage

ask = importlib.import_module("agentlite.stages.eval.ask")
SETTINGS = EvalSettings(max_length=100, max_new_tokens=40)
SOURCE = Source("m", "base", None, "digest")


def prompt(name: str, length: int) -> Prompt:
    record: Any = SimpleNamespace(id=name)
    return Prompt(record, 1, "hermes", [7] * length, "", "turn")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Answers whatever it is asked; the names of what it was asked, run by run."""
    asked: list[list[str]] = []

    def answer(settings: Any, source: Any, prompts: Any, protocols: Any, keys: Any) -> Any:
        asked.append([one.record.id for one in prompts])
        for one in prompts:
            yield GreedyAnswer(*one.step, keys[one.step], f"to {one.record.id}", "turn", 3)

    monkeypatch.setattr(ask, "_ask_model", answer)
    return asked


def run(folder: Path, *prompts: Prompt) -> dict[str, str]:
    with open_stage(folder, Plan("eval", {}, {}), force=False) as stage:
        found = ask.ask(SETTINGS, SOURCE, prompts, {}, stage)
        stage.finish([ask.ANSWERS], {})
    return {step.record_id: answer.text for step, answer in found.items()}


def test_only_what_was_not_asked_with_these_very_words_is_asked(tmp_path, model, capsys):
    folder = tmp_path / "m"
    assert run(folder, prompt("a", 5), prompt("b", 6)) == {"a": "to a", "b": "to b"}
    assert "eval: m, 2 prompts\n" in capsys.readouterr().err
    assert run(folder, prompt("a", 5)) == {"a": "to a"}
    assert run(folder, prompt("a", 5), prompt("b", 9), prompt("c", 3)).keys() == {*"abc"}
    assert "eval: m, 2 prompts, 1 there already\n" in capsys.readouterr().err
    assert model == [["a", "b"], ["b", "c"]]
    rows = [row["record_id"] for row in read_rows(folder / "answers.jsonl")]
    assert rows == ["a", "b", "b", "c"]


def test_a_prompt_without_room_for_an_answer_is_cut_and_no_model_is_loaded_for_it(
    tmp_path, model, capsys
):
    found = run(tmp_path / "m", prompt("fits", 60), prompt("long", 61))
    assert found == {"fits": "to fits", "long": ""} and model == [["fits"]]
    assert "1 prompts are longer than 60 tokens: they score 0" in capsys.readouterr().err
    assert run(tmp_path / "other", prompt("long", 61)) == {"long": ""} and len(model) == 1
    [row] = read_rows(tmp_path / "other/answers.jsonl")
    assert (row["ended"], row["prompt"]) == ("cut", "")


def test_answers_that_were_changed_are_asked_again(tmp_path, model):
    folder = tmp_path / "m"
    run(folder, prompt("a", 5))
    (folder / "answers.jsonl").write_bytes(b"")
    assert run(folder, prompt("a", 5)) == {"a": "to a"} and len(model) == 2
    assert (folder / "answers.jsonl.broken").read_bytes() == b""


def test_a_run_that_stops_leaves_its_answers_and_no_finished_stage(tmp_path, model, monkeypatch):
    folder = tmp_path / "m"
    run(folder, prompt("a", 5))

    def stops(settings: Any, source: Any, prompts: Any, protocols: Any, keys: Any) -> Any:
        yield GreedyAnswer("b", 1, keys[Step("b", 1)], "to b", "turn", 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(ask, "_ask_model", stops)
    with pytest.raises(KeyboardInterrupt):
        run(folder, prompt("a", 5), prompt("b", 6), prompt("c", 7))
    assert not (folder / "done.json").exists()
    assert ask.answered_steps(folder) == {Step("a", 1), Step("b", 1)}
    with open(folder / "answers.jsonl", "ab") as file:
        file.write(b'{"record_id": "c", "turn"')
    assert ask.answered_steps(folder) == {Step("a", 1), Step("b", 1)}
    assert ask.answered_steps(tmp_path / "none") == set()


# --- names and plans ---


OF_THE_ANSWER = {  # by hand: what changes a completion
    "split",
    "retrieve",
    "retrieve_by",
    "engine",
    "attn_implementation",
    "max_length",
    "max_new_tokens",
    "load_in_4bit",
    "load_in_8bit",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 2048}, "leaves no room for a prompt"),
        ({"max_new_tokens": 2047}, ""),
        ({"judge_prices": (0.5,)}, "are two"),
        ({"judge_prices": (0.5, 1.5, 2.0)}, "are two"),
        ({"judge_prices": (0.5, 1.5)}, ""),
        ({"judge": "http://h/v1"}, "which model is the judge"),
        ({"judge": "http://h/v1", "judge_model": "m"}, ""),
        ({"endpoint": "http://h/v1"}, "which of its models"),
        ({"endpoint": "http://h/v1", "model": ("m",)}, ""),
        (
            {"endpoint": "http://h/v1", "model": ("m",), "num_samples": 2},
            "needs the model itself",
        ),
        ({"endpoint": "http://h/v1", "model": ("m",), "general": "g"}, "needs the model itself"),
        ({"retrieve": 3, "predictions": ("p",)}, "have prompts without the tools"),
        ({"retrieve": 3}, ""),
        ({"predictions": ("p",)}, ""),
    ],
    ids=str,
)
def test_settings_that_cannot_go_together_are_refused_first(changes, message):
    if not message:
        stage_of_eval._check_settings(EvalSettings(**changes))
        return
    with pytest.raises(UserError, match=message) as refused:
        stage_of_eval._check_settings(EvalSettings(**changes))
    assert refused.value.exit_code == 2 and refused.value.fix and refused.value.location


# --- folders side by side ---


# --- pass^k ---
