"""Settings as the user gave them -> settings of a stage, checked; and the stage is run."""

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentlite.config import resolve, this_machine
from agentlite.config.pipeline import DEFAULT_MODEL
from agentlite.config.resolve import Origins, ResolvedSettings, UserSettings
from agentlite.config.this_machine import AUTO, GPU
from agentlite.core import distributed
from agentlite.core.console import notice
from agentlite.core.errors import UserError
from agentlite.engine import processes
from agentlite.engine.planning.choose import CHOSEN_KEYS, auto_settings, fixed_keys
from agentlite.engine.planning.estimate import data_of
from agentlite.engine.planning.gpus import Machine, machine_of
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import Shape, shape_under
from agentlite.workspace import lookup
from agentlite.workspace.lookup import DEFAULT_RUN, Result, RunTarget, stored_settings

Text = str | os.PathLike[str]
# what commands write into a workspace by a name of their own, and which of them does
RESERVED_NAMES = {"eval": "eval", "report.html": "report"}


def call(command: str, run: Text | None, options: dict[str, Any]) -> Result:
    """`options`: settings of the command, and out, force, dry_run, config (files), set
    (assignments), profile. None means the default. A path may stand wherever a text may.
    """
    settings = {key: _with_texts(value) for key, value in options.items() if value is not None}
    folder = Path(run or os.environ.get("AGENTLITE_RUN") or DEFAULT_RUN)
    out, force = settings.pop("out", command), settings.pop("force", False)
    dry_run = settings.pop("dry_run", False)
    sets, files = (
        (value,) if isinstance(value := settings.pop(key, ()), str) else tuple(value)
        for key in ("set", "config")
    )
    user_settings = UserSettings(settings, sets, files, settings.pop("profile", AUTO))
    target = target_of(command, folder, out, force, dry_run, user_settings)
    return execute(command, settle(command, user_settings, target).settings, target)


