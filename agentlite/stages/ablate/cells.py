"""A grid file -> its cells: what each is called, what it changes, and the commands that make it."""

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from agentlite.config import resolve
from agentlite.config.gpu_profiles import AUTO
from agentlite.config.metavars import as_typed
from agentlite.config.pipeline import TRAINERS
from agentlite.config.resolve import Given, Origins
from agentlite.config.settings import (
    PAIRING,
    REWARDS,
    AblateSettings,
    default,
    fields,
    section_of,
)
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import digest, plain
from agentlite.scoring.grid_file import GridFile, read_grid_file
from agentlite.scoring.rewards import settle_weights
from agentlite.scoring.weight_sweep import settled_weightings
from agentlite.stages.ablate.commands import CELLS
from agentlite.stages.api import inherited_by
from agentlite.workspace.lineage import setting_of
from agentlite.workspace.run_folder import RunTarget

PAIRED = "pairs"  # the stage that samples and ranks candidates, for trainers that read pairs
CANDIDATES = "candidates"
LONGEST = 80  # characters of a folder's name
# what is compared is the same for all cells
SAME_FOR_ALL = {"data", "model", "candidates", "grid", "preferences", "split", "weights"}


class Cell(NamedTuple):
    """`sets`: the settings that it changes, by `command.setting`; `differs`: what tells it from the
    first cell, in words; `weighting`: the name of its reward weights, "" if the grid has none;
    `changed`: of `sets` those that change what the stage would have without them, read.
    """

    name: str
    differs: str
    sets: Mapping[str, Any]
    weighting: str = ""
    changed: Mapping[str, Any] = MappingProxyType({})

    def of(self, command: str) -> dict[str, Any]:
        """The settings of one command that it changes, by their names there."""
        return {
            key: value
            for name, value in self.sets.items()
            for section, _, key in [name.partition(".")]
            if section == command
        }


