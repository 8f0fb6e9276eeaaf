"""A grid file -> its cells: what each is called, what it changes, and the commands that make it."""

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config import resolve
from agentlite.config.fields import as_text
from agentlite.config.gpu_profiles import AUTO
from agentlite.config.pipeline import TRAINERS
from agentlite.config.resolve import Given
from agentlite.config.settings import (
    PAIRING,
    REWARDS,
    AblateSettings,
    default,
    fields,
)
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import digest, plain
from agentlite.scoring.grid_file import GridFile, Settle, read_grid_file
from agentlite.scoring.rewards import JUDGE, settle_weights
from agentlite.stages.ablate.commands import CellCommand
from agentlite.workspace.digests import file_digest
from agentlite.workspace.stage_folder import RunTarget, stored_settings

PAIRED = "pairs"  # the stage that samples and ranks candidates, for trainers that read pairs
CANDIDATES = "candidates"
LONGEST = 80  # characters of a folder's name
# what is compared is the same for all cells
SAME_FOR_ALL = {"data", "model", "candidates", "grid", "preferences", "split", "weights"}


class Value(NamedTuple):
    """A value of a setting: as the name of a cell has it, and in words; "" for the first one."""

    value: Any
    label: str
    differs: str


class Cell(NamedTuple):
    """`differs`: what tells it from the first cell, in words; `sets`: the settings that it changes,
    by `command.setting`; `labels`: those that other cells change too; `commands`: of candidates
    and pairs for a trainer that reads them, of the trainer, and of eval.
    """

    name: str
    differs: str
    sets: Mapping[str, Any]
    labels: Mapping[str, str]
    commands: Sequence[CellCommand] = ()

    @property
    def home(self) -> str:
        """Its workspace, in the folder of the ablation."""
        return f"cells/{folder_name(self.name)}"

    def of(self, *parts: str) -> dict[str, Any]:
        """The settings that it changes of some parts, see part_of."""
        return {name: value for name, value in self.sets.items() if part_of(name) in parts}


class Ablation(NamedTuple):
    """What all cells share: the workspace, the folder, and what the user gave for all stages; the
    trainer, the data, the model that every cell starts from, and the split that measures them.
    """

    run: Path
    folder: Path
    given: Given
    by: str
    data: str
    model: str
    split: str

    @property
    def is_paired(self) -> bool:
        """Whether the trainer learns from pairs, which are made from candidates first."""
        return bool(default(self.by, "data") == PAIRED)

    @property
    def commands(self) -> list[str]:
        """Those whose settings a grid can cross."""
        return [self.by, PAIRED] if self.is_paired else [self.by]

    def settings(self, command: str) -> Any:
        """Those of a command, but for what a cell changes."""
        return resolve.resolve(command, self.given).settings

    def acts(self, command: str) -> bool:
        """Whether it lets a model act in an environment, and reads no records."""
        return bool(getattr(self.settings(command), "env", ""))

    def world_files(self) -> dict[str, str]:
        """The digests of the files of these environments."""
        digests = {}
        for command in (self.by, "eval"):
            settings = self.settings(command)
            for key in ("env", "tasks"):
                path = Path(getattr(settings, key, "").partition(":")[0])  # shop.py:Shop
                if path.is_file():
                    digests[f"{command}.{key}"] = file_digest(path)
        return digests

    def path_to(self, name: str, inside: str = "") -> str:
        """A stage of the workspace as it is called in a folder of the ablation; another name as it
        is.
        """
        if Path(name).is_absolute() or not (self.run / name).exists():
            return name
        return os.path.relpath(self.run / name, self.folder / inside).replace(os.sep, "/")

    def command(
        self, folder: str, command: str, options: Sequence[str], sets: Mapping[str, Any] = {}
    ) -> CellCommand:
        """The command whose stage is `folder`, with what the user gave for all stages of its kind,
        then what the cell `sets`.
        """
        inside, _, out = folder.rpartition("/")
        words = [command, "--run", str(self.folder / inside)]
        words += ["--out", out] if out != command else []
        words += options
        words += [word for file in self.given.files for word in ("--config", file)]
        common = [text for text in self.given.sets if text.partition(".")[0] == command]
        # JSON is YAML
        changed = [
            f"{name}={json.dumps(value, ensure_ascii=False)}"
            for name, value in sorted(sets.items())
        ]
        words += [word for text in (*common, *changed) for word in ("--set", text)]
        words += ["--profile", self.given.profile] if self.given.profile != AUTO else []
        return CellCommand(words, folder)

    def evaluation(self, home: str, model: str) -> CellCommand:
        """Of the model of a cell, or without a `home` of the model that all start from."""
        is_usual = self.split == default("eval", "split")
        out = "eval" if is_usual else f"eval-{self.split}"
        options = ["--model", model]
        options += [] if self.acts("eval") else ["--data", self.path_to(self.data, home)]
        options += [] if is_usual else ["--split", self.split]
        return self.command(f"{home}/{out}" if home else out, "eval", options)


