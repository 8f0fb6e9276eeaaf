"""The rollouts of an evaluation or a stage, the worst first, each with the best one of its task;
and packed for the page's viewer.
"""

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.report.packing import (
    Packed,
    Tool,
    compact,
    pack_within,
    packed_message,
    packed_tool,
)
from agentlite.report.read_run import Json, ReportedEvaluation, ReportedStage
from agentlite.report.tables import in_order
from agentlite.scoring.metrics.figures import DONE, ENDINGS

MOST = 500  # rollouts in a reader
FILE, SAMPLES = "trajectories.jsonl", "samples.jsonl"
LOST = ("world", "unanswered")  # such a rollout has no score


class RolloutFile(NamedTuple):
    """`sampled`: whether its rollouts were sampled, and have a number; greedy ones have none."""

    model: str
    path: Path
    sampled: bool


RolloutLine = tuple[RolloutFile, int]  # its file, and the first byte of its line


class ReportedTurn(Struct, frozen=True):
    """A turn of the model as it is stored, as much of it as a report shows."""

    text: str
    ended: str = ""
    new_tokens: int = 0
    results: tuple[tuple[str, bool], ...] = ()
    user: str | None = None
    problem: str = ""


class ReportedRollout(Struct, frozen=True):
    """A trajectory as it is stored, as much of it as a report shows."""

    task: str
    sample: int
    messages: list[dict[str, Any]]
    turns: list[ReportedTurn]
    ended: str
    scores: dict[str, float]
    tools: list[dict[str, Any]] = []
    problem: str = ""
    by_turn: list[dict[str, float]] = []

    @property
    def answered_at(self) -> list[int]:
        """The messages of the model's turns: the assistant's last. A prompt may have others."""
        said = [at for at, row in enumerate(self.messages) if row.get("role") == "assistant"]
        return said[len(said) - len(self.turns) :]

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """What the dialog has before the model's first turn."""
        return self.messages[: (self.answered_at or [len(self.messages)])[0]]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The message of each turn of the model."""
        return [self.messages[at] for at in self.answered_at]

    @property
    def is_lost(self) -> bool:
        """Whether its world or its model's server broke: that says nothing about the model."""
        return self.ended in LOST

    @property
    def verdict(self) -> float | None:
        """The score that says whether the task is done: the first that there is."""
        return next((self.scores[name] for name in DONE if name in self.scores), None)

    @property
    def mean(self) -> float:
        return fmean(self.scores.values()) if self.scores else 0.0

    @property
    def failed(self) -> bool:
        return self.is_lost or (self.verdict is not None and self.verdict < 1)


class Parting(NamedTuple):
    """Where a rollout leaves the best one of its task: a turn, from 0, and whether they part in
    what the model says, in what comes back, or because one of them ends before it.
    """

    turn: int
    by: Literal["answer", "result", "end"]


class ShownRollout(NamedTuple):
    """A rollout, and the best one of its task with where they part; None for the best itself."""

    file: RolloutFile
    rollout: ReportedRollout
    best: tuple[RolloutFile, ReportedRollout, Parting] | None


class RankedRollouts(NamedTuple):
    """`shown`: at most MOST, the worst first. `total`, `failed`: counts of all. `names`: of the
    scores, the verdict first.
    """

    shown: list[ShownRollout]
    total: int
    failed: int
    names: list[str]


def files_of(evaluation: ReportedEvaluation) -> list[RolloutFile]:
    """Of each model those that are as it left them. Samples beside recorded dialogs are answers."""
    return [
        RolloutFile(name, model.folder / file, file == SAMPLES)
        for name, model in evaluation.models.items()
        for file in (FILE, SAMPLES)
        if model.is_unchanged(FILE) and model.is_unchanged(file)
    ]


def file_of(stage: ReportedStage) -> list[RolloutFile]:
    """The one of a stage; [] where it has none, or not as it left it."""
    if not stage.is_unchanged(FILE):
        return []
    model = str(stage.settings.get("model", stage.name))
    sampled = stage.kind != "rollout" or stage.settings.get("num_samples", 1) != 1
    return [RolloutFile(model, stage.folder / FILE, sampled)]


