"""The lines of `agentlite runs`: units, one line for each stage, the command that frees disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentlite.cli.commands.runs import _print_stages, in_bytes, in_time, runs
from agentlite.cli.run_listing import ListedStage
from agentlite.workspace.run_folder import Plan, open_stage


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, ""),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (61144, "61 kB"),
        (10**6, "1 MB"),
        (2_500_000_000, "2.5 GB"),
        (5 * 10**12, "5000.0 GB"),
    ],
)
def test_a_size_has_the_largest_unit_that_there_is_one_of(count, words):
    assert in_bytes(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "60 min"),
        (3600, "1 h"),
        (86399, "24 h"),
        (86400, "1 days"),
    ],
)
def test_an_age_has_the_largest_unit_that_there_is_one_of(seconds, words):
    assert in_time(seconds) == words


def listed(stage: str, run: str = "runs/a b", **fields: Any) -> ListedStage:
    values = {"command": "sft", "state": "done", "detail": "", "figure": "loss 0.5"}
    sizes = {"bytes": 5000, "checkpoint_bytes": 2000, "age": 120.0}
    return ListedStage(run, stage, **{**values, **sizes, **fields})


def printed(capsys: Any, *stages: ListedStage) -> tuple[list[list[str]], str]:
    """The cells of the table, and what stands below it."""
    _print_stages([*stages], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    return [line.split() for line in lines[: len(stages) + 1]], "\n".join(lines[len(stages) + 1 :])


def test_a_line_has_the_size_of_the_stage_and_that_of_its_checkpoints(capsys):
    rows, _ = printed(capsys, listed("sft", detail="x"))
    assert rows[0] == ["stage", "state", "size", "checkpoints", "age"]
    assert rows[1] == ["sft", "done,", "x", "loss", "0.5", "5", "kB", "2", "kB", "2", "min"]


def test_only_the_checkpoints_of_finished_stages_are_offered_by_a_command_that_frees_them(capsys):
    stages = [
        listed("it's"),
        listed("half", state="half", checkpoint_bytes=10**6),
        listed("none", checkpoint_bytes=0),
        listed("dpo", checkpoint_bytes=3000),
    ]
    _, below = printed(capsys, *stages)
    assert below.startswith("5 kB are checkpoints of finished stages")
    command = """agentlite runs 'runs/a b' --rm 'it'"'"'s' --rm dpo"""
    assert below.endswith(command)
    _, below = printed(capsys, listed("sft", "runs/default"))
    assert below.endswith("agentlite runs --rm sft")
    assert printed(capsys, stages[1], stages[2])[1] == ""


def test_stages_of_several_workspaces_are_named_with_them_and_no_command_frees_all(capsys):
    rows, below = printed(capsys, listed("sft", "a"), listed("sft", "b"))
    assert [row[0] for row in rows[1:]] == ["a/sft", "b/sft"]
    assert below.startswith("4 kB are checkpoints") and "agentlite runs" not in below


def test_checkpoints_are_freed_in_each_workspace_that_is_named(tmp_path: Path, capsys: Any) -> None:
    for run in ("a", "b"):
        folder = tmp_path / run / "sft"
        with open_stage(folder, Plan("sft", {}, {}), force=False) as stage:
            (folder / "checkpoints").mkdir()
            (folder / "checkpoints/weights").write_bytes(b"x" * 1500)
            stage.finish([], {})
    folders = tuple(str(tmp_path / run) for run in ("a", "b"))
    given: Any = {"run": "", "names": ("sft",), "follow": False, "debug": False}
    runs(folders[:1], as_json=False, **given)
    assert capsys.readouterr().out == f"{folders[0]}/sft: 2 kB freed\n"
    runs(folders, as_json=True, **given)
    found = json.loads(capsys.readouterr().out)
    assert [(one["run"], one["bytes"]) for one in found["freed"]] == [
        (folders[0], 0),
        (folders[1], 1500),
    ]
    assert found["bytes"] == 1500
    runs(folders[:1], as_json=False, **given)
    assert capsys.readouterr().out == f"{folders[0]}/sft: nothing freed\n"