def part_of(name: str) -> str:
    """What a setting of a cell changes: `dpo` for `dpo.beta`, `pairs` where it says how candidates
    are ranked, `candidates` where it says how they are sampled.
    """
    command, _, key = name.partition(".")
    section = fields(command)[key].section
    is_ranking = command == PAIRED and section in (PAIRING.title, REWARDS.title)
    return CANDIDATES if command == PAIRED and not is_ranking else command


def folder_name(name: str) -> str:
    """A name as a folder: letters of any script, digits, and what a file system takes anywhere."""
    short = re.sub(r"[^\w.=-]+", "-", name).strip("-.") or "cell"
    return short if len(short) <= LONGEST else f"{short[:LONGEST]}-{digest(name)[:6]}"


def read_ablation(settings: AblateSettings, target: RunTarget) -> tuple[Ablation, list[Cell]]:
    """The cells are without their commands. A mistake in one of them is found before the first is
    run.
    """
    if not settings.grid:
        raise UserError(
            "which grid?",
            "Name a file, such as --grid grids/rewards.yaml (docs/rewards.md shows one).",
            location="--grid",
        )
    grid = read_grid_file(resolve.find_file(settings.grid))
    by = settings.by or grid.by or "dpo"
    if by not in TRAINERS:
        raise UserError(
            f"'{by}' trains no model.", nearest(by, TRAINERS), location=f"{grid.path}, by"
        )
    given = target.given._replace(flags={})
    ablation = Ablation(
        target.run, target.folder, given, by, settings.data, settings.model, settings.split
    )
    if not settings.model:  # that which the stage would start from, or pairs would sample
        usual = default(ablation.commands[-1], "model")
        model = usual or stored_settings(settings.data, target.run).get("model") or ""
        ablation = ablation._replace(model=str(model))
    sampled = stored_settings(settings.candidates, target.run)
    stored = [*sampled.get("rewards", ()), *([JUDGE] if sampled.get("judge") else [])]
    crossed = {**_weightings(ablation, grid, stored), **_values(ablation, grid)}
    cells = []
    for values in itertools.product(*crossed.values()):
        labels = [value.label for value in values]
        several = {
            name: label
            for name, label in zip(crossed, labels, strict=True)
            if len(crossed[name]) > 1
        }
        differs = ", ".join(value.differs for value in values if value.differs)
        sets = {name: value.value for name, value in zip(crossed, values, strict=True)}
        cells.append(Cell(", ".join(several.values()), differs, sets, several))
    if len(cells) < 2:
        raise UserError(
            "is one cell, so there is nothing to compare.",
            "Add weightings under `weights`, or values of a setting under `settings`.",
            location=str(grid.path),
        )
    # in lower case: some file systems take both for one
    homes = Counter(cell.home.lower() for cell in cells)
    for cell in cells:
        for command in ablation.commands:
            changed = {
                name.removeprefix(f"{command}."): (value, f"{grid.path}, cell {cell.name}")
                for name, value in cell.sets.items()
                if name.startswith(f"{command}.")
            }
            resolve.resolve(command, ablation.given, crossed=changed)
        if homes[cell.home.lower()] > 1:
            raise UserError(
                f"two cells would be called '{cell.name}'.",
                "Give each weighting a name of its own, and each value once.",
                location=str(grid.path),
            )
    return ablation, cells


