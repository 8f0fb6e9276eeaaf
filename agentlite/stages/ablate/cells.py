"""A grid file -> its cells: what each is called, what it changes, and the commands that make it."""

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config import resolve
from agentlite.config.gpu_profiles import AUTO
from agentlite.config.metavars import as_typed
from agentlite.config.pipeline import TRAINERS
from agentlite.config.resolve import Given
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
from agentlite.stages.ablate.commands import CELLS, Command
from agentlite.stages.api import inherited_by
from agentlite.workspace.lineage import setting_of
from agentlite.workspace.run_folder import RunTarget

PAIRED = "pairs"  # the stage that samples and ranks candidates, for trainers that read pairs
CANDIDATES = "candidates"
LONGEST = 80  # characters of a folder's name
# what is compared is the same for all cells
SAME_FOR_ALL = {"data", "model", "candidates", "grid", "preferences", "split", "weights"}


class Cell(NamedTuple):
    """`differs`: what tells it from the first cell, in words; `sets`: the settings that it changes,
    by `command.setting`; `texts`: those with several values in the grid, as names of folders have
    them; `home`: its workspace, in the folder of the ablation; `commands`: of pairs for a trainer
    that reads them, of the trainer, and of eval.
    """

    name: str
    differs: str
    sets: Mapping[str, Any]
    texts: Mapping[str, str]
    home: str = ""
    commands: Sequence[Command] = ()

    def of(self, *parts: str) -> dict[str, Any]:
        """The settings that it changes of some parts, see part_of."""
        return {name: value for name, value in self.sets.items() if part_of(name) in parts}


def part_of(name: str) -> str:
    """What a setting of a cell changes: `dpo` for `dpo.beta`, `pairs` where it says how candidates
    are ranked, `candidates` where it says how they are sampled.
    """
    command, _, key = name.partition(".")
    is_ranking = command == PAIRED and section_of(PAIRED, key) in (PAIRING.title, REWARDS.title)
    return CANDIDATES if command == PAIRED and not is_ranking else command


class Ablation(NamedTuple):
    """What all cells share. `model`: that every one starts from."""

    settings: AblateSettings
    target: RunTarget
    by: str
    model: str

    @property
    def commands(self) -> list[str]:
        """Those whose settings a grid can cross."""
        return [self.by, PAIRED] if default(self.by, "data") == PAIRED else [self.by]

    @property
    def is_paired(self) -> bool:
        """Whether the trainer learns from pairs, which are made from candidates first."""
        return PAIRED in self.commands

    @property
    def weighted(self) -> str:
        """The command that has the reward weights."""
        return self.by if "weights" in fields(self.by) else PAIRED

    def given(self, **flags: str) -> Given:
        """The settings as the user gave them to all stages, and `flags` of one of them."""
        return self.target.given._replace(flags=flags)

    def path_to(self, name: str, inside: str = "") -> str:
        """A stage of the workspace as it is called in a folder of the ablation; another name as it
        is.
        """
        if Path(name).is_absolute() or not (self.target.run / name).exists():
            return name
        here = self.target.folder / inside
        return os.path.relpath(self.target.run / name, here).replace(os.sep, "/")

    def command(
        self, folder: str, command: str, options: Sequence[str], sets: Mapping[str, Any] = {}
    ) -> Command:
        """The command whose stage is `folder`, with what the user gave for all stages of its kind,
        then what the cell `sets`.
        """
        inside, _, out = folder.rpartition("/")
        words = [command, "--run", str(self.target.folder / inside)]
        words += ["--out", out] if out != command else []
        words += options
        given = self.target.given
        words += [word for file in given.files for word in ("--config", file)]
        common = [text for text in given.sets if text.partition(".")[0] == command]
        changed = [assignment(name, value) for name, value in sorted(sets.items())]
        words += [word for text in (*common, *changed) for word in ("--set", text)]
        words += ["--profile", given.profile] if given.profile != AUTO else []
        return Command(words, folder)

    def evaluation(self, home: str, model: str) -> Command:
        """Of the model of a cell, or without a `home` of the model that all start from."""
        split = self.settings.split
        is_usual = split == default("eval", "split")
        out = "eval" if is_usual else f"eval-{split}"
        options = ["--data", self.path_to(self.settings.data, home), "--model", model]
        options += [] if is_usual else ["--split", split]
        return self.command(f"{home}/{out}" if home else out, "eval", options)


