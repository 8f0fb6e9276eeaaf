"""The name of an earlier stage -> what a later one takes over: its protocol, its adapter's shape,
its lineage.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentlite.core import distributed
from agentlite.core.errors import DISK, REJECTS, UserError
from agentlite.core.records import plain
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import Source
from agentlite.workspace.run_folder import RunTarget

# in a folder that `agentlite export` wrote: what it is, and of which settings the rest depends
EXPORTED = "export.json"


def setting_of(name: str, key: str, run: Path) -> Any:
    """A setting in the plan of a stage, or of what was exported from one; None where `name` is
    neither.
    """
    folder = run_folder.find_stage(name, run)
    if name and run_folder.is_stage(folder):
        return run_folder.read_plan(folder).settings.get(key)
    mark = folder / EXPORTED
    return json.loads(mark.read_bytes())["settings"].get(key) if name and mark.exists() else None


def adapter_shape(name: str, run: Path) -> dict[str, tuple[Any, str]]:
    """The `lora_*` settings of the stage that is trained further, each with its name; none of a
    whole model.
    """
    folder = run_folder.find_stage(name, run)
    if not name or not run_folder.is_stage(folder):
        return {}
    has = run_folder.read_plan(folder).settings
    return (
        {}
        if has.get("full")
        else {key: (value, name) for key, value in has.items() if key.startswith("lora_")}
    )


def lineage(name: str, run: Path) -> list[str]:
    """From the base model to `name`: smollm2-135m, sft, dpo."""
    earlier = setting_of(name, "model", run)
    return [*lineage(str(earlier), run), name] if earlier and earlier != name else [name]


def refuse_circle(model: str, target: RunTarget) -> None:
    """A stage cannot be made from what was made from it. Raises UserError 2."""
    if target.out in lineage(model, target.run):
        raise UserError(
            f"{model} was made from it.",
            "Give another --out: both are kept.",
            location=str(target.folder),
        )


def refuse_other_adapter(command: str, settings: Any, source: Source, run: Path) -> None:
    """An adapter that is trained further keeps its shape. Raises UserError 2."""
    for key, (has, _) in adapter_shape(source.name, run).items():
        given = plain(getattr(settings, key))
        if given != plain(has):
            raise UserError(
                f"the adapter of {source.name} has {key} {plain(has)}, not {given}.",
                f"Leave {key} out, or start from the base model: --model {source.base}.",
                location=f"{command}.{key}",
            )


@contextmanager
def failing_early(stage: run_folder.StageFolder) -> Iterator[None]:
    """A mistake that is found before the first checkpoint leaves nothing worth keeping: mended, it
    needs no --force. A full disk, or a reward that fails, is none: the same command carries on,
    with what was drawn until then."""
    try:
        yield
    except UserError as error:
        is_worth_keeping = run_folder.is_finished(stage.folder) or any(
            stage.folder.glob("checkpoints/checkpoint-*")
        )
        if distributed.first() and not is_worth_keeping and error.exit_code not in (DISK, REJECTS):
            stage.fail()
        raise
