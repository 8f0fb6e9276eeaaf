"""What eval measures anew, and what its extra metrics are given."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.samples import DATA
from support.scripted_server import ScriptedServer

import agentlite
from agentlite.config.settings import EvalSettings
from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows, write_rows
from agentlite.stages import eval as stage_of_eval
from agentlite.stages.eval.subjects import EvalSubject
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import Source
from agentlite.workspace.run_folder import Plan

SOURCE = Source("m", "base", None, "digest")


@pytest.mark.long
def test_the_same_answers_are_measured_again_only_under_another_seed_or_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"run": str(tmp_path)}
    rows = str(DATA / "weather.jsonl")
    agentlite.prep(rows, **run, model="smollm2-135m", protocol="hermes", dev=0.0, test=0.6)
    asked = [
        {"record_id": one.id, "turn": turn, "text": "No."}
        for one in map(from_row, read_rows(tmp_path / "prep" / "test.jsonl"))
        for turn in one.prompted_turns
    ]
    write_rows(tmp_path / "said.jsonl", asked)
    seeds, measure = [], stage_of_eval.figures

    def measuring(predictions: Any, whole: Any, every: Any, seed: int) -> Any:
        seeds.append(seed)
        return measure(predictions, whole, every, seed)

    monkeypatch.setattr(stage_of_eval, "figures", measuring)
    said = {**run, "predictions": [str(tmp_path / "said.jsonl")]}
    assert [agentlite.evaluate(**said).status for _ in range(2)] == ["done", "up to date"]
    assert agentlite.evaluate(**said, seed=1).status == "done" and seeds == [0, 1]
    assert agentlite.evaluate(**said, seed=1, limit=1).figures["said"]["prompts"] >= 1
    assert seeds == [0, 1, 1]


@pytest.mark.long
def test_all_files_of_an_evaluation_are_its_outputs_and_edited_answers_are_asked_again(
    tmp_path: Path,
) -> None:
    server = ScriptedServer(lambda _: "No.")
    run = {"run": str(tmp_path)}
    rows = str(DATA / "weather.jsonl")
    agentlite.prep(rows, **run, model="smollm2-135m", protocol="hermes", dev=0.0, test=0.6)

    def evaluated() -> str:
        return agentlite.evaluate(**run, model="m", endpoint=(server.url,)).status

    try:
        assert [evaluated(), evaluated()] == ["done", "up to date"]
        asked = len(server.bodies)
        (folder,) = (path.parent for path in (tmp_path / "eval").rglob("done.json"))
        there = {path.name for path in folder.iterdir() if path.is_file()}
        outputs = {*run_folder.read(folder).trusted().done.outputs}
        assert there - outputs == {"plan.json", "done.json", ".lock"} and "answers.jsonl" in outputs
        answers = folder / "answers.jsonl"
        whole = sorted(answers.read_bytes().splitlines())
        answers.write_bytes(answers.read_bytes().replace(b"No.", b"Yes.", 1))
        assert evaluated() == "done"
        assert sorted(answers.read_bytes().splitlines()) == whole
        assert len(server.bodies) == 2 * asked > 0
    finally:
        server.close()


@pytest.mark.parametrize("seed", [0, 5])
def test_samples_for_passes_are_drawn_as_the_settings_say(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(
        stage_of_eval, "pass_metrics", lambda *args, batch_size: given.append((args, batch_size))
    )
    settings = EvalSettings(
        num_samples=3, temperature=0.7, seed=seed, max_new_tokens=9, batch_size=5
    )
    answers: Any = SimpleNamespace(
        prompts=["p"], mixture=SimpleNamespace(protocols={}), identity=None
    )
    stage: Any = SimpleNamespace(folder=tmp_path)
    subject = EvalSubject("m", Plan("eval", {}, {}), SOURCE)
    data: Any = None
    extra = stage_of_eval._extra_metrics(settings, subject, SOURCE, data, answers, stage)
    [((source, name, prompts, _, _, decoding, file), batch_size)] = given
    assert (source, name, prompts, batch_size) == (SOURCE, "m", ["p"], 5)
    assert (decoding.num_samples, decoding.temperature, decoding.seed) == (3, 0.7, seed)
    assert decoding.max_new_tokens == 9 and file == tmp_path / "samples.jsonl"
    assert extra["passes_are"].temperature == 0.7 and {*extra} == {"passes", "passes_are"}


@pytest.mark.parametrize(
    ("first", "measured"), [(SOURCE, False), (SOURCE._replace(digest="of the start"), True)]
)
def test_what_was_forgotten_is_measured_against_the_first_model_and_never_against_itself(
    first: Source, measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(stage_of_eval, "forgetting_metrics", lambda *args, **_: given.append(args))
    settings = EvalSettings(general="general.jsonl")
    answers: Any = SimpleNamespace(prompts=[], mixture="hermes", identity=None)
    subject, data = EvalSubject("m", Plan("eval", {}, {}), SOURCE._replace(name="sft")), None
    stage: Any = SimpleNamespace(folder=tmp_path)
    extra = stage_of_eval._extra_metrics(settings, subject, first, data, answers, stage)  # type: ignore[arg-type]
    assert bool(given) is measured is ("forgetting_is" in extra)
    if measured:
        assert given[0][:3] == (first, subject.source, "general.jsonl")
        found = extra["forgetting_is"]
        assert (found.general, found.before, found.after) == ("general.jsonl", "m", "sft")
