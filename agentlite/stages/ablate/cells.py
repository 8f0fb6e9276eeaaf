"""A grid file -> its cells: what each is called, what it changes, and the commands that make it."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.config import resolve
from agentlite.config.fields import option_text
from agentlite.config.pipeline import TRAINERS
from agentlite.config.settings import AblateSettings, default, fields
from agentlite.core.errors import UserError, suggest
from agentlite.core.records import digest, to_json
from agentlite.scoring.rewards import JUDGE, settle_weights
from agentlite.stages.eval.subjects import slug
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import RunTarget, stored_settings

PAIRS = "pairs"  # the stage that samples and ranks candidates, for trainers that read pairs
LONGEST_NAME = 80  # characters of a folder's
# what is compared is the same for all cells
SHARED_KEYS = {"data", "model", "candidates", "preferences", "split", "weights"}
EXAMPLE = """A grid maps settings to lists of values, or names of weightings to their weights:
  settings:
    dpo.beta: [0.05, 0.1]"""


class GridFile(msgspec.Struct, forbid_unknown_fields=True):
    """`by`: the stage that trains; "" if the file does not say. `weights`: those that a weighting
    changes, by its name. `settings`: the values of each setting, by `command.setting`.
    """

    by: str = ""
    weights: dict[str, dict[str, float] | None] | None = None
    settings: dict[str, Any] | None = None


class Cell(NamedTuple):
    """`differs`: what tells it from the first cell, in words; `sets`: the settings that it changes,
    by `command.setting`; `model`: the stage that is evaluated; `commands`: those that make it, each
    in words.
    """

    name: str
    differs: str
    model: str
    commands: Sequence[Sequence[str]]
    sets: Mapping[str, Any] = {}


class Ablation(NamedTuple):
    """What all cells share. `settings`: with the model that every cell starts from; `by`: the stage
    that trains; `target`: with what the user gave for all stages, its folder is the workspace of
    the cells; `stages`: the settings of each command, but for what a cell changes.
    """

    settings: AblateSettings
    by: str
    target: RunTarget
    stages: Mapping[str, Any]

    @property
    def commands(self) -> list[str]:
        """The commands whose settings a grid can cross."""
        return [command for command in self.stages if command != "eval"]

    def is_live(self, command: str) -> bool:
        """Whether a command lets a model act in an environment, and reads no records."""
        return bool(getattr(self.stages[command], "env", ""))

    def world_digests(self) -> dict[str, str]:
        """The digests of the files of all environments."""
        files = {
            f"{command}.{key}": Path(getattr(stage, key, "").partition(":")[0])  # shop.py:Shop
            for command, stage in self.stages.items()
            for key in ("env", "tasks")
        }
        return {name: file_digest(path) for name, path in files.items() if path.is_file()}

    def path_to(self, name: str) -> str:
        """A stage of the run as the workspace of the cells calls it; another name as it is."""
        if not name or Path(name).is_absolute() or not (self.target.run / name).exists():
            return name
        # sft -> ../sft: the cells lie in a folder of the run
        return Path(os.path.relpath(self.target.run / name, self.target.folder)).as_posix()

    @property
    def start(self) -> Cell:
        """The model that the cells start from, which is only evaluated."""
        name, model = self.settings.model, self.path_to(self.settings.model)
        differs = "the model that the cells start from"
        return Cell(f"{name} (start)", differs, model, [self._evaluation(model)])

    def cell(self, grid_values: Mapping[str, Mapping[str, Any]], labels: Sequence[str]) -> Cell:
        """`labels`: of the cell's value of each setting in the grid. For a trainer that reads
        pairs, candidates are sampled, once for all cells that sample alike, and ranked.
        """
        settings, by_name = self.settings, dict(zip(grid_values, labels, strict=True))
        sets = {name: grid_values[name][label] for name, label in by_name.items()}
        varied = {name: label for name, label in by_name.items() if len(grid_values[name]) > 1}
        differs = [
            f"weights {option_text(sets[name]) or 'as usual'}"
            if name.endswith(".weights")
            else label
            for name, label in varied.items()
            if label != next(iter(grid_values[name]))
        ]

        def folder(kind: str, names: Iterable[str]) -> str:
            return folder_name("-".join([kind, *(varied[n] for n in names if n in varied)]))

        def sets_of(command: str) -> dict[str, Any]:
            return {name: value for name, value in sets.items() if name.startswith(f"{command}.")}

        commands, model, data = [], self.path_to(settings.model), self.path_to(settings.data)
        if PAIRS in self.stages:
            candidates, ranking = self.path_to(settings.candidates), sets_of(PAIRS)
            if not candidates:
                # cells that differ only in how they rank share one folder of candidates
                sampling = {name: ranking[name] for name in ranking if not _is_ranking(name)}
                candidates = folder("candidates", sampling)
                options = ["--data", data, "--model", model]
                commands.append(self._command(PAIRS, candidates, options, sampling))
            data = folder(PAIRS, ranking)
            commands.append(self._command(PAIRS, data, ["--from", candidates], ranking))
        trained_stage, options = folder(self.by, sets), ["--model", model]
        options += [] if self.is_live(self.by) else ["--data", data]
        commands.append(self._command(self.by, trained_stage, options, sets_of(self.by)))
        commands.append(self._evaluation(trained_stage))
        return Cell(", ".join(varied.values()), ", ".join(differs), trained_stage, commands, sets)

    def _evaluation(self, model: str) -> list[str]:
        options, split = ["--model", model], self.settings.split
        options += [] if self.is_live("eval") else ["--data", self.path_to(self.settings.data)]
        options += [] if split == default("eval", "split") else ["--split", split]
        return self._command("eval", "eval", options, {})

    def _command(
        self, command: str, out: str, options: Sequence[str], sets: Mapping[str, Any]
    ) -> list[str]:
        """A command with what the user gave for all stages, then with what a cell `sets`."""
        user_settings = self.target.user_settings
        # JSON is YAML
        cell_sets = (f"{name}={json.dumps(v, ensure_ascii=False)}" for name, v in sets.items())
        return [
            *(command, "--run", str(self.target.folder), "--out", out, *options),
            *(word for file in user_settings.files for word in ("--config", file)),
            *(word for text in (*user_settings.sets, *cell_sets) for word in ("--set", text)),
            *("--profile", user_settings.profile),
        ]


def _is_ranking(name: str) -> bool:
    """Whether a setting of pairs says how candidates are ranked, and not how they are sampled."""
    return fields(PAIRS)[name.partition(".")[2]].section in ("Choice of pairs", "Rewards")


def folder_name(name: str) -> str:
    """A name as a folder; eval calls its own by the same letters, and so no other way."""
    folder = slug(name)
    return folder if len(folder) <= LONGEST_NAME else f"{folder[:LONGEST_NAME]}-{digest(name)[:6]}"


def read_ablation(settings: AblateSettings, target: RunTarget) -> tuple[Ablation, list[Cell]]:
    """A mistake in a cell is found before the first is run."""
    if not settings.grid:
        raise UserError(
            "which grid?",
            "Name a file, such as --grid grids/rewards.yaml (docs/rewards.md shows one).",
            location="--grid",
        )
    path = resolve.find_config_file(settings.grid)
    grid = read_grid(path)
    by = settings.by or grid.by or "dpo"
    if by not in TRAINERS:
        raise UserError(f"'{by}' trains no model.", suggest(by, TRAINERS), location=f"{path}, by")
    user_settings = target.user_settings._replace(flags={})
    # pairs too where the trainer learns from pairs
    commands = [by, PAIRS] if default(by, "data") == PAIRS else [by]
    # that which the trainer would start from, or pairs would sample
    model = (
        settings.model
        or default(commands[-1], "model")
        or stored_settings(settings.data, target.run).get("model", "")
    )
    ablation = Ablation(
        msgspec.structs.replace(settings, model=model),
        by,
        target._replace(user_settings=user_settings),
        {c: resolve.resolve(c, user_settings).settings for c in (*commands, "eval")},
    )
    values = _grid_values(ablation, grid, path)
    cells = [ablation.cell(values, labels) for labels in itertools.product(*values.values())]
    if len(cells) < 2:
        raise UserError(
            "is one cell, so there is nothing to compare.",
            "Add weightings under `weights`, or values of a setting under `settings`.",
            location=str(path),
        )
    _refuse_wrong_cells(ablation, cells, path)
    return ablation, cells


def read_grid(path: Path) -> GridFile:
    """Raises UserError 2 for a file that is no grid."""
    try:
        return msgspec.convert(resolve.read_yaml(path) or {}, GridFile, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"{error}.", EXAMPLE, location=str(path)) from error


def _grid_values(ablation: Ablation, grid: GridFile, path: Path) -> dict[str, dict[str, Any]]:
    """By `command.setting` the values that are crossed, each by its label in the name of a cell."""
    settings = {
        name: values if isinstance(values, list) else [values]
        for name, values in (grid.settings or {}).items()
    }
    ranking = ablation.by if "weights" in fields(ablation.by) else PAIRS
    weightings = {name: weights or {} for name, weights in (grid.weights or {}).items()}
    grid_values = {f"{ranking}.weights": weightings} if weightings else {}
    keys = Counter(name.partition(".")[2] for name, values in settings.items() if len(values) > 1)
    for name in (*grid_values, *settings):
        command, _, key = name.partition(".")
        location = f"{path}, {name}"
        if command not in ablation.commands:
            raise UserError(
                f"a cell of {ablation.by} runs no {command} of its own.",
                f"Known: settings of {' and '.join(ablation.commands)}.",
                location=location,
            )
        resolve.check_keys(command, [key], location)
        is_sampling = command == PAIRS and not _is_ranking(name)
        is_fixed = key in SHARED_KEYS or (is_sampling and ablation.settings.candidates)
        if is_fixed and name in settings:
            raise UserError(
                "is the same for all cells of a grid.",
                "Reward weights stand under `weights`, with names; for others run one ablation "
                "each, with an --out of its own.",
                location=location,
            )
    for name, values in settings.items():
        # `beta` for `dpo.beta`; but dpo.seed and pairs.seed, crossed both, keep their whole names
        key = name.partition(".")[2]
        label = key if keys[key] < 2 else name
        grid_values[name] = {
            f"{label}={(to_json if isinstance(value, dict | list) else option_text)(value)}": value
            for value in values
        }
    return grid_values


def _refuse_wrong_cells(ablation: Ablation, cells: Sequence[Cell], path: Path) -> None:
    """Raises UserError for a value or a weight that its command would refuse, and for two cells
    with one folder.
    """
    stored = stored_settings(ablation.settings.candidates, ablation.target.run)
    # in lower case: some file systems take both for one
    models = Counter(cell.model.lower() for cell in cells)
    for cell in cells:
        location = f"{path}, cell {cell.name}"
        for command in ablation.commands:
            cell_layer = {
                name.removeprefix(f"{command}."): (value, location)
                for name, value in cell.sets.items()
                if name.startswith(f"{command}.")
            }
            layers = resolve.read_layers(command, ablation.target.user_settings)
            settings = resolve.merge_layers(command, layers, cell=cell_layer).settings
            # which scores there are in an environment, its world says: the command refuses others
            if "weights" in cell_layer and not ablation.is_live(command):
                functions = (*settings.rewards, *stored.get("rewards", ()))
                names = {function.rpartition(":")[2] for function in functions}
                names |= {JUDGE} if settings.judge or stored.get("judge") else set()
                try:
                    settle_weights(settings.weights, names)
                except UserError as error:
                    error.location = f"{location}: {error.location}"
                    raise
        if models[cell.model.lower()] > 1:
            raise UserError(
                f"two cells would be called '{cell.name}'.",
                "Give each weighting a name of its own, and each value once.",
                location=str(path),
            )
