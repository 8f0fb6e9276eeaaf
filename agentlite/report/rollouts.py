"""The rollouts of an evaluation or a stage, the worst first; and packed for the page's viewer."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

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
    def verdict(self) -> float | None:
        """The score that says whether the task is done: the first that there is."""
        return next((self.scores[name] for name in DONE if name in self.scores), None)

    @property
    def failed(self) -> bool:
        """A lost one as well: its world or its model's server broke."""
        return self.ended in LOST or (self.verdict is not None and self.verdict < 1)

    @property
    def rank(self) -> tuple[float, ...]:
        """Lost ones first, then by the verdict and the mean of the scores."""
        mean = fmean(self.scores.values()) if self.scores else 0.0
        return self.ended not in LOST, self.verdict or 0.0, mean


class ShownRollout(NamedTuple):
    file: RolloutFile
    rollout: ReportedRollout


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
    model = str(stage.plan.settings.get("model", stage.name))
    sampled = stage.plan.command != "rollout" or stage.plan.settings.get("num_samples", 1) != 1
    return [RolloutFile(model, stage.folder / FILE, sampled)]


def read_rollouts(files: Sequence[RolloutFile]) -> RankedRollouts:
    every = [
        ShownRollout(file, _read(line))
        for file in files
        for line in file.path.read_bytes().splitlines()
    ]
    names = [name for _, rollout in every for name in rollout.scores]
    failed = sum(rollout.failed for _, rollout in every)
    shown = sorted(every, key=lambda one: one.rollout.rank)[:MOST]
    return RankedRollouts(shown, len(every), failed, in_order(DONE, names))


def _read(line: bytes) -> ReportedRollout:
    """Scores that are not finite are left out: JSON has no such numbers."""
    rollout = msgspec.convert(json.loads(line), ReportedRollout)
    scores, *by_turn = (
        {name: value for name, value in scores.items() if math.isfinite(value)}
        for scores in (rollout.scores, *rollout.by_turn)
    )
    return msgspec.structs.replace(rollout, scores=scores, by_turn=by_turn)


def pack_rollouts(rollouts: RankedRollouts, budget: int) -> Packed:
    """At most `budget` characters; the best rollouts are left out if that is needed."""
    packed = pack_within(budget, len(rollouts.shown), lambda count: _contents(rollouts, count))
    if packed.rows < rollouts.total:
        packed.notes.append(
            f"The worst {packed.rows:,} of {rollouts.total:,} rollouts: with the others this page "
            "would be too large."
        )
    return packed


def _contents(rollouts: RankedRollouts, count: int) -> Json:
    """Every prompt and every tool once: rollouts of a task share them."""
    shown = rollouts.shown[:count]
    models = list(dict.fromkeys(file.model for file, _ in shown))
    prompts: dict[str, int] = {}
    tools: dict[Tool, int] = {}
    rows = []
    for file, rollout in shown:
        begins = (rollout.answered_at or [len(rollout.messages)])[0]
        prompt = compact([packed_message(message) for message in rollout.messages[:begins]])
        offered = [packed_tool(tool) for tool in rollout.tools]
        rows.append(
            [
                rollout.task,
                models.index(file.model),
                rollout.sample if file.sampled else None,
                rollout.ended,
                rollout.problem,
                rollout.failed,
                [rollout.scores.get(name) for name in rollouts.names],
                rollout.by_turn,
                prompts.setdefault(prompt, len(prompts)),
                _turns(rollout),
                [tools.setdefault(tool, len(tools)) for tool in offered],
            ]
        )
    return {
        "models": models,
        "metrics": rollouts.names,
        "endings": ENDINGS,
        "prompts": list(map(json.loads, prompts)),
        "tools": list(tools),
        "rollouts": rows,
    }


def _turns(rollout: ReportedRollout) -> list[list[Any]]:
    turns = []
    for turn, at in zip(rollout.turns, rollout.answered_at, strict=True):
        _, words, calls = packed_message(rollout.messages[at])
        said = [words, calls, turn.results, turn.user]
        turns.append([*said, turn.problem, turn.text, turn.ended, turn.new_tokens])
    return turns