class Ablation(NamedTuple):
    """`model`: that every cell starts from; `sampled`: the finished stage of the workspace whose
    candidates are ranked, "" if they are sampled here; `many`: the settings with several values;
    `places`: folders in that of the ablation, by what is made there.
    """

    settings: AblateSettings
    target: RunTarget
    by: str
    model: str
    cells: Sequence[Cell]
    sampled: str
    many: Sequence[str]
    places: Mapping[str, str] = MappingProxyType({})

    @property
    def paired(self) -> bool:
        return reads_pairs(self.by)

    def given(self, sets: Mapping[str, Any] = {}) -> Given:
        """The settings as the user gave them to all stages, and those of a cell."""
        mine = self.target.given
        return Given({}, (*mine.sets, *map(assignment, sets.items())), mine.files, mine.profile)

    def settled(self, command: str, crossed: Origins, data: str = "") -> Any:
        """The settings of a stage of a cell, as if it stood in the workspace, with those that the
        grid has for it. `data`: what it reads; "" for the prep.
        """
        names = {f"{command}.data": data or self.settings.data, f"{command}.model": self.model}
        given = self.given(names)
        first = resolve.resolve(command, given, crossed=crossed).settings
        inherited = inherited_by(command, first, self.target.run)
        return resolve.resolve(command, given, inherited, crossed=crossed).settings

    def origins(self, command: str, cell: Cell) -> Origins:
        """The settings of one command that a cell changes, and where they are from."""
        where = f"{resolve.find_file(self.settings.grid)}, cell {cell.name}"
        return {key: (value, where) for key, value in cell.of(command).items()}

    def candidates_of(self, cell: Cell) -> str:
        """The stage whose candidates the cell ranks: one for all that are sampled alike."""
        if self.sampled:
            return self._from("", self.sampled)
        return self.places[self.made_of(CANDIDATES, cell)]

    def pairs_of(self, cell: Cell) -> str:
        """The stage of its pairs: one for all cells that sample and rank alike."""
        return self.places[self.made_of(PAIRED, cell)]

    def home(self, cell: Cell) -> str:
        """The workspace of a cell: one for all that are the same."""
        return self.places[self.made_of(CELLS, cell)]

    def made_of(self, kind: str, cell: Cell) -> str:
        """What tells a cell, its pairs or its candidates from others of that kind."""
        changed = {
            name: value
            for name, value in sorted(cell.changed.items())
            for command, _, key in [name.partition(".")]
            if kind == CELLS or (command == PAIRED and (kind == PAIRED or not is_ranking(key)))
        }
        return f"{kind} {plain(changed)}"

    def placed(self) -> "Ablation":
        """With a folder for all that is made, called as the grid has it."""
        named: dict[str, str] = {}
        for cell in self.cells:
            named.setdefault(self.made_of(CELLS, cell), f"{CELLS}/{folder_name(cell.name)}")
            if self.paired:
                for kind in (PAIRED, CANDIDATES):
                    named.setdefault(self.made_of(kind, cell), self._stage_name(kind, cell))
        return self._replace(places=named)

    def _stage_name(self, kind: str, cell: Cell) -> str:
        changes = {
            key: value
            for key, value in cell.of(PAIRED).items()
            if f"{PAIRED}.{key}" in self.many and (kind == PAIRED or not is_ranking(key))
        }
        words = [f"{key}={_text(value)}" for key, value in changes.items() if key != "weights"]
        if (
            "weights" in changes
        ):  # many numbers: the first cell with the same ones has a name for them
            same = (one for one in self.cells if one.of(PAIRED) == cell.of(PAIRED))
            words.insert(0, next(same).weighting)
        return folder_name("-".join([kind, *words]))

    def sampling_words(self, cell: Cell) -> list[str]:
        """`agentlite pairs`, which samples the candidates that the cell ranks."""
        sets = {key: value for key, value in cell.of(PAIRED).items() if not is_ranking(key)}
        return [
            *self._words(PAIRED, "", self.candidates_of(cell)),
            *("--data", self._from("", self.settings.data)),
            *self._model_words(""),
            *self._set_words(PAIRED, sets),
        ]

    def ranking_words(self, cell: Cell) -> list[str]:
        """`agentlite pairs --from`, which ranks them for the cell."""
        sets = {key: value for key, value in cell.of(PAIRED).items() if is_ranking(key)}
        return [
            *self._words(PAIRED, "", self.pairs_of(cell)),
            *("--from", self.candidates_of(cell)),
            *self._set_words(PAIRED, sets),
        ]

    def training_words(self, cell: Cell) -> list[str]:
        """Of the stage that trains it."""
        inside = self.home(cell)
        data = f"../../{self.pairs_of(cell)}" if self.paired else self._from(inside)
        return [
            *self._words(self.by, inside, self.by),
            *("--data", data),
            *self._model_words(inside),
            *self._set_words(self.by, cell.of(self.by)),
        ]

    def eval_words(self, cell: Cell | None) -> list[str]:
        """`agentlite eval` of a trained cell, or of the model that all start from."""
        inside = self.home(cell) if cell else ""
        model = ["--model", self.by] if cell else self._model_words("")
        split = self.settings.split
        return [
            *self._words("eval", inside, self.evaluated(None)),
            *("--data", self._from(inside)),
            *model,
            *([] if split == default("eval", "split") else ["--split", split]),
            *self._set_words("eval", {}),
        ]

    def evaluated(self, cell: Cell | None) -> str:
        """The folder of an evaluation, in that of the ablation."""
        split = self.settings.split
        out = "eval" if split == default("eval", "split") else f"eval-{split}"
        return f"{self.home(cell)}/{out}" if cell else out

    def _words(self, command: str, inside: str, out: str) -> list[str]:
        run = self.target.folder / inside
        return [command, "--run", str(run), *(["--out", out] if out != command else [])]

    def _model_words(self, inside: str) -> list[str]:
        return ["--model", self._from(inside, self.model)]

    def _from(self, inside: str, name: str | None = None) -> str:
        """A stage of the workspace, the prep if no other is named, as it is called in a folder of
        the ablation; another name as it is."""
        name = self.settings.data if name is None else name
        if Path(name).is_absolute() or not (self.target.run / name).exists():
            return name
        here = self.target.folder / inside
        return os.path.relpath(self.target.run / name, here).replace(os.sep, "/")

    def _set_words(self, command: str, sets: Mapping[str, Any]) -> list[str]:
        """What the user gave for all stages, then what the cell changes."""
        given = self.target.given
        common = [text for text in given.sets if text.partition(".")[0] == command]
        words = [word for file in given.files for word in ("--config", file)]
        changed = [assignment((f"{command}.{key}", value)) for key, value in sorted(sets.items())]
        words += [word for text in (*common, *changed) for word in ("--set", text)]
        return words + (["--profile", given.profile] if given.profile != AUTO else [])


