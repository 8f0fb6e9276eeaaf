"""What a report reads of a run, in which order, and what it makes of answers and inputs."""

import json

from support.generated_run import stage

from agentlite.core.records import Call, Gold, Message, Record, Step, to_row
from agentlite.report import write_report
from agentlite.report.read_run import read_run
from agentlite.report.readers import read_prediction_rows
from agentlite.workspace.input_files import file_digest


def made(folder, command, settings=None, inputs=None, rows=None, figures=None, metrics=None):
    plan = {"command": command, "settings": settings or {}, "inputs": inputs or {}}
    stage(folder, plan, rows or {}, figures or {}, metrics)


def evaluated(run, *names):
    for name in names:
        rows = {"predictions.jsonl": [{"name": name}]}
        made(run / "eval" / "prep" / name, "eval", rows=rows, metrics={"metrics": {}})


def test_a_stage_is_finished_where_it_says_so_and_has_its_figures_then(tmp_path):
    made(tmp_path / "sft", "sft", {"seed": 1}, {"data": "ab"}, figures={"loss": 0.5})
    made(tmp_path / "dpo", "dpo")
    (tmp_path / "dpo" / "done.json").unlink()
    run = read_run(tmp_path)
    sft, dpo = run.stage("sft"), run.stage("dpo")
    assert (sft.figures, sft.plan.settings, sft.plan.inputs) == (
        {"loss": 0.5},
        {"seed": 1},
        {"data": "ab"},
    )
    assert (dpo.done, dpo.figures, dpo.outputs) == (None, {}, {})
    [unread] = run.unread
    assert unread.startswith("Not read: dpo (not finished). `agentlite runs` ")


def test_models_stand_in_the_order_in_which_they_were_compared_and_others_follow(tmp_path):
    evaluated(tmp_path, "a", "b", "c", "d")
    compare = tmp_path / "eval" / "prep" / "compare.json"
    compare.write_text(json.dumps({"models": ["d", "b"]}))
    (evaluation,) = read_run(tmp_path).evaluations
    assert [*evaluation.models] == ["d", "b", "a", "c"] and evaluation.name == "prep"


def test_a_comparison_is_current_while_the_predictions_are_those_that_were_compared(tmp_path):
    evaluated(tmp_path, "a", "b")
    folder = tmp_path / "eval" / "prep"
    digests = {name: file_digest(folder / name / "predictions.jsonl") for name in "ab"}

    def is_current(predictions):
        compared = {"models": ["a", "b"], "predictions": predictions}
        (folder / "compare.json").write_text(json.dumps(compared))
        return read_run(tmp_path).evaluations[0].is_current

    assert is_current(digests) and is_current({"a": digests["a"]}) and is_current({})
    assert not is_current({**digests, "b": "0" * 64})
    assert not is_current({**digests, "gone": digests["a"]})


def test_a_file_of_a_stage_is_read_only_as_it_was_left(tmp_path):
    made(tmp_path / "sft", "sft", rows={"metrics.jsonl": [{"step": 1}]}, metrics={"a": 1})
    (found,) = read_run(tmp_path).stages
    assert found.rows("metrics.jsonl") == [{"step": 1}] and found.json("metrics.json") == {"a": 1}
    assert found.json("none.json") == {} and found.rows("none.jsonl") == []
    (tmp_path / "sft" / "metrics.json").write_text('{"a": 2}')
    run = read_run(tmp_path)
    assert run.stages[0].json("metrics.json") == {}
    [unread] = run.unread
    assert "sft (metrics.json has changed since the stage wrote it)" in unread
    assert run.stage("sft") is run.stages[0] and run.stage("dpo") is None


def expecting(*names):
    calls = tuple(Call(name, {}, f"c{n}") for n, name in enumerate(names))
    return Record(
        messages=(Message("user", str(names)), Message("assistant", "", calls)),
        gold={} if names else {1: Gold()},
    )


def answer(*called, problem=""):
    return {"calls": [{"name": name, "arguments": "{}"} for name in called], "problem": problem}


def test_answers_come_with_the_records_of_the_very_file_they_were_asked_from(tmp_path):
    asked, other = expecting("a"), expecting("b")
    made(tmp_path / "prep", "prep", rows={"test.jsonl": map(to_row, [asked, other])})
    made(tmp_path / "prep-2", "prep", rows={"test.jsonl": [to_row(other)]})
    row = {"record_id": asked.id, "turn": 1, **answer("a")}
    digest = file_digest(tmp_path / "prep" / "test.jsonl")
    folder = tmp_path / "eval" / "prep" / "m"
    made(folder, "eval", inputs={"data": digest}, rows={"predictions.jsonl": [row]}, metrics={})
    run = read_run(tmp_path)
    found = read_prediction_rows(run, run.evaluations[0])
    assert found.records == {asked.id: asked}
    assert found.by_step == {Step(asked.id, 1): {"m": row}}
    (tmp_path / "prep" / "test.jsonl").write_text("")
    assert read_prediction_rows(run, run.evaluations[0]).records == {}


def test_the_page_is_written_whole(tmp_path, disk_calls):
    assert write_report(tmp_path) == tmp_path / "report.html"
    renamed = [call.split()[-1] for call in disk_calls if call.startswith("rename")]
    assert renamed == ["report.html"]
