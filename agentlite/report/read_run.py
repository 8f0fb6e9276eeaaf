"""A run's folder -> what reports may say of it: its stages and evaluations, and why something was
not read.
"""

import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.row_files import Row, read_rows
from agentlite.workspace.digests import file_digest

Json = dict[str, Any]

STAGES = ("prep", "retriever", "prep --retrieve", "sft", "pairs", "dpo", "grpo")
SHOWN = (
    "metrics.jsonl",
    "stats.json",
    "metrics.json",
)  # of a stage; of an evaluation, all there is


class ReportedStage(Struct, frozen=True, dict=True):
    """A folder with a plan. `done` is None where the stage is not finished."""

    folder: Path
    plan: Json
    done: Json | None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def kind(self) -> str:
        """Its command; a `prep` with tools that a retriever brings comes after that one."""
        retrieves = self.plan.get("command") == "prep" and self.settings.get("retrieve")
        return "prep --retrieve" if retrieves else self.plan.get("command", "")

    @property
    def settings(self) -> Json:
        return self.plan.get("settings") or {}

    @property
    def inputs(self) -> dict[str, str]:
        return self.plan.get("inputs") or {}

    @property
    def figures(self) -> Json:
        return (self.done or {}).get("figures") or {}

    @property
    def outputs(self) -> dict[str, str]:
        return (self.done or {}).get("outputs") or {}

    def is_as_left(self, name: str) -> bool:
        """Whether one of its files is there, and is what the finished stage wrote."""
        path = self.folder / name
        return (
            self.done is not None
            and path.exists()
            and self.outputs.get(name) in (None, file_digest(path))
        )

    def json(self, name: str) -> Json:
        """One of its files, or nothing where it has none that can be trusted."""
        return read_json(self.folder / name) if self.is_as_left(name) else {}

    def rows(self, name: str) -> list[Row]:
        return list(read_rows(self.folder / name)) if self.is_as_left(name) else []


class Evaluation(Struct, frozen=True, dict=True):
    """What models said to the prompts of one data set. `unread`: a sentence for each folder that
    was passed over.
    """

    folder: Path
    models: dict[str, ReportedStage]
    unread: list[str]
    compared: Json

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def metrics(self) -> dict[str, Json]:
        return {
            name: read_json(model.folder / "metrics.json") for name, model in self.models.items()
        }

    @cached_property
    def is_current(self) -> bool:
        """Whether the models' predictions are still those that were compared."""
        found = {
            name: model.outputs.get("predictions.jsonl") for name, model in self.models.items()
        }
        return all(
            found.get(name) == digest
            for name, digest in self.compared.get("predictions", {}).items()
        )


class WorkspaceRun(Struct, frozen=True):
    """All there is in a workspace, in the order in which stages are run."""

    folder: Path
    stages: list[ReportedStage]
    evaluations: list[Evaluation]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def unread(self) -> list[str]:
        """A sentence for each stage that is not finished, and for each of its files that was
        changed.
        """
        return [sentence for stage in self.stages if (sentence := _why_unread(stage, SHOWN))]

    def stage(self, name: Any) -> ReportedStage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def prepared(self, evaluation: Evaluation) -> ReportedStage | None:
        """The stage whose records were asked."""
        return self.stage(evaluation.name) or self.stage("prep")

    def is_bfcl(self, evaluation: Evaluation) -> bool:
        """Whether anything that says where the prompts came from says BFCL."""
        plans = [model.plan for model in evaluation.models.values()]
        sources = [
            metrics.get("by", {}).get("source", {}) for metrics in evaluation.metrics.values()
        ]
        prepared = self.prepared(evaluation)
        return "bfcl:" in json.dumps([plans, sources, prepared.settings if prepared else {}])


def read_run(folder: Path) -> WorkspaceRun:
    """Raises UserError where there is no such run, or where a finished stage left a file that
    cannot be read.
    """
    if not folder.is_dir():
        raise UserError(
            "there is no such run.",
            "Name the folder that the stages wrote, with --run.",
            location=str(folder),
        )
    stages = [_stage(plan.parent) for plan in sorted(folder.glob("*/plan.json"))]
    known = [stage for stage in stages if stage.kind in STAGES]
    known.sort(key=lambda stage: (STAGES.index(stage.kind), stage.name))
    asked = [_stage(plan.parent) for plan in folder.glob("*/*/*/plan.json")]
    evaluated = sorted({stage.folder.parent for stage in asked})
    return WorkspaceRun(
        folder,
        known,
        [
            _evaluation(path, [one for one in asked if one.folder.parent == path])
            for path in evaluated
        ],
    )


def read_json(path: Path) -> Json:
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError) as error:
        fix = "A finished stage has it: run that stage again with --force."
        raise UserError(
            f"cannot be read ({error}).", fix, location=str(path), exit_code=OTHER_PLAN
        ) from error
    if not isinstance(content, dict):
        raise UserError(
            "is no JSON object.",
            "Run the stage that wrote it again with --force.",
            location=str(path),
        )
    return content


def _stage(folder: Path) -> ReportedStage:
    done = folder / "done.json"
    return ReportedStage(
        folder, read_json(folder / "plan.json"), read_json(done) if done.exists() else None
    )


def _evaluation(folder: Path, members: list[ReportedStage]) -> Evaluation:
    """The models as they were compared, so that the first stands first; the rest by name."""
    path = folder / "compare.json"
    compared = read_json(path) if path.exists() else {}
    rank = {model: index for index, model in enumerate(compared.get("models", []))}
    members = sorted(members, key=lambda model: (rank.get(model.name, len(rank)), model.name))
    unread = {model.name: why for model in members if (why := _why_unread(model, model.outputs))}
    models = {model.name: model for model in members if model.name not in unread}
    return Evaluation(folder, models, list(unread.values()), compared)


def _why_unread(stage: ReportedStage, names: Iterable[str]) -> str:
    """A sentence, or "" for a folder that can be read."""
    again = f"Run `agentlite {stage.plan.get('command', '')}` again"
    if stage.done is None:
        return f"Not finished, so not read: {stage.name}. {again} to finish it."
    changed = [name for name in names if name in stage.outputs and not stage.is_as_left(name)]
    return (
        f"{changed[0]} is not as it was left, so not read: {stage.name}. {again} with --force."
        if changed
        else ""
    )
