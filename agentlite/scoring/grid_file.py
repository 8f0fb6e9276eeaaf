"""A grid file -> its reward weightings and the settings to cross: for `pairs` and `ablate`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.config import resolve
from agentlite.core.errors import UserError
from agentlite.scoring.rewards import settle_weights

HOW = "Write a line for each under `weights`: `brief: {efficiency: 0.3}`, or `defaults: {}`."
EXAMPLE = """A grid maps settings to lists of values, or names of weightings to their weights:
  settings:
    dpo.beta: [0.05, 0.1]"""

Settle = Callable[[Mapping[str, float]], dict[str, float]]  # changed weights -> every weight


class Sections(Struct, forbid_unknown_fields=True):
    """`by`: the stage that trains; "" if the file does not say."""

    by: str = ""
    weights: dict[str, dict[str, float] | None] | None = None
    settings: dict[str, Any] | None = None


class GridFile(NamedTuple):
    """`weights`: weightings by name, as they are written. `settings`: the values of each setting,
    by `command.setting`.
    """

    path: Path
    by: str
    weights: Mapping[str, Mapping[str, float]]
    settings: Mapping[str, list[Any]]

    def weightings(self, settle: Settle) -> dict[str, dict[str, float]]:
        """Each weighting with every weight, by name."""
        by_name: dict[str, dict[str, float]] = {}
        for name, changed in self.weights.items():
            try:
                by_name[name] = settle(changed)
            except UserError as error:
                error.location = f"{self.path}, {name}: {error.location}"
                raise
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
    """A file with the sections `by`, `weights` and `settings`."""

    try:
        sections = msgspec.convert(resolve.read_yaml(path) or {}, Sections, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"{error}.", EXAMPLE, location=str(path)) from error
    weights = {name: changed or {} for name, changed in (sections.weights or {}).items()}
    settings = {
        name: values if isinstance(values, list) else [values]
        for name, values in (sections.settings or {}).items()
    }
    return GridFile(path, sections.by, weights, settings)