def reads_pairs(by: str) -> bool:
    """Whether a trainer learns from pairs, which are made from candidates first."""
    return bool(default(by, "data") == PAIRED)


def is_ranking(key: str) -> bool:
    """Whether a setting of pairs is about how candidates are ranked, not how they are sampled."""
    return section_of(PAIRED, key) in (PAIRING.title, REWARDS.title)


def assignment(setting: tuple[str, Any]) -> str:
    """`dpo.beta=0.1`, as --set takes it."""
    name, value = setting
    return f"{name}={json.dumps(value, ensure_ascii=False)}"  # JSON is YAML


def folder_name(name: str) -> str:
    """A name as a folder: letters of any script, digits, and what a file system takes anywhere."""
    short = re.sub(r"[^\w.=-]+", "-", name).strip("-.") or "cell"
    return short if len(short) <= LONGEST else f"{short[:LONGEST]}-{digest(name)[:6]}"


def read_ablation(settings: AblateSettings, target: RunTarget) -> Ablation:
    """Everything that the cells need is settled, so that a mistake in one of them is found before
    the first is run. Raises UserError 2.
    """
    if not settings.grid:
        raise UserError(
            "which grid?",
            "Name a file, such as --grid grids/rewards.yaml (docs/rewards.md shows one).",
            location="--grid",
        )
    path = resolve.find_file(settings.grid)
    grid = read_grid_file(path)
    by = settings.by or _trainer(grid.by, path)
    ablation = Ablation(settings, target, by, _model(settings, by, target.run), (), "", ())
    weightings = _weightings(grid, path, ablation)
    crossed = _crossed(grid, path, by)
    several = [name for name, values in crossed.items() if len(values) > 1]
    cells = list(_cells(ablation, weightings, crossed, several))
    if len(cells) < 2:
        raise UserError(
            "is one cell, so there is nothing to compare.",
            "Add weightings under `weights`, or values of a setting under `settings`.",
            location=str(path),
        )
    cells = [cell._replace(changed=_changed(ablation, cell)) for cell in cells]
    # in lower case: some file systems take both for one
    names = [folder_name(cell.name).lower() for cell in cells]
    if twice := next(
        (cell.name for cell, name in zip(cells, names, strict=True) if names.count(name) > 1), ""
    ):
        raise UserError(
            f"two cells would be called '{twice}'.",
            "Give each weighting a name of its own, and each value once.",
            location=str(path),
        )
    weighted = f"{by if 'weights' in fields(by) else PAIRED}.weights"
    many = [*several, *([weighted] if len(weightings) > 1 else [])]
    return ablation._replace(cells=cells, many=many).placed()


def _changed(ablation: Ablation, cell: Cell) -> dict[str, Any]:
    """Raises UserError 2 for a value that does not fit, with the grid and the cell."""
    changed: dict[str, Any] = {}
    for command in (ablation.by, PAIRED) if ablation.paired else (ablation.by,):
        usual, mine = (
            resolve.plain_settings(ablation.settled(command, origins))
            for origins in ({}, ablation.origins(command, cell))
        )
        changed |= {
            f"{command}.{key}": mine[key] for key in cell.of(command) if mine[key] != usual[key]
        }
    return changed


def _trainer(named: str, path: Path) -> str:
    if named and named not in TRAINERS:
        raise UserError(
            f"'{named}' trains no model.", nearest(named, TRAINERS), location=f"{path}, by"
        )
    return named or next(name for name in TRAINERS if reads_pairs(name))


