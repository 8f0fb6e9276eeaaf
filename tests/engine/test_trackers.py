"""--report-to: a tracker follows the run as metrics.jsonl does, and none is asked by itself."""

import importlib.util
from pathlib import Path
from typing import Any, get_args

import pytest
from support import processes
from support.samples import DATA

import agentlite
from agentlite.config.settings import Tracker
from agentlite.core.errors import MODEL, UserError
from agentlite.core.row_files import read_rows
from agentlite.engine.trackers import check_trackers
from agentlite.workspace import run_folder

STEPS = 3


@pytest.mark.parametrize("name", get_args(Tracker))
def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_loaded(name, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one: None if one == name else find(one))
    with pytest.raises(UserError, match=f"pip install {name}") as refused:
        check_trackers([name])
    assert "setup.sh" not in refused.value.fix
    assert refused.value.exit_code == MODEL and refused.value.location == f"--report-to {name}"
    check_trackers([])


def trained(run: Path, model: Path, name: str) -> list[float]:
    """The losses of metrics.jsonl, after a short run that `name` followed."""
    agentlite.prep(str(DATA / "weather.jsonl"), run=str(run), model=str(model), dev=0.0)
    # in a process of its own: trackio reads its folder when it is imported, and TRL imports it
    words = ["sft", "--run", run, "--max-steps", STEPS, "--engine", "hf", "--report-to", name]
    done = processes.agentlite(*words, new=True)
    assert done.returncode == 0, done.stderr.decode()
    assert "report_to" not in run_folder.read_plan(run / "sft").settings
    again = agentlite.sft(run=str(run), max_steps=STEPS, engine="hf")
    assert again.status == "up to date"  # who follows a run does not change it
    return [row["loss"] for row in read_rows(run / "sft/metrics.jsonl")]


def test_tensorboard_has_the_losses_of_the_run(tiny_model, tmp_path):
    events: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: scripts/setup.sh installs it",
    )
    losses = trained(tmp_path / "run", tiny_model, "tensorboard")
    written = events.EventAccumulator(str(tmp_path / "run/sft/tensorboard")).Reload()
    scalars = written.Scalars("train/loss")
    assert [one.step for one in scalars] == [1, 2, 3]
    assert [one.value for one in scalars] == pytest.approx(losses, abs=1e-3)
