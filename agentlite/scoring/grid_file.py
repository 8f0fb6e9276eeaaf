"""A grid file -> its reward weightings and the settings to cross: for `pairs` and `ablate`."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from agentlite.config.yaml_errors import yaml_error
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import plain

SECTIONS = ("by", "weights", "settings")
CROSSED = "Write each as `command.setting: [value, value]`, such as `grpo.beta: [0.05, 0.1]`."
SHOWN = 80  # characters of a value that does not fit
HOW = (
    "Write a line for each: `brief: {efficiency: 0.3}`; `defaults: {}` is the one without changes."
)
EXAMPLE = """A grid maps settings to lists of values, or names of weightings to their weights:
  settings:
    dpo.beta: [0.05, 0.1]"""


class GridFile(NamedTuple):
    """`weights`: weightings by name, as they are written; a name may be there twice. `settings`:
    the values of each setting, by `command.setting`. `by`: the stage that trains; "" if the file
    does not say.
    """

    weights: list[tuple[str, dict[str, Any] | None]]
    settings: Mapping[str, list[Any]] = MappingProxyType({})
    by: str = ""


def read_grid_file(path: Path) -> GridFile:
    """A file of weightings alone (a mapping name -> weights, or a list), or one with the sections
    `by`, `weights` and `settings`. Raises UserError 2 with file and place.
    """
    import yaml

    from agentlite.config import strict_yaml

    try:
        loader = strict_yaml.read(path)
        node = loader.get_single_node()
        if _has_sections(node):
            parts = {key.value: value for key, value in node.value}
            _refuse_unknown([key.value for key, _ in node.value], path)
            weights = parts.get("weights")
            by, settings = (
                loader.construct_document(parts[name]) if name in parts else None
                for name in ("by", "settings")
            )
            return GridFile(
                _entries(loader, weights, path) if weights and not _is_empty(weights) else [],
                _crossed(settings, path),
                str(by or ""),
            )
        return GridFile(_entries(loader, node, path) if node and not _is_empty(node) else [])
    except OSError as error:
        raise UserError(f"cannot read the grid: {error.strerror}.", location=str(path)) from error
    except yaml.YAMLError as error:
        raise yaml_error(path, error) from error


def _is_empty(node: Any) -> bool:
    """Whether nothing stands there, or comments alone."""
    return getattr(node, "tag", "") == "tag:yaml.org,2002:null"


def _has_sections(node: Any) -> bool:
    """Whether the names at the top are sections. `weights` alone is one if it holds mappings: with
    numbers in it, it is a weighting that is called so."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return False
    parts = {str(key.value): value for key, value in node.value}
    if {"by", "settings"} & parts.keys():
        return True
    inside = parts.get("weights")
    if isinstance(inside, yaml.SequenceNode) or (len(parts) == 1 and _is_empty(inside)):
        return True
    return isinstance(inside, yaml.MappingNode) and any(
        isinstance(value, yaml.MappingNode) for _, value in inside.value
    )


def _refuse_unknown(names: list[str], path: Path) -> None:
    for name in names:
        if name not in SECTIONS or names.count(name) > 1:
            problem = "is defined twice." if name in SECTIONS else "is not a section of a grid."
            fix = "" if name in SECTIONS else nearest(name, SECTIONS)
            raise UserError(problem, fix, location=f"{path}, {name}")


def _entries(loader: Any, node: Any, path: Path) -> list[tuple[str, dict[str, Any] | None]]:
    """Weightings with their names. YAML, read as a mapping, would drop the first of two that have
    the same name.
    """
    import yaml

    if isinstance(node, yaml.MappingNode):
        entries = [
            [loader.construct_object(half, deep=True) for half in entry] for entry in node.value
        ]
        for name, weights in entries:
            _refuse_other(name, weights, path)
        return [(str(name), weights) for name, weights in entries]
    listed = loader.construct_document(node)
    for one in listed if isinstance(listed, list) else [listed]:
        if not isinstance(one, dict | None):
            problem = f"holds {plain(one)[:SHOWN]} in place of a weighting."
            raise UserError(problem, EXAMPLE, location=str(path))
    return [(_name(weights), weights) for weights in listed]


def _refuse_other(name: object, weights: object, path: Path) -> None:
    """Raises UserError 2 for an entry at the place of a weighting that is none."""
    if isinstance(weights, dict | None):
        return
    location = f"{path}, {name}"
    problem = f"{plain(weights)[:SHOWN]} is not a mapping of components to weights."
    raise UserError(problem, HOW, location=location)


def _name(weights: object) -> str:
    """The weights that it changes: `tool_accuracy=0.5,efficiency=0`."""
    if isinstance(weights, dict):
        return (
            ",".join(f"{component}={weight}" for component, weight in weights.items()) or "defaults"
        )
    return "defaults" if weights is None else str(weights)


def _crossed(settings: object, path: Path) -> dict[str, list[Any]]:
    """Each setting with its values; a single value stands for all cells."""
    if not isinstance(settings, dict | None):
        raise UserError("is not a mapping.", CROSSED, location=f"{path}, settings")
    crossed: dict[str, list[Any]] = {}
    for name, values in (settings or {}).items():
        location = f"{path}, settings, {name}"
        if not all(str(name).partition(".")[::2]):
            raise UserError("does not name a command and a setting.", CROSSED, location=location)
        crossed[str(name)] = values if isinstance(values, list) else [values]
        if not values and isinstance(values, list):
            raise UserError("has no value.", CROSSED, location=location)
    return crossed