def _model(settings: AblateSettings, by: str, run: Path) -> str:
    """The model of --model, or that which the stage would start from, or pairs would sample."""
    usual = default(PAIRED if reads_pairs(by) else by, "model")
    return settings.model or str(usual or setting_of(settings.data, "model", run) or "")


def _weightings(grid: GridFile, path: Path, ablation: Ablation) -> dict[str, dict[str, float]]:
    """By name, the weights in which each differs from those that the stage would have; {} where the
    grid has none. Raises UserError 2 for a trainer that knows no rewards.
    """
    if not grid.weights:
        return {}
    by, settings = ablation.by, ablation.settings
    command = by if "weights" in fields(by) else PAIRED
    if command != by and not reads_pairs(by):
        raise UserError(
            f"holds reward weights, and {by} has no rewards.",
            "Cross its settings in place of them: `settings:` with `command.setting: [...]`.",
            location=str(path),
        )
    base = resolve.resolve(command, ablation.given()).settings
    stored = setting_of(settings.candidates, "rewards", ablation.target.run) or ()
    functions = {text.rpartition(":")[2] for text in (*base.rewards, *stored)}
    usual = settle_weights(base.weights, functions)
    return {
        name: {key: weight for key, weight in weights.items() if weight != usual[key]}
        for name, weights in settled_weightings(grid, path, functions).items()
    }


def _crossed(grid: GridFile, path: Path, by: str) -> Mapping[str, list[Any]]:
    """The values of each setting. Raises UserError 2 for one that no cell can change."""
    known = [by, PAIRED] if reads_pairs(by) else [by]
    for name in grid.settings:
        command, _, key = name.partition(".")
        location = f"{path}, settings, {name}"
        if command not in known:
            raise UserError(
                f"a cell of {by} runs no {command} of its own.",
                f"Known: settings of {' and '.join(known)}.",
                location=location,
            )
        resolve.check_key(command, key, location)
        if key in SAME_FOR_ALL:
            raise UserError(
                "is the same for all cells of a grid.",
                "Reward weights stand under `weights`, with names; for others run one ablation "
                "each, with an --out of its own.",
                location=location,
            )
    return grid.settings


def _cells(
    ablation: Ablation,
    weightings: Mapping[str, Mapping[str, float]],
    crossed: Mapping[str, Sequence[Any]],
    several: Sequence[str],
) -> Iterator[Cell]:
    """Weightings outermost, then the settings in their order, each value after the other."""
    by = ablation.by
    weighted = f"{by if 'weights' in fields(by) else PAIRED}.weights"
    first: dict[str, Any] = {}
    for name, *values in itertools.product(weightings or {"": {}}, *crossed.values()):
        sets = dict(zip(crossed, values, strict=True))
        parts = [name] if name and len(weightings) > 1 else []
        parts += [f"{_short(key, several)}={_text(sets[key])}" for key in several]
        shown = dict(zip(several, [_text(sets[key]) for key in several], strict=True))
        if weightings:
            sets[weighted] = dict(weightings[name])
            shown["weights"] = name
        first = first or shown
        differs = [
            f"{_short(key, several)} {value}" for key, value in shown.items() if value != first[key]
        ]
        if weightings and shown["weights"] != first["weights"]:
            mine, theirs = weightings[name], weightings[first["weights"]]
            changed = {
                key: mine.get(key, "usual")
                for key in dict.fromkeys([*mine, *theirs])
                if mine.get(key) != theirs.get(key)
            }
            differs = [one for one in differs if not one.startswith("weights ")]
            differs.insert(0, f"weights {as_typed(changed)}" if changed else "weights the same")
        yield Cell(", ".join(parts) or name, ", ".join(differs), sets, name)


def _short(name: str, several: Sequence[str]) -> str:
    """`beta` for `dpo.beta`, where no other command's has that name too."""
    key = name.partition(".")[2] or name
    alike = [one for one in several if one.partition(".")[2] == key]
    return key if len(alike) < 2 else name


def _text(value: Any) -> str:
    return as_typed(value) if not isinstance(value, dict | list) else plain(value)
