"""The evaluations of a run on BFCL's categories -> v4's groups and overall of each model."""

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from agentlite.config.settings import RolloutSettings
from agentlite.report.read_run import Json, ReportedStage, WorkspaceRun
from agentlite.report.tables import Table, in_order, table_of
from agentlite.scoring.metrics.bfcl import CATEGORIES, GROUPS, MULTI_TURN, BfclScores, group_scores

SENTENCE = (
    "Of all evaluations of this run together, by the weights of BFCL v4. A group that was not "
    "measured leaves its weight to the others."
)


class BfclOfModel(NamedTuple):
    """`name`: of its folders; `digest`: of the model. `figures`: the overall, the groups and the
    categories by the names of metrics.json, None where nothing was measured. `measured_in`: the
    evaluation of each category.
    """

    name: str
    digest: str
    scores: BfclScores
    figures: dict[str, Any]
    measured_in: dict[str, str]


class BfclTable(NamedTuple):
    """`left_out`: sentences about evaluations that are not on BFCL's own prompts."""

    models: dict[str, BfclOfModel]
    left_out: list[str]

    def find(self, name: str, digest: str) -> BfclOfModel | None:
        """The one of a folder and a model; None where it has no figure."""
        models = (one for one in self.models.values() if (one.name, one.digest) == (name, digest))
        return next(models, None)


def bfcl_table(run: WorkspaceRun) -> BfclTable | None:
    """None where no multi-turn category was measured: the tables of each evaluation say it all. A
    model that was trained again stands apart from what it was.
    """
    by_model: dict[tuple[str, str], dict[str, tuple[Json, str]]] = {}
    left_out = []
    for evaluation in run.evaluations:
        where = f"{evaluation.folder.parent.name}/{evaluation.name}"
        for name, model in evaluation.models.items():
            scheme, _, category = str(model.settings.get("env", "")).partition(":")
            in_world = scheme == "bfcl" and bool(category)
            if in_world and (reason := _changed(model)):
                left_out.append(f"{evaluation.name} of {name} is left out: {reason}.")
                continue
            # recorded prompts name their categories in metrics.json; an environment is one category
            metrics = evaluation.metrics[name]
            figures = {
                category: figure
                for category, figure in metrics.get("bfcl", {}).items()
                if figure and category in CATEGORIES
            }
            verdicts = metrics.get("metrics", {}).get("bfcl")
            if verdicts and in_world and category in MULTI_TURN:
                figures[category] = verdicts
            measured = by_model.setdefault((name, model.inputs.get("model", "")), {})
            for category, figure in figures.items():
                if category not in measured or figure["count"] > measured[category][0]["count"]:
                    measured[category] = figure, where
    scored = [_scored(*key, measured) for key, measured in by_model.items() if measured]
    if not left_out and not any(MULTI_TURN.keys() & model.measured_in for model in scored):
        return None
    times = Counter(model.name for model in scored)
    models = {
        model.name if times[model.name] == 1 else f"{model.name} ({model.digest[:6]})": model
        for model in scored
    }
    return BfclTable(models, left_out)


def _changed(model: ReportedStage) -> str:
    """Why an environment of BFCL's did not ask as BFCL does; "" if it did."""
    if model.settings.get("extra_tools") is not None:
        return "it was measured with extra_tools, which offers other tools than BFCL does"
    limit = RolloutSettings().max_turns
    if model.settings.get("max_turns", limit) != limit:
        return f"it was measured with another max_turns than BFCL's {limit}"
    return ""


def _scored(name: str, digest: str, measured: dict[str, tuple[Json, str]]) -> BfclOfModel:
    verdicts = {}
    for category, (figure, _) in measured.items():
        right = round(figure["mean"] * figure["count"])
        verdicts[category] = [1.0] * right + [0.0] * (figure["count"] - right)
    scores = group_scores(verdicts)
    figures = {category: figure for category, (figure, _) in measured.items()}
    measured_in = {category: where for category, (_, where) in measured.items()}
    whole = msgspec.to_builtins(scores.figures)
    return BfclOfModel(name, digest, scores, {**whole, **figures}, measured_in)


def figures_of(table: BfclTable) -> Table:
    """A row for each figure, each group before its categories, and a column for each model."""
    order = ["bfcl_overall"]
    for name, group in GROUPS.items():
        order += [f"bfcl_{name}", *group.categories]
    rows = [([name], model.figures) for name, model in table.models.items()]
    present = sorted({name for _, figures in rows for name in figures})
    return table_of("BFCL v4", ["model"], rows, in_order(order, present)).turned


def missing(table: BfclTable) -> list[str]:
    """A sentence for each model about the categories that were not measured."""
    return [
        f"Of {name} these categories were not measured: {', '.join(model.scores.not_measured)}."
        for name, model in table.models.items()
        if model.scores.not_measured
    ]


def as_json(table: BfclTable) -> Json:
    """bfcl.json."""
    return {
        "weights": {f"bfcl_{name}": group.weight for name, group in GROUPS.items()},
        "models": {
            name: {
                "bfcl": model.figures,
                "bfcl_is": model.scores.name,
                "bfcl_not_measured": model.scores.not_measured,
                "measured_in": model.measured_in,
            }
            for name, model in table.models.items()
        },
        "left_out": table.left_out,
    }
