"""What all ways to evaluate have in common: models with their plans, and metrics of each."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.row_files import write_json
from agentlite.scoring.metrics.figures import Comparison, Metrics
from agentlite.scoring.metrics.summarize import Scores, compare
from agentlite.workspace import stage_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.stage_folder import Plan, StageFolder


class EvaluatedModel(NamedTuple):
    folder: Path
    metrics: Metrics
    scores: Scores
    status: str
    seconds: float


class Evaluation:
    """A way to ask models. `base`: the folder that holds one for each of them; `plans`: of the
    models, by name; `scored`: the file of a model in which each of its answers is.
    """

    base: Path
    plans: Mapping[str, Plan]
    scored: str

    def folder(self, name: str) -> Path:
        return self.base / slug(name)

    def missing(self, name: str, force: bool) -> dict[str, Any]:
        """What a model would still be asked, for a dry run."""
        raise NotImplementedError

    def measure(self, name: str, stage: StageFolder) -> tuple[Metrics, Scores]:
        """Asks what was not asked yet, reads and scores every answer, and finishes the stage if
        anything is new.
        """
        raise NotImplementedError

    def is_alike(self, plan: Plan) -> bool:
        """Whether a model that was evaluated before was asked the same."""
        raise NotImplementedError

    def read_scores(self, folder: Path) -> Scores:
        """Of such a model."""
        raise NotImplementedError

    def conclude(self, models: Mapping[str, EvaluatedModel]) -> None:
        """Says and writes what can only be told when all models are evaluated."""

    def compare(self, models: Mapping[str, EvaluatedModel], seed: int) -> Comparison | None:
        """compare.json: these models and those that were evaluated before, as far as they have
        answered all that these have, in the order they first came in. None for one model alone.
        """
        now = {model.folder.name: model.scores for model in models.values()}
        asked = set().union(*now.values())
        by_model: dict[str, Scores] = {}
        for folder in stage_folder.stages_in(self.base):
            stored = stage_folder.read(folder)
            if folder.name in now or not stored.done or not stored.plan or stored.changed():
                continue
            if self.is_alike(stored.plan):
                scores = self.read_scores(folder)
                if asked <= scores.keys():
                    by_model[folder.name] = scores
        by_model |= now
        if len(by_model) < 2:
            return None
        path = self.base / "compare.json"
        before = json.loads(path.read_bytes())["models"] if path.exists() else []
        order = [name for name in before if name in by_model]
        order += [name for name in by_model if name not in before]
        comparison = compare({name: by_model[name] for name in order}, seed)
        digests = {name: file_digest(self.base / name / self.scored) for name in order}
        write_json(path, replace(comparison, predictions=digests))
        return comparison


def slug(name: str) -> str:
    """A name as a folder: `Qwen/Qwen2.5-1.5B` -> `Qwen-Qwen2.5-1.5B`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"
