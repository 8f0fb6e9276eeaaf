"""Settings as the user gave them -> settings of a stage, checked; and the stage is run."""

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentlite.config.gpu_profiles import AUTO, GPU
from agentlite.config.resolve import Given, Origins, Resolved, own_files, resolve
from agentlite.core import distributed
from agentlite.core.console import notice
from agentlite.core.errors import UserError
from agentlite.engine import processes
from agentlite.engine.planning.gpus import Machine, machine_of
from agentlite.engine.planning.model_shape import Shape
from agentlite.stages.auto_profile import by_memory
from agentlite.workspace.run_folder import DEFAULT_RUN, Result, RunTarget

Text = str | os.PathLike[str]
# what commands write into a workspace by a name of their own, and which of them does
TAKEN = {"eval": "eval", "report.html": "report", "report.md": "report", "bfcl.json": "report"}


def call(command: str, run: Text | None, options: dict[str, Any]) -> Result:
    """`options`: settings of the command, and out, force, dry_run, config (files), set
    (assignments), profile. None means the default. A path may stand wherever a text may.
    """
    settings = {key: _with_texts(one) for key, one in options.items() if one is not None}
    folder = Path(run or os.environ.get("AGENTLITE_RUN") or DEFAULT_RUN)
    out, force = settings.pop("out", command), settings.pop("force", False)
    dry_run = settings.pop("dry_run", False)
    sets, files = (
        (value,) if isinstance(value := settings.pop(key, ()), str) else tuple(value)
        for key in ("set", "config")
    )
    given = Given(flags=settings, sets=sets, files=files, profile=settings.pop("profile", AUTO))
    target = target_of(command, folder, out, force, dry_run, given)
    return execute(command, settle(command, given, target).settings, target)


def _with_texts(value: Any) -> Any:
    """The value with each path in it as a text, as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _with_texts(one) for key, one in value.items()}
    return [*map(_with_texts, value)] if isinstance(value, list | tuple) else value


def target_of(
    command: str, run: Path, out: str, force: bool, dry_run: bool, given: Given
) -> RunTarget:
    """Where a stage writes. Raises UserError 2 for a name that its folder may not have: a path, one
    that cannot be typed or read, or one that another command writes.
    """
    is_plain = out.isprintable() and "/" not in out and not out.startswith(("-", "."))
    if not out or not is_plain or TAKEN.get(out, command) != command:
        raise UserError(
            f"{out!r} cannot be the name of a stage's folder.",
            f"Give a plain name, such as --out {command}-2; --run FOLDER names the workspace.",
            location="--out",
        )
    return RunTarget(run, out, force, dry_run, given)


def settle(
    command: str,
    given: Given,
    target: RunTarget,
    machine: Machine | None = None,
    shape: Shape | None = None,
) -> Resolved:
    """Resolves the settings: what an earlier stage fixed stands in for the defaults, and on a GPU
    `--profile auto` chooses by memory what nobody set. Says so, and which file of the current
    folder is read.

    `machine`, `shape`: in place of this machine and of the model's own shape.
    """
    for file in own_files():
        notice(f"settings: {file}")
    is_auto, machine = given.profile == AUTO, machine or machine_of(given.profile)
    if is_auto and machine.gpu:
        given = given._replace(profile=GPU)
    inherited = inherited_by(command, resolve(command, given).settings, target.run)
    resolved = resolve(command, given, inherited)
    if not is_auto or not machine.gpu:
        return resolved
    planned = by_memory(command, resolved, target, machine, shape)
    return resolve(command, given, inherited, planned)


def inherited_by(command: str, settings: object, run: Path) -> Origins:
    """What earlier stages fix for a command with these settings."""
    inherit = getattr(importlib.import_module(f"agentlite.stages.{command}"), "inherit", None)
    found: Origins = inherit(settings, run) if inherit else {}
    return found


def execute(command: str, settings: object, target: RunTarget) -> Result:
    """Runs a stage; of several processes the first runs it, and the others join it where all are
    needed.
    """

    def run() -> Result:
        result: Result = importlib.import_module(f"agentlite.stages.{command}").run(
            settings, target
        )
        return result

    if distributed.count() == 1:
        return run()
    if command not in processes.TOGETHER:
        raise UserError(
            f"{command} runs in one process, and this is one of {distributed.count()}.",
            f"Start it without torchrun: agentlite {command}",
            location="WORLD_SIZE",
        )
    return processes.in_step(run)
