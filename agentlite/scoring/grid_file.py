"""A grid file -> its reward weightings and the settings to cross: for `pairs` and `ablate`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from agentlite.config import resolve
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import plain
from agentlite.scoring.rewards import settle_weights

SECTIONS = ("by", "weights", "settings")
CROSSED = "Write each as `command.setting: [value, value]`, such as `grpo.beta: [0.05, 0.1]`."
SHOWN = 80  # characters of a value that does not fit
HOW = (
    "Write a line for each: `brief: {efficiency: 0.3}`; `defaults: {}` is the one without changes."
)
EXAMPLE = """A grid maps settings to lists of values, or names of weightings to their weights:
  settings:
    dpo.beta: [0.05, 0.1]"""

Settle = Callable[[Mapping[str, float]], dict[str, float]]  # changed weights -> every weight


class GridFile(NamedTuple):
    """`weights`: weightings by name, as they are written. `settings`: the values of each setting,
    by `command.setting`. `by`: the stage that trains; "" if the file does not say.
    """

    path: Path
    weights: Mapping[str, dict[str, Any] | None]
    settings: Mapping[str, list[Any]] = MappingProxyType({})
    by: str = ""

    def weightings(self, settle: Settle) -> dict[str, dict[str, float]]:
        """Each weighting with every weight, by name."""
        by_name: dict[str, dict[str, float]] = {}
        for name, weights in self.weights.items():
            location = f"{self.path}, {name}"
            changed = {}
            for component, weight in (weights or {}).items():
                try:  # to YAML, -.3 is a text
                    changed[str(component)] = float("" if isinstance(weight, bool) else weight)
                except (TypeError, ValueError):
                    raise UserError(
                        f"{component} is {weight!r}, which is not a number.",
                        "Write it as `efficiency: 0.3`.",
                        location=location,
                    ) from None
            try:
                by_name[name] = settle(changed)
            except UserError as error:
                locations = filter(None, (location, error.location))
                raise UserError(error.problem, error.fix, location=": ".join(locations)) from error
        return by_name


def read_weightings(
    grid: Sequence[str], settle: Settle = settle_weights
) -> dict[str, dict[str, float]]:
    """By name: the weightings of files, and those written out as `exact=1,efficiency=0`."""
    by_name: dict[str, dict[str, float]] = {}
    for given in grid:
        if "=" in given:
            new = {given: settle(resolve.parse_weights(given, given))}
        else:
            path = resolve.find_file(given)
            new = read_grid_file(path).weightings(settle)
            if not new:
                raise UserError("holds no weighting.", HOW, location=str(path))
        for name in by_name.keys() & new.keys():
            raise UserError(
                f"'{name}' appears twice.", "Give each weighting its own name.", location=given
            )
        by_name |= new
    return by_name


def read_grid_file(path: Path) -> GridFile:
    """A file of weightings alone (name -> weights), or one with the sections `by`, `weights` and
    `settings`.
    """
    from agentlite.config import yaml_files

    content = yaml_files.read(path)
    # `weights` alone is a section if it holds mappings: with numbers, it is a weighting so called
    inside = content.get("weights") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not (
        {"by", "settings"} & content.keys()
        or content == {"weights": None}
        or (isinstance(inside, dict) and any(isinstance(one, dict) for one in inside.values()))
    ):
        return GridFile(path, _entries(content, path))
    for name in (name for name in content if name not in SECTIONS):
        raise UserError(
            "is not a section of a grid.",
            nearest(str(name), SECTIONS),
            location=f"{path}, {name}",
        )
    weights = _entries(content.get("weights"), path)
    settings = _crossed(content.get("settings"), path)
    return GridFile(path, weights, settings, str(content.get("by") or ""))


def _entries(content: Any, path: Path) -> dict[str, dict[str, Any] | None]:
    """Weightings by name."""
    if not isinstance(content, dict | None):
        problem = f"holds {plain(content)[:SHOWN]} in place of weightings by name."
        raise UserError(problem, EXAMPLE, location=str(path))
    for name, weights in (content or {}).items():
        if not isinstance(weights, dict | None):
            raise UserError(
                f"{plain(weights)[:SHOWN]} is not a mapping of components to weights.",
                HOW,
                location=f"{path}, {name}",
            )
    return {str(name): weights for name, weights in (content or {}).items()}


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
        if not crossed[str(name)]:
            raise UserError("has no value.", CROSSED, location=location)
    return crossed
