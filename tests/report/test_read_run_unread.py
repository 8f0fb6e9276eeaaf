"""A report names the files and stages that it passes over, where it would have shown them."""

import pytest
from support.generated_run import stage

from agentlite.report.read_run import read_run, with_models

SHOWN = (
    "metrics.jsonl",
    "stats.json",
    "metrics.json",
    "trajectories.jsonl",
    "table.json",
    "costs.json",
)


def made(folder, command, *files):
    plan = {"command": command, "settings": {}, "inputs": {}}
    stage(folder, plan, {name: [] for name in files}, {}, {"metrics": {}})


@pytest.mark.parametrize("name", [*SHOWN, "adapter.safetensors"])
def test_a_changed_file_is_named_where_a_report_shows_it(name, tmp_path):
    """Others are large, and not read again for each report."""
    made(tmp_path / "sft", "sft", *{name} - {"metrics.json"})
    assert read_run(tmp_path).unread == []
    (tmp_path / "sft" / name).write_text("changed")
    named = [sentence.partition(" ")[0] for sentence in read_run(tmp_path).unread]
    assert named == ([name] if name in SHOWN else [])


def test_what_was_given_up_is_not_mentioned(tmp_path):
    for folder, command in ((tmp_path / "sft", "sft"), (tmp_path / "eval/prep/m", "eval")):
        made(folder, command)
        (folder / "done.json").unlink()
        (folder / "plan.json").rename(folder / "failed.json")
    run = read_run(tmp_path)
    assert (run.stages, run.evaluations, run.unread) == ([], [], [])


def test_an_evaluation_of_which_nothing_was_read_goes_only_where_models_are_chosen(tmp_path):
    made(tmp_path / "eval/prep/m", "eval")
    (tmp_path / "eval/prep/m/done.json").unlink()
    run = read_run(tmp_path)
    assert len(run.evaluations) == 1 and with_models(run, []) == run
    assert with_models(run, ["m"]).evaluations == []
