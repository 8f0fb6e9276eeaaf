"""What Python callers give and what is said before a stage runs."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentlite
from agentlite.config import this_machine
from agentlite.core.errors import UserError
from agentlite.stages import api


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(this_machine, "find_gpu", lambda: this_machine.Gpu("Tesla T4", 15, 13, 7.5))


@pytest.mark.parametrize("listed", [False, True])
def test_files_and_assignments_are_one_or_several_and_none_is_a_default(card, monkeypatch, listed):
    monkeypatch.setattr(api, "execute", lambda command, settings, target: settings)
    read_end, write_end = os.pipe()  # as `--config <(...)` of a shell: what was read is gone
    os.write(write_end, b"eval: {limit: 5}\n")
    os.close(write_end)
    texts = [f"/dev/fd/{read_end}", "eval.max_length=99"]
    file, sets = [[text] for text in texts] if listed else texts
    found: Any = agentlite.evaluate(config=file, set=sets, profile="cpu", seed=None, batch_size=3)
    assert (found.limit, found.max_length, found.seed, found.batch_size) == (5, 99, 0, 3)


def test_a_stage_that_runs_alone_is_refused_in_one_of_several_processes(monkeypatch):
    ran: list[str] = []
    module: Any = SimpleNamespace(run=lambda settings, target: ran.append("ran"))
    monkeypatch.setitem(sys.modules, "agentlite.stages.pairs", module)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="pairs runs in one process, and this is one of 2"):
        api.execute("pairs", None, None)  # type: ignore[arg-type]
    assert ran == []
    monkeypatch.setenv("WORLD_SIZE", "1")
    api.execute("pairs", None, None)  # type: ignore[arg-type]
    assert ran == ["ran"]


def test_a_path_may_stand_wherever_a_text_may(tmp_path, monkeypatch):
    monkeypatch.setattr(api, "execute", lambda command, settings, target: (target, settings))
    path, config = tmp_path / "a.jsonl", tmp_path / "own.yaml"
    config.write_text("eval: {seed: 5}\n", encoding="utf-8")
    options = {"data": path, "predictions": [path, str(path)], "config": config}
    called: Any = agentlite.evaluate(**options, run=tmp_path, out=Path("new"))
    target, settings = called
    assert target.folder == tmp_path / "new" and settings.seed == 5
    assert (settings.data, settings.predictions) == (str(path), (str(path), str(path)))