def assignment(name: str, value: Any) -> str:
    """`dpo.beta=0.1`, as --set takes it."""
    return f"{name}={json.dumps(value, ensure_ascii=False)}"  # JSON is YAML


def folder_name(name: str) -> str:
    """A name as a folder: letters of any script, digits, and what a file system takes anywhere."""
    short = re.sub(r"[^\w.=-]+", "-", name).strip("-.") or "cell"
    return short if len(short) <= LONGEST else f"{short[:LONGEST]}-{digest(name)[:6]}"


def read_ablation(settings: AblateSettings, target: RunTarget) -> tuple[Ablation, list[Cell]]:
    """Everything that the cells need is settled, so that a mistake in one of them is found before
    the first is run.
    """
    if not settings.grid:
        raise UserError(
            "which grid?",
            "Name a file, such as --grid grids/rewards.yaml (docs/rewards.md shows one).",
            location="--grid",
        )
    grid = read_grid_file(resolve.find_file(settings.grid))
    by = (
        settings.by or grid.by or next(name for name in TRAINERS if default(name, "data") == PAIRED)
    )
    if by not in TRAINERS:
        raise UserError(
            f"'{by}' trains no model.", nearest(by, TRAINERS), location=f"{grid.path}, by"
        )
    ablation = Ablation(settings, target, by, settings.model)
    if not settings.model:  # that which the stage would start from, or pairs would sample
        usual = default(ablation.commands[-1], "model")
        model = usual or setting_of(settings.data, "model", target.run) or ""
        ablation = ablation._replace(model=str(model))
    weightings = _weightings(ablation, grid)
    _check_crossed(ablation, grid)
    cells = list(_combinations(ablation, weightings, grid.settings))
    if len(cells) < 2:
        raise UserError(
            "is one cell, so there is nothing to compare.",
            "Add weightings under `weights`, or values of a setting under `settings`.",
            location=str(grid.path),
        )
    for cell, command in itertools.product(cells, ablation.commands):
        _check(ablation, cell, command, grid.path)
    # in lower case: some file systems take both for one
    names = [folder_name(cell.name).lower() for cell in cells]
    for cell, name in zip(cells, names, strict=True):
        if names.count(name) > 1:
            raise UserError(
                f"two cells would be called '{cell.name}'.",
                "Give each weighting a name of its own, and each value once.",
                location=str(grid.path),
            )
    return ablation, cells


def _weightings(ablation: Ablation, grid: GridFile) -> dict[str, dict[str, float]]:
    """By name, the weights in which each differs from those that the stage would have; {} where the
    grid has none.
    """
    if not grid.weights:
        return {}
    if ablation.weighted not in ablation.commands:
        raise UserError(
            f"holds reward weights, and {ablation.by} has no rewards.",
            "Cross its settings in place of them: `settings:` with `command.setting: [...]`.",
            location=str(grid.path),
        )
    base = resolve.resolve(ablation.weighted, ablation.given()).settings
    stored = setting_of(ablation.settings.candidates, "rewards", ablation.target.run) or ()
    functions = {text.rpartition(":")[2] for text in (*base.rewards, *stored)}
    settle = partial(settle_weights, user_functions=functions)
    usual = settle(base.weights)
    return {
        name: {key: weight for key, weight in weights.items() if weight != usual[key]}
        for name, weights in grid.weightings(settle).items()
    }


def _check(ablation: Ablation, cell: Cell, command: str, grid: Path) -> None:
    """Raises UserError 2 for a value that does not fit, with the grid and the cell. The settings
    are read as if the stage stood in the workspace.
    """
    crossed = {
        name.removeprefix(f"{command}."): (value, f"{grid}, cell {cell.name}")
        for name, value in cell.sets.items()
        if name.startswith(f"{command}.")
    }
    given = ablation.given(data=ablation.settings.data, model=ablation.model)
    first = resolve.resolve(command, given, crossed=crossed).settings
    inherited = inherited_by(command, first, ablation.target.run)
    resolve.resolve(command, given, inherited, crossed=crossed)


