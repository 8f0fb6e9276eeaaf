"""The rollouts of an evaluation or a stage, the worst first, each with the best one of its task."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.report.read_run import Evaluation, ReportedStage
from agentlite.scoring.metrics.model_metrics import DONE

MOST = 500  # rollouts in a reader
FILE, SAMPLES = "trajectories.jsonl", "samples.jsonl"
LOST = ("world", "unanswered")  # such a rollout has no score


class RolloutFile(NamedTuple):
    """`sampled`: whether its rollouts were sampled, and have a number; greedy ones have none."""

    model: str
    path: Path
    sampled: bool


class ReportedTurn(Struct, frozen=True):
    """A turn of the model as it is stored, as much of it as a report shows."""

    text: str
    ended: str = ""
    new_tokens: int = 0
    results: tuple[tuple[str, bool], ...] = ()
    user: str | None = None
    problem: str = ""


class UserFaults(Struct, frozen=True):
    """Of a simulated user: the number of each reply with a fault, its kind, and the reason."""

    faults: list[tuple[int, str, str]] = []


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
    simulated_user: UserFaults | None = None

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """What the dialog has before the model's first turn."""
        return self.messages[: (self._places or [len(self.messages)])[0]]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The message of each turn of the model."""
        return [self.messages[at] for at in self._places]

    @property
    def _places(self) -> list[int]:
        """Of the turns' messages: the last of the assistant's. A prompt may have others before."""
        places = [at for at, one in enumerate(self.messages) if one.get("role") == "assistant"]
        return places[len(places) - len(self.turns) :]

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


class _Place(NamedTuple):
    """Where a rollout stands: the number of its file, and its line's first byte."""

    file: int
    offset: int


def files_of(evaluation: Evaluation) -> list[RolloutFile]:
    """Of each model those that are as it left them. Samples beside recorded dialogs are answers."""
    return [
        RolloutFile(name, model.folder / file, file == SAMPLES)
        for name, model in evaluation.models.items()
        for file in (FILE, SAMPLES)
        if model.is_as_left(FILE) and model.is_as_left(file)
    ]


def file_of(stage: ReportedStage) -> list[RolloutFile]:
    """The one of a stage; [] where it has none, or not as it left it."""
    if not stage.is_as_left(FILE):
        return []
    model = str(stage.settings.get("model", stage.name))
    sampled = stage.kind != "rollout" or stage.settings.get("num_samples", 1) != 1
    return [RolloutFile(model, stage.folder / FILE, sampled)]


def read_rollouts(files: Sequence[RolloutFile], most: int = MOST) -> RankedRollouts:
    """Lost ones first, then by their verdict and the mean of their scores. The best of a task has
    the highest mean, then the fewest turns. Only the rollouts that are shown are held in memory.
    """
    ranks: list[tuple[tuple[float, ...], _Place, str]] = []
    best: dict[str, tuple[tuple[float, ...], _Place]] = {}
    names: dict[str, None] = {}
    failed = 0
    for number, file in enumerate(files):
        for offset, one in _stored(file.path):
            place, verdict = _Place(number, offset), one.verdict
            ranks.append(((not one.is_lost, verdict or 0.0, one.mean), place, one.task))
            names |= dict.fromkeys(one.scores)
            failed += one.failed
            if not one.is_lost:
                rank = (-one.mean, len(one.turns))
                best[one.task] = min(best.get(one.task, (rank, place)), (rank, place))
    ranks.sort(key=lambda ranked: ranked[0])  # equal ones stay in the order of their files
    read = _reader(files)
    shown = []
    for _, place, task in ranks[:most]:
        rollout = read(place)
        other = best.get(task, (None, place))[1]
        against = None
        if other != place:
            better = read(other)
            against = (files[other.file], better, parting(rollout, better))
        shown.append(ShownRollout(files[place.file], rollout, against))
    order = [*(name for name in DONE if name in names), *(one for one in names if one not in DONE)]
    return RankedRollouts(shown, len(ranks), failed, order)


def parting(one: ReportedRollout, other: ReportedRollout) -> Parting:
    """The first turn that is not the same."""
    for number, (mine, theirs) in enumerate(zip(one.turns, other.turns, strict=False)):
        if mine.text.strip() != theirs.text.strip():
            return Parting(number, "answer")
        if (mine.results, mine.user) != (theirs.results, theirs.user):
            return Parting(number, "result")
    return Parting(min(len(one.turns), len(other.turns)), "end")


def _stored(path: Path) -> Iterator[tuple[int, ReportedRollout]]:
    """Each row with the place of its first byte."""
    with open(path, "rb") as file:
        offset = 0
        for line in file:
            yield offset, _read(line)
            offset += len(line)


def _read(line: bytes) -> ReportedRollout:
    one = msgspec.convert(json.loads(line), ReportedRollout)
    by_turn = [_finite(scores) for scores in one.by_turn]
    return msgspec.structs.replace(one, scores=_finite(one.scores), by_turn=by_turn)


def _finite(scores: Mapping[str, float]) -> dict[str, float]:
    """JSON has no other numbers."""
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def _reader(files: Sequence[RolloutFile]) -> Callable[[_Place], ReportedRollout]:
    @lru_cache(maxsize=16)  # the best of a task is asked for by every other one
    def read(place: _Place) -> ReportedRollout:
        with open(files[place.file].path, "rb") as file:
            file.seek(place.offset)
            return _read(file.readline())

    return read


def text_of(message: Mapping[str, Any]) -> str:
    """The words of a message, also where they are a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [one.get("text", "") if isinstance(one, dict) else str(one) for one in content]
        return "\n".join(map(str, parts))
    return "" if content is None else str(content)


def calls_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The name and the arguments, as JSON, of each call of a message."""
    calls = []
    found = message.get("tool_calls")
    for call in found if isinstance(found, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        arguments = function.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        calls.append((str(function.get("name", "")), text))
    return calls