def read_rollouts(files: Sequence[RolloutFile], most: int = MOST) -> RankedRollouts:
    """Lost ones first, then by their verdict and the mean of their scores. The best of a task has
    the highest mean, then the fewest turns. Only the rollouts that are shown are held in memory.
    """
    ranks: list[tuple[tuple[float, ...], RolloutLine, str]] = []
    best: dict[str, tuple[tuple[float, ...], RolloutLine]] = {}
    names: dict[str, None] = {}
    failed = 0
    for file in files:
        offset = 0
        with open(file.path, "rb") as lines:
            for line in lines:
                rollout, place = _read(line), (file, offset)
                offset += len(line)
                verdict, mean = rollout.verdict or 0.0, rollout.mean
                ranks.append(((not rollout.is_lost, verdict, mean), place, rollout.task))
                names |= dict.fromkeys(rollout.scores)
                failed += rollout.failed
                rank = (-mean, len(rollout.turns))
                if not rollout.is_lost and (
                    rollout.task not in best or rank < best[rollout.task][0]
                ):
                    best[rollout.task] = rank, place
    ranks.sort(key=lambda ranked: ranked[0])  # equal ones stay in the order of their files

    @lru_cache(maxsize=16)  # the best of a task is asked for by every other one
    def read_at(path: Path, offset: int) -> ReportedRollout:
        with open(path, "rb") as lines:
            lines.seek(offset)
            return _read(lines.readline())

    shown = []
    for _, (file, offset), task in ranks[:most]:
        rollout, against = read_at(file.path, offset), None
        best_file, best_offset = best[task][1] if task in best else (file, offset)
        if (best_file, best_offset) != (file, offset):
            better = read_at(best_file.path, best_offset)
            against = best_file, better, parting(rollout, better)
        shown.append(ShownRollout(file, rollout, against))
    return RankedRollouts(shown, len(ranks), failed, in_order(DONE, names))


def _read(line: bytes) -> ReportedRollout:
    """Scores that are not finite are left out: JSON has no such numbers."""
    rollout = msgspec.convert(json.loads(line), ReportedRollout)
    scores, *by_turn = (
        {name: value for name, value in scores.items() if math.isfinite(value)}
        for scores in (rollout.scores, *rollout.by_turn)
    )
    return msgspec.structs.replace(rollout, scores=scores, by_turn=by_turn)


def parting(one: ReportedRollout, other: ReportedRollout) -> Parting:
    """The first turn that is not the same."""
    for number, (mine, theirs) in enumerate(zip(one.turns, other.turns, strict=False)):
        if mine.text.strip() != theirs.text.strip():
            return Parting(number, "answer")
        if (mine.results, mine.user) != (theirs.results, theirs.user):
            return Parting(number, "result")
    return Parting(min(len(one.turns), len(other.turns)), "end")


def pack_rollouts(name: str, rollouts: RankedRollouts, budget: int) -> Packed:
    """At most `budget` characters; the best rollouts are left out if that is needed. `name`: of the
    evaluation or the stage, with which the links begin.
    """
    packed = pack_within(
        budget, len(rollouts.shown), lambda count: _contents(name, rollouts, count)
    )
    if packed.rows < rollouts.total:
        packed.notes.append(
            f"The worst {packed.rows:,} of {rollouts.total:,} rollouts: with the others this page "
            "would be too large."
        )
    return packed


def _contents(name: str, rollouts: RankedRollouts, count: int) -> Json:
    """Every prompt and every tool once: rollouts of a task share them."""
    shown = rollouts.shown[:count]
    files = [one.file for one in shown] + [one.best[0] for one in shown if one.best]
    models = list(dict.fromkeys(file.model for file in files))

    def who(file: RolloutFile, rollout: ReportedRollout) -> tuple[int, int | None]:
        """The number of its model, and its own; None for a greedy one."""
        return models.index(file.model), rollout.sample if file.sampled else None

    prompts: dict[str, int] = {}
    tools: dict[Tool, int] = {}
    rows = []
    for file, rollout, best in shown:
        prompt = compact([packed_message(message) for message in rollout.prompt])
        offered = [packed_tool(tool) for tool in rollout.tools]
        leaves = None  # which rollout is the best, where they part, and what that one says there
        if best:
            best_file, better, parting = best
            turn = next(iter(_turns(better)[parting.turn :]), None)  # it may have ended before
            said = [*parting, turn, better.ended, better.mean, rollout.mean]
            leaves = [*who(best_file, better), *said]
        rows.append(
            [
                rollout.task,
                *who(file, rollout),
                rollout.ended,
                rollout.problem,
                rollout.failed,
                [rollout.scores.get(name) for name in rollouts.names],
                rollout.by_turn,
                prompts.setdefault(prompt, len(prompts)),
                _turns(rollout),
                [tools.setdefault(tool, len(tools)) for tool in offered],
                leaves,
            ]
        )
    return {
        "name": name,
        "models": models,
        "metrics": rollouts.names,
        "endings": ENDINGS,
        "prompts": list(map(json.loads, prompts)),
        "tools": list(tools),
        "rollouts": rows,
    }


def _turns(rollout: ReportedRollout) -> list[list[Any]]:
    turns = []
    for turn, answer in zip(rollout.turns, rollout.answers, strict=True):
        _, words, calls = packed_message(answer)
        said = [words, calls, turn.results, turn.user]
        turns.append([*said, turn.problem, turn.text, turn.ended, turn.new_tokens])
    return turns