def _check_crossed(ablation: Ablation, grid: GridFile) -> None:
    """Raises UserError 2 for a setting that no cell can change."""
    for name in grid.settings:
        command, _, key = name.partition(".")
        location = f"{grid.path}, settings, {name}"
        if command not in ablation.commands:
            raise UserError(
                f"a cell of {ablation.by} runs no {command} of its own.",
                f"Known: settings of {' and '.join(ablation.commands)}.",
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


def _combinations(
    ablation: Ablation,
    weightings: Mapping[str, Mapping[str, float]],
    crossed: Mapping[str, Sequence[Any]],
) -> Iterator[Cell]:
    """Weightings outermost, then the settings in their order, each value after the other."""
    several = [name for name, values in crossed.items() if len(values) > 1]
    keys = [name.partition(".")[2] for name in several]
    # `beta` for `dpo.beta`, where no other command's has that name too
    short = {
        name: key if keys.count(key) < 2 else name for name, key in zip(several, keys, strict=True)
    }
    weighted = f"{ablation.weighted}.weights"
    first = next(iter(weightings), "")
    for weighting, *values in itertools.product(weightings or [""], *crossed.values()):
        sets = dict(zip(crossed, values, strict=True))
        texts = {name: _text(sets[name]) for name in several}
        parts = [f"{short[name]}={text}" for name, text in texts.items()]
        differs = [
            f"{short[name]} {text}"
            for name, text in texts.items()
            if text != _text(crossed[name][0])
        ]
        if weightings:
            sets[weighted] = dict(weightings[weighting])
        if len(weightings) > 1:
            texts = {weighted: weighting, **texts}
            parts.insert(0, weighting)
        if weighting != first:
            differs.insert(0, _weights_differ(weightings[weighting], weightings[first]))
        yield Cell(", ".join(parts) or weighting, ", ".join(differs), sets, texts)


def _weights_differ(weights: Mapping[str, float], first: Mapping[str, float]) -> str:
    changed = {
        key: weights.get(key, "usual")
        for key in dict.fromkeys([*weights, *first])
        if weights.get(key) != first.get(key)
    }
    return f"weights {as_typed(changed)}" if changed else "weights the same"


def _text(value: Any) -> str:
    return as_typed(value) if not isinstance(value, dict | list) else plain(value)


def with_commands(
    ablation: Ablation, cells: Sequence[Cell], sampled: str
) -> tuple[list[Command], list[Cell]]:
    """What is done once, which is asking the model that all start from, and sampling; and the cells
    with their commands. `sampled`: the stage whose candidates are ranked; "" if they are sampled
    here.
    """
    data, model = ablation.settings.data, ablation.model
    once = [ablation.evaluation("", ablation.path_to(model))]
    folders: dict[str, str] = {}
    placed = []
    for cell in cells:
        # cells that change the same have one workspace, and so have their pairs and candidates
        home = folders.setdefault(plain(cell.sets), f"{CELLS}/{folder_name(cell.name)}")
        learned = ablation.path_to(data, home)
        earlier, commands = [], []
        if ablation.is_paired:
            candidates = ablation.path_to(sampled)
            if not sampled:
                candidates = _folder(folders, cell, CANDIDATES)
                options = ["--data", ablation.path_to(data), "--model", ablation.path_to(model)]
                sampling = ablation.command(candidates, PAIRED, options, cell.of(CANDIDATES))
                once += [sampling] if sampling not in once else []
                earlier.append(candidates)
            folder = _folder(folders, cell, PAIRED, CANDIDATES)
            options = ["--from", candidates]
            commands.append(ablation.command(folder, PAIRED, options, cell.of(PAIRED)))
            learned = f"../../{folder}"
        options = ["--data", learned, "--model", ablation.path_to(model, home)]
        commands += [
            ablation.command(f"{home}/{ablation.by}", ablation.by, options, cell.of(ablation.by)),
            ablation.evaluation(home, ablation.by),
        ]
        for number, command in enumerate(commands):
            commands[number] = command._replace(after=(*earlier,))
            earlier.append(command.folder)
        placed.append(cell._replace(home=home, commands=commands))
    return once, placed


def _folder(folders: dict[str, str], cell: Cell, kind: str, *more: str) -> str:
    """That of the pairs or the candidates of a cell, called after the settings of these parts that
    have several values: one for all cells that change the same of them.
    """
    words = [
        text if name == f"{PAIRED}.weights" else f"{name.partition('.')[2]}={text}"
        for name, text in cell.texts.items()
        if part_of(name) in (kind, *more)
    ]
    return folders.setdefault(
        f"{kind} {plain(cell.of(kind, *more))}", folder_name("-".join([kind, *words]))
    )
