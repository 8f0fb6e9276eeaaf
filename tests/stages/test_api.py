"""What Python callers give and what is said before a stage runs."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentlite
from agentlite.config import gpu_profiles, resolve
from agentlite.config.metavars import choices, without_marks
from agentlite.config.pipeline import STAGES
from agentlite.config.settings import fields
from agentlite.core.errors import UserError
from agentlite.stages import api
from agentlite.workspace.run_folder import RunTarget


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu_profiles, "card", lambda: gpu_profiles.Gpu("Tesla T4", 15, 13, 7.5))


@pytest.mark.parametrize("listed", [False, True])
def test_files_and_assignments_are_one_or_several_and_none_is_a_default(
    card, tmp_path, monkeypatch, listed
):
    monkeypatch.setattr(api, "execute", lambda command, settings, target: settings)
    (tmp_path / "a.yaml").write_text("eval: {limit: 5}\n", encoding="utf-8")
    files, sets = "a.yaml", "eval.max_length=99"
    found: Any = agentlite.evaluate(
        config=[files] if listed else files,
        set=[sets] if listed else sets,
        profile="cpu",
        seed=None,
        batch_size=3,
    )
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


def given_by(
    monkeypatch: pytest.MonkeyPatch, command: str, **options: object
) -> tuple[RunTarget, Any]:
    """Where a call would write, and its settings. Nothing runs."""
    found: list[Any] = []
    monkeypatch.setattr(
        api,
        "settle",
        lambda command, given, target: SimpleNamespace(
            settings=found.append((target, resolve.resolve(command, given).settings))
        ),
    )
    monkeypatch.setattr(api, "execute", lambda command, settings, target: None)
    name = {"eval": "evaluate", "queries": "make_queries", "templates": "make_templates"}
    getattr(agentlite, name.get(command, command))(**options)
    monkeypatch.undo()
    target, settings = found[-1]
    return target, settings


@pytest.mark.parametrize("command", STAGES)
def test_a_path_may_stand_wherever_a_text_may(command, tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    kinds = {key: without_marks(field.kind) for key, field in fields(command).items()}
    usual = {"what": "dialogs"} if command == "make" else {}
    for key, kind in kinds.items():
        if choices(kind) or kind not in (str, tuple[str, ...]):
            continue
        ways = [path, [path], (path, path)] if kind == tuple[str, ...] else [path]
        for value in ways:
            texts = str(path) if value == path else [str(one) for one in value]
            _, settings = given_by(monkeypatch, command, **usual | {key: value})
            _, of_texts = given_by(monkeypatch, command, **usual | {key: texts})
            assert settings == of_texts, key
            assert resolve.plain_settings(settings) == resolve.plain_settings(of_texts)
    target, _ = given_by(monkeypatch, command, **usual, run=tmp_path, out=Path("new"))
    assert target.folder == tmp_path / "new"
    config = tmp_path / "own.yaml"
    config.write_text(f"{command}: {{seed: 5}}\n", encoding="utf-8")
    for files in (config, [config]):
        _, settings = given_by(monkeypatch, command, **usual, config=files)
        assert settings.seed == 5
