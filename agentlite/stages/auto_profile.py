"""`--profile auto` on a GPU: the settings a stage was begun with, or those the planner chooses."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentlite.config import gpu_profiles
from agentlite.config.gpu_profiles import AUTO
from agentlite.config.pipeline import TRAINED
from agentlite.config.resolve import Origins, Resolved, profile_section
from agentlite.core import distributed
from agentlite.core.console import notice
from agentlite.core.errors import UserError
from agentlite.engine.planning.choose import CHOSEN, auto_settings, set_already
from agentlite.engine.planning.estimate import data_of
from agentlite.engine.planning.gpus import Machine
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import Shape, base_of, find_shape, with_teacher
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import setting_of
from agentlite.workspace.run_folder import RunTarget

# with one of these no model is loaded here: answers come from a server, or are there already
NO_MODEL_HERE = (
    "endpoint",
    "candidates",
    "preferences",
    "grid",
    "predictions",
    "compare",
    "kagent",
    "ratings",
)


def by_memory(
    command: str, resolved: Resolved, target: RunTarget, machine: Machine, shape: Shape | None
) -> Origins:
    """The settings in place of those of the profile, each with the reason, which is also said; {}
    where no model is loaded. `shape`: in place of that of the model in the settings.

    Where nothing can be planned, they are those of the named profile whose memory is free.
    """
    settings = resolved.settings
    loads_no_model = any(getattr(settings, key, None) for key in NO_MODEL_HERE)
    if loads_no_model or not hasattr(settings, "load_in_4bit"):
        return {}
    begun = _as_begun(target)
    if "batch_size" in begun:  # as in the plan of a trainer, which has all of it
        return begun
    fixed = set_already(resolved)
    stored = {key: value for key, (value, _) in begun.items() if key not in fixed}
    settings, profile = replace(settings, **stored), AUTO
    try:
        shape = with_teacher(shape or _shape(settings, target.run), settings, target.run)
    except UserError as error:
        profile = gpu_profiles.profile_for(machine.capacity / GIB)
        reason = f"{machine.capacity / GIB:.1f} GiB are free, and {error.problem}"
        values = profile_section(profile, command)
    else:
        longest, in_4bit = _of_earlier_stages(settings, target.run)
        values, reason = auto_settings(
            settings, fixed | begun.keys(), shape, machine, longest, in_4bit
        )
    notice(f"profile {profile}: {reason.rstrip('.')}; --profile chooses another")
    origin = f"profile {profile} ({reason})"
    return {**{key: (value, origin) for key, value in values.items()}, **begun}


def _as_begun(target: RunTarget) -> Origins:
    """From the plan of a stage that was begun: it is carried on as it is, however much memory is
    free now. The models of an eval each have a folder and a plan, and one choice.
    """
    if target.force:
        return {}
    origin = f"profile {AUTO} (as {target.folder} was begun)"
    for folder in (target.folder, *run_folder.stages_in(target.folder, "*/*")):
        stored = run_folder.read(folder)
        if stored.plan and not stored.given_up and "load_in_4bit" in stored.plan.settings:
            chosen = stored.plan.settings
            return {key: (chosen[key], origin) for key in CHOSEN if key in chosen}
    return {}


def model_of(settings: Any) -> str:
    """Of several models that are evaluated, the last."""
    if isinstance(settings.model, str):
        return settings.model
    return settings.model[-1] if settings.model else TRAINED


def _shape(settings: Any, run: Path) -> Shape:
    """Of the model that is trained or asked. Raises UserError where it is not known, or where its
    memory is not planned.
    """
    whole = getattr(settings, "full", False) or getattr(settings, "deepspeed", "")
    if distributed.count() > 1 or whole:
        raise UserError("training of all weights, or in several processes, is not planned")
    if not (model := model_of(settings)):
        raise UserError("no model is known yet")
    return find_shape(base_of(model, run))


def _of_earlier_stages(settings: Any, run: Path) -> tuple[int, bool]:
    """The tokens of the longest row, 0 where it is not known, and whether the adapter was trained
    in 4 bit.
    """
    try:
        longest = data_of(settings, run).longest
        return longest, bool(setting_of(model_of(settings), "load_in_4bit", run))
    except UserError:  # the stage itself says what is wrong with its data or its model
        return 0, False