def _with_texts(value: Any) -> Any:
    """The value with each path in it as a text, as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _with_texts(item) for key, item in value.items()}
    return [*map(_with_texts, value)] if isinstance(value, list | tuple) else value


def target_of(
    command: str, run: Path, out: str, force: bool, dry_run: bool, user_settings: UserSettings
) -> RunTarget:
    """Where a stage writes. Raises UserError 2 for a name that its folder may not have: a path, one
    that cannot be typed or read, or one that another command writes.
    """
    is_plain = out.isprintable() and "/" not in out and not out.startswith(("-", "."))
    if not out or not is_plain or RESERVED_NAMES.get(out, command) != command:
        raise UserError(
            f"{out!r} cannot be the name of a stage's folder.",
            f"Give a plain name, such as --out {command}-2; --run FOLDER names the workspace.",
            location="--out",
        )
    return RunTarget(run, out, force, dry_run, user_settings)


def settle(
    command: str, user_settings: UserSettings, target: RunTarget, machine: Machine | None = None
) -> ResolvedSettings:
    """Resolves the settings: what an earlier stage fixed stands in for the defaults, and on a GPU
    `--profile auto` chooses by memory what nobody set, as any profile does for --vllm, which reads
    4 bit with a package more. Says so, and which file of the current folder is read.

    `machine`: in place of this one.
    """
    for file in resolve.local_files():
        notice(f"settings: {file}")
    machine = machine or machine_of(user_settings.profile)
    is_auto = user_settings.profile == AUTO
    if is_auto and machine.gpu:
        user_settings = user_settings._replace(profile=GPU)
    stage = importlib.import_module(f"agentlite.stages.{command}")
    inherit: Callable[..., Origins] = getattr(stage, "inherit", lambda settings, run: {})
    # read once: `--config <(...)` of a shell is a pipe
    layers = resolve.read_layers(command, user_settings)
    # what a stage inherits depends on its settings, as on its model and its data: they are merged
    # without it first
    inherited = inherit(resolve.merge_layers(command, layers).settings, target.run)
    resolved = resolve.merge_layers(command, layers, inherited)
    if not machine.gpu or not (is_auto or getattr(resolved.settings, "vllm", False)):
        return resolved
    planned = by_memory(command, resolved, target, machine)
    return resolve.merge_layers(command, layers, inherited, planned)


def execute(command: str, settings: object, target: RunTarget) -> Result:
    """Runs a stage; of several processes the first runs it, and the others join it where all are
    needed.
    """
    stage = importlib.import_module(f"agentlite.stages.{command}")
    run: Callable[[], Result] = partial(stage.run, settings, target)
    if distributed.world_size() == 1:
        return run()
    if command not in processes.TORCHRUN_STAGES:
        raise UserError(
            f"{command} runs in one process, and this is one of {distributed.world_size()}.",
            f"Start it without torchrun: agentlite {command}",
            location="WORLD_SIZE",
        )
    return processes.run_together(run)


# with one of these no model is loaded here: answers come from a server, or are there already
NO_MODEL_HERE = ("endpoint", "candidates", "preferences", "predictions", "kagent", "ratings")


def by_memory(
    command: str, resolved: ResolvedSettings, target: RunTarget, machine: Machine
) -> Origins:
    """The settings in place of those of the profile, each with the reason, which is also said; {}
    where no model is loaded.

    Where nothing can be planned, they are those of the named profile whose memory is free.
    """
    settings = resolved.settings
    loads_no_model = any(getattr(settings, key, None) for key in NO_MODEL_HERE)
    if loads_no_model or not hasattr(settings, "load_in_4bit"):
        return {}
    from_plan = _plan_origins(target)
    if "batch_size" in from_plan:  # as in the plan of a trainer, which has all of it
        return from_plan
    fixed = fixed_keys(resolved)
    stored = {key: value for key, (value, _) in from_plan.items() if key not in fixed}
    settings, profile = replace(settings, **stored), AUTO
    try:
        shape = _shape(settings, target.run)
    except UserError as error:
        profile = this_machine.profile_for(machine.capacity / GIB)
        reason = f"{machine.capacity / GIB:.1f} GiB are free, and {error.problem}"
        values = resolve.profile_section(profile, command)
    else:
        longest, in_4bit = _longest_and_4bit(settings, target.run)
        fixed |= from_plan.keys()
        values, reason = auto_settings(settings, fixed, shape, machine, longest, in_4bit)
    notice(f"profile {profile}: {reason.rstrip('.')}; --profile chooses another")
    origin = f"profile {profile} ({reason})"
    return {**{key: (value, origin) for key, value in values.items()}, **from_plan}


def _plan_origins(target: RunTarget) -> Origins:
    """From the plan of a stage that was begun: it is carried on as it is, however much memory is
    free now. The models of an eval each have a folder and a plan, and one choice.
    """
    if target.force:
        return {}
    origin = f"profile {AUTO} (as {target.folder} was begun)"
    for folder in (target.folder, *lookup.stages_in(target.folder, "*/*")):
        stored = lookup.read_stage(folder)
        if not stored.given_up and "load_in_4bit" in (chosen := stored.settings):
            return {key: (chosen[key], origin) for key in CHOSEN_KEYS if key in chosen}
    return {}


def model_of(settings: Any) -> str:
    """Of several models that are evaluated, the last."""
    if isinstance(settings.model, str):
        return settings.model
    return settings.model[-1] if settings.model else DEFAULT_MODEL


def _shape(settings: Any, run: Path) -> Shape:
    """Of the model that is trained or asked. Raises UserError where it is not known, or where its
    memory is not planned.
    """
    trains_all = getattr(settings, "full", False) or getattr(settings, "deepspeed", "")
    if distributed.world_size() > 1 or trains_all:
        raise UserError("training of all weights, or in several processes, is not planned")
    if not (model := model_of(settings)):
        raise UserError("no model is known yet")
    return shape_under(settings, model, run)


def _longest_and_4bit(settings: Any, run: Path) -> tuple[int, bool]:
    """The tokens of the longest row, 0 if not known; and whether the adapter was made in 4 bit."""
    try:
        longest = data_of(settings, run).longest
        return longest, bool(stored_settings(model_of(settings), run).get("load_in_4bit"))
    except UserError:  # the stage itself says what is wrong with its data or its model
        return 0, False