def _weightings(
    ablation: Ablation, grid: GridFile, stored: Sequence[str]
) -> dict[str, list[Value]]:
    """The reward weights as one more setting to cross: in each weighting, those that differ from
    what the stage would have. `stored`: the user's functions, and the judge, that scored the
    candidates.
    """
    if not grid.weights:
        return {}
    command = ablation.by if "weights" in fields(ablation.by) else PAIRED
    if command not in ablation.commands:
        raise UserError(
            f"holds reward weights, and {ablation.by} has no rewards.",
            "Cross its settings in place of them: `settings:` with `command.setting: [...]`.",
            location=str(grid.path),
        )
    base = ablation.settings(command)
    functions = {text.rpartition(":")[2] for text in (*base.rewards, *stored)}
    functions |= {JUDGE} if base.judge else set()
    settle: Settle = partial(settle_weights, user_functions=functions)
    if ablation.acts(command):  # which scores there are, its world says: the command refuses others
        settle = dict
    usual, values = settle(base.weights), list[Value]()
    for name, weights in grid.weightings(settle).items():
        changed = {key: weight for key, weight in weights.items() if weight != usual.get(key)}
        first = values[0].value if values else changed
        differing = {
            key: changed.get(key, "usual")
            for key in dict.fromkeys([*changed, *first])
            if changed.get(key) != first.get(key)
        }
        differs = f"weights {as_text(differing) if differing else 'the same'}" if values else ""
        values.append(Value(changed, name, differs))
    return {f"{command}.weights": values}


def _values(ablation: Ablation, grid: GridFile) -> dict[str, list[Value]]:
    """The values of each setting."""
    keys = Counter(name.partition(".")[2] for name, several in grid.settings.items() if several[1:])
    crossed = {}
    for name, values in grid.settings.items():
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
        # `beta` for `dpo.beta`, where no other command's has that name too
        short = key if keys[key] < 2 else name
        texts = [
            plain(value) if isinstance(value, dict | list) else as_text(value) for value in values
        ]
        crossed[name] = [
            Value(value, f"{short}={text}", f"{short} {text}" if text != texts[0] else "")
            for value, text in zip(values, texts, strict=True)
        ]
    return crossed


def with_commands(
    ablation: Ablation, cells: Sequence[Cell], sampled: str
) -> tuple[list[CellCommand], list[Cell]]:
    """What is done once, which is asking the model that all start from, and sampling; and the cells
    with all commands that they need. `sampled`: the stage whose candidates are ranked; "" if they
    are sampled here.
    """
    once = [ablation.evaluation("", ablation.path_to(ablation.model))]
    folders: dict[str, str] = {}

    def shared(cell: Cell, kind: str, *parts: str) -> str:
        """The folder of the pairs or the candidates of a cell, and of all that change the same."""
        words = [label for name, label in cell.labels.items() if part_of(name) in parts]
        name = folder_name("-".join([kind, *words]))
        return folders.setdefault(f"{kind} {plain(cell.of(*parts))}", name)

    placed = []
    for cell in cells:
        commands, learned = [], ablation.path_to(ablation.data, cell.home)
        if ablation.is_paired:
            candidates = ablation.path_to(sampled)
            if not sampled:
                candidates = shared(cell, CANDIDATES, CANDIDATES)
                options = ["--data", ablation.path_to(ablation.data)]
                options += ["--model", ablation.path_to(ablation.model)]
                commands.append(ablation.command(candidates, PAIRED, options, cell.of(CANDIDATES)))
                once += [commands[0]] if commands[0] not in once else []
            folder = shared(cell, PAIRED, PAIRED, CANDIDATES)
            options = ["--from", candidates]
            commands.append(ablation.command(folder, PAIRED, options, cell.of(PAIRED)))
            learned = f"../../{folder}"
        by, options = ablation.by, ["--model", ablation.path_to(ablation.model, cell.home)]
        options += [] if ablation.acts(by) else ["--data", learned]
        commands.append(ablation.command(f"{cell.home}/{by}", by, options, cell.of(by)))
        commands.append(ablation.evaluation(cell.home, by))
        placed.append(cell._replace(commands=commands))
    return once, placed
