"""What a stage takes over from an earlier one: settings, the adapter's shape, the lineage."""

import json
import shlex
from pathlib import Path
from typing import Any

from agentlite.config.settings import default
from agentlite.core.errors import UserError
from agentlite.core.records import plain
from agentlite.workspace import stage_folder
from agentlite.workspace.model_source import Source, find_model
from agentlite.workspace.stage_folder import RunTarget

# in a folder that `agentlite export` wrote: its kind, and the settings that a reader needs
EXPORTED = "export.json"


def setting_of(name: str, key: str, run: Path) -> Any:
    """A setting from the plan of a stage or of its export; None if `name` is neither."""
    folder = stage_folder.find_stage(name, run)
    if name and stage_folder.is_stage(folder):
        return stage_folder.read_plan(folder).settings.get(key)
    export = folder / EXPORTED
    if not name or not export.exists():
        return None
    return json.loads(export.read_bytes())["settings"].get(key)


def longer_rows(command: str, data: str, run: Path) -> dict[str, tuple[object, str]]:
    """`max_length` as the stage `data` has it, where `command` takes shorter rows by default."""
    length = setting_of(data, "max_length", run)
    longer = length is not None and length > default(command, "max_length")
    return {"max_length": (length, data)} if longer else {}


def model_of_prep(data: str, run: Path) -> Source:
    """The model that prep was run for, whose template the records of servers are written in. Raises
    UserError 2, 5 or 8.
    """
    name = setting_of(data, "model", run)
    if not name:
        raise UserError(
            "needs a finished prep.",
            "Run prep on those rows, and name it: --data.",
            location=data,
        )
    return find_model(str(name), run, stage_folder.find_stage(data, run))


def system_of(name: str, run: Path) -> str:
    """The system text that the prep of a model's records put before dialogs without one; "" if it
    put none, or the model was not trained here.
    """
    earlier, seen = name, set[str]()
    while earlier and earlier not in seen:
        seen.add(earlier)
        if text := setting_of(earlier, "system", run):
            return str(text)
        # from a trainer or pairs to its records, from a merged or exported model to nothing
        earlier = str(setting_of(earlier, "data", run) or "")
    return ""


def adapter_shape(name: str, run: Path) -> dict[str, tuple[object, str]]:
    """The `lora_*` settings of the stage that is trained further, each with the stage's name; {} if
    it trained all weights.
    """
    folder = stage_folder.find_stage(name, run)
    if not name or not stage_folder.is_stage(folder):
        return {}
    settings = stage_folder.read_plan(folder).settings
    if settings.get("full"):
        return {}
    return {key: (value, name) for key, value in settings.items() if key.startswith("lora_")}


def lineage(name: str, run: Path) -> list[str]:
    """From the base model to `name`: smollm2-135m, sft, dpo."""
    earlier = setting_of(name, "model", run)
    return [*lineage(str(earlier), run), name] if earlier and earlier != name else [name]


def refuse_circle(model: str, target: RunTarget) -> None:
    """Raises UserError 2 for a stage that would be made from a model that was made from it."""
    if target.out in lineage(model, target.run):
        raise UserError(
            f"{model} was made from it.",
            "Give another --out: both are kept.",
            location=str(target.folder),
        )


def refuse_other_adapter(command: str, settings: object, source: Source, run: Path) -> None:
    """Raises UserError 2 if an adapter that is trained further would change its shape."""
    for key, (value, _) in adapter_shape(source.name, run).items():
        wanted = plain(getattr(settings, key))
        if wanted != plain(value):
            raise UserError(
                f"the adapter of {source.name} has {key} {plain(value)}, not {wanted}.",
                f"Leave {key} out, or start from the base model: --model "
                f"{shlex.quote(source.base)}.",
                location=f"{command}.{key}",
            )
