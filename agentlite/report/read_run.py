"""A workspace as reports see it: its stages, its evaluations, and why something was not read."""

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from agentlite.config.pipeline import STAGES
from agentlite.config.resolve import plain_defaults
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.row_files import Row, read_rows
from agentlite.workspace import lookup

Json = dict[str, Any]

# the files of a stage that a report shows; of an evaluation it shows all
SHOWN_FILES = ("metrics.jsonl", "stats.json", "metrics.json", "trajectories.jsonl", "table.json")


class ReportedStage(lookup.StoredStage, frozen=True):
    """A stage whose plan can be trusted, finished or not."""

    plan: lookup.Plan

    @property
    def name(self) -> str:
        return self.folder.name

    def is_given(self, key: str) -> bool:
        """Whether a setting is not the default."""
        defaults = plain_defaults(self.plan.command, [key])
        return key in defaults and bool(self.plan.settings[key] != defaults[key])

    def json(self, name: str) -> Json:
        """One of its files; {} if it is missing or cannot be trusted."""
        return read_json(self.folder / name) if self.is_unchanged(name) else {}

    def rows(self, name: str) -> list[Row]:
        return list(read_rows(self.folder / name)) if self.is_unchanged(name) else []

    @property
    def logged_rows(self) -> list[Row]:
        """The rows of metrics.jsonl; while the stage is not finished, the whole rows so far."""
        path = self.folder / "metrics.jsonl"
        if self.done or not path.exists():
            return self.rows(path.name)
        content = path.read_bytes()
        return list(map(json.loads, content[: content.rfind(b"\n") + 1].splitlines()))


class ReportedEvaluation(Struct, frozen=True, dict=True):  # the dict keeps what is cached
    """The models that answered the prompts of one data set, by name. `unread`: a sentence for each
    folder that was passed over; `comparison`: compare.json, or {}.
    """

    folder: Path
    models: dict[str, ReportedStage]
    unread: list[str]
    comparison: Json

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def metrics(self) -> dict[str, Json]:
        return {
            name: read_json(model.folder / "metrics.json") for name, model in self.models.items()
        }

    @property
    def is_live(self) -> bool:
        """Whether the models acted in an environment, in place of answering recorded prompts."""
        return any(figures.get("dialogs_are") == "live" for figures in self.metrics.values())

    @cached_property
    def is_current(self) -> bool:
        """Whether the models' predictions are still those that were compared."""
        return all(
            name in self.models and digest in self.models[name].outputs.values()
            for name, digest in self.comparison.get("predictions", {}).items()
        )


class WorkspaceRun(Struct, frozen=True):
    """All stages of a workspace, in the order in which they were begun. `unread`: a sentence for
    each that is not finished or cannot be trusted, and for each whose shown files were changed.
    """

    folder: Path
    stages: list[ReportedStage]
    evaluations: list[ReportedEvaluation]
    unread: list[str]

    def stage(self, name: object) -> ReportedStage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def read_run(folder: Path) -> WorkspaceRun:
    """Raises UserError where a finished stage left a file that cannot be read."""
    stored_stages, members = (
        [
            stage
            for path in lookup.stages_in(folder, pattern, given_up=True)
            if not (stage := lookup.read_stage(path)).given_up
        ]
        for pattern in ("*", "*/*/*")  # sft, and eval/prep/sft
    )
    stages = [
        ReportedStage(**structs.asdict(stage))
        for stage in stored_stages
        if stage.command in {*STAGES} - {"eval"}
    ]
    stages.sort(key=lambda stage: (stage.started_at, stage.name))
    unread = [_unread_reason(stage) for stage in stored_stages if stage.plan is None]
    unread += [_unread_reason(stage, SHOWN_FILES) for stage in stages]
    by_evaluation = defaultdict(list)
    for member in members:
        if member.command in ("", "eval"):  # others are of workspaces inside
            by_evaluation[member.folder.parent].append(member)
    evaluations = [_evaluation(path, by_evaluation[path]) for path in sorted(by_evaluation)]
    return WorkspaceRun(folder, stages, evaluations, list(filter(None, unread)))


def _evaluation(folder: Path, members: list[lookup.StoredStage]) -> ReportedEvaluation:
    """The models in the order in which they were compared, so that the first stays first; others
    follow by name.
    """
    path = folder / "compare.json"
    comparison = read_json(path) if path.exists() else {}
    rank = {model: number for number, model in enumerate(comparison.get("models", []))}
    models, unread = {}, []
    for member in sorted(members, key=lambda member: rank.get(member.folder.name, len(rank))):
        if reason := _unread_reason(member):
            unread.append(reason)
        elif member.plan:
            models[member.folder.name] = ReportedStage(**structs.asdict(member))
    return ReportedEvaluation(folder, models, unread, comparison)


def read_json(path: Path) -> Json:
    """The object in a file that a finished stage left. Raises UserError where it cannot be read."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError) as error:
        raise UserError(
            f"cannot be read ({error}).",
            "A finished stage has it: run that stage again with --force.",
            location=str(path),
            exit_code=OTHER_PLAN,
        ) from error


def _unread_reason(stage: lookup.StoredStage, names: Iterable[str] | None = None) -> str:
    """A sentence, or "" for a finished stage whose files `names` are as it left them."""
    reason = stage.problem(names) or ("" if stage.done else "not finished")
    name = f"{stage.folder.name} ({reason})"
    return f"Not read: {name}. `agentlite runs` says how far each stage is." if reason else ""
