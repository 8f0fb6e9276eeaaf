"""The evaluations of a run on BFCL's categories -> v4's groups and overall of each model."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from agentlite.config.settings import RolloutSettings
from agentlite.report.read_run import Evaluation, Json, ReportedStage, WorkspaceRun
from agentlite.report.tables import ABSENT, Table
from agentlite.scoring.metrics.bfcl import GROUPS, BfclScores, group_scores

SENTENCE = (
    "Of all evaluations of this run together, by the weights of BFCL v4. A group that was not "
    "measured leaves its weight to the others."
)


class MeasuredCategory(NamedTuple):
    """`figure`: the share of right verdicts, as in metrics.json. `where`: the evaluation."""

    name: str
    figure: Json
    where: str


class BfclOfModel(NamedTuple):
    """`name`: of its folders. `digest`: of the model."""

    name: str
    digest: str
    categories: dict[str, MeasuredCategory]
    scores: BfclScores

    @property
    def figures(self) -> dict[str, Any]:
        """The overall, the groups and the categories by the names of metrics.json; None where
        nothing was measured.
        """
        whole = {"overall": self.scores.overall, **self.scores.groups}
        named = {f"bfcl_{name}": score for name, score in whole.items()}
        measured = {name: one.figure for name, one in self.categories.items()}
        return {**msgspec.to_builtins(named), **measured}


class BfclTable(NamedTuple):
    """`left_out`: sentences about evaluations that are not on BFCL's own prompts."""

    models: dict[str, BfclOfModel]
    left_out: list[str]

    def find(self, name: str, digest: str) -> BfclOfModel | None:
        """The one of a folder and a model; None where it has no figure."""
        of_model = (one for one in self.models.values() if (one.name, one.digest) == (name, digest))
        return next(of_model, None)


def bfcl_table(run: WorkspaceRun) -> BfclTable | None:
    """None where no multi-turn category was measured: the tables of each evaluation say it all. A
    model that was trained again stands apart from what it was.
    """
    by_model: dict[tuple[str, str], dict[str, MeasuredCategory]] = {}
    left_out = []
    for evaluation in run.evaluations:
        for name, model in evaluation.models.items():
            if reason := _changed(model):
                left_out.append(f"{evaluation.name} of {name} is left out: {reason}.")
                continue
            of_model = by_model.setdefault((name, model.inputs.get("model", "")), {})
            for one in _measured(evaluation, name, model):
                earlier = of_model.get(one.name)
                if earlier is None or one.figure["count"] > earlier.figure["count"]:
                    of_model[one.name] = one
    by_model = {key: measured for key, measured in by_model.items() if measured}
    multi_turn = {*GROUPS["multi_turn"].categories}
    if not left_out and not any(multi_turn & measured.keys() for measured in by_model.values()):
        return None
    names = [name for name, _ in by_model]
    models = {
        name if names.count(name) == 1 else f"{name} ({digest[:6]})": _scored(
            name, digest, measured
        )
        for (name, digest), measured in by_model.items()
    }
    return BfclTable(models, left_out)


def figures_of(table: BfclTable) -> Table:
    """A row for each figure, each group before its categories, and a column for each model."""
    of_models = [one.figures for one in table.models.values()]
    present = {name for figures in of_models for name in figures}
    order = ["bfcl_overall"]
    for name, group in GROUPS.items():
        order += [f"bfcl_{name}", *group.categories]
    order += sorted(present - {*order})
    rows = [
        [name, *(figures.get(name, ABSENT) for figures in of_models)]
        for name in order
        if name in present
    ]
    return Table("BFCL v4", ["", *table.models], rows)


def missing(table: BfclTable) -> list[str]:
    """A sentence for each model about the categories that were not measured."""
    return [
        f"Of {name} these categories were not measured: {', '.join(one.scores.not_measured)}."
        for name, one in table.models.items()
        if one.scores.not_measured
    ]


def as_json(table: BfclTable) -> Json:
    """bfcl.json."""
    return {
        "weights": {f"bfcl_{name}": group.weight for name, group in GROUPS.items()},
        "models": {
            name: {
                "bfcl": one.figures,
                "bfcl_is": one.scores.name,
                "bfcl_not_measured": one.scores.not_measured,
                "measured_in": {each.name: each.where for each in one.categories.values()},
            }
            for name, one in table.models.items()
        },
        "left_out": table.left_out,
    }


def _measured(
    evaluation: Evaluation, name: str, model: ReportedStage
) -> Iterator[MeasuredCategory]:
    """Recorded prompts name their categories in metrics.json; an environment is one category."""
    figures = evaluation.metrics[name]
    where = f"{evaluation.folder.parent.name}/{evaluation.name}"
    categories = {category for group in GROUPS.values() for category in group.categories}
    for category, figure in figures.get("bfcl", {}).items():
        if figure and category in {*categories, "live_relevance"}:
            yield MeasuredCategory(category, figure, where)
    verdicts = figures.get("metrics", {}).get("bfcl")
    if verdicts and (category := _category(model)) in GROUPS["multi_turn"].categories:
        yield MeasuredCategory(category, verdicts, where)


def _category(model: ReportedStage) -> str:
    """The one that its environment is; "" for others."""
    scheme, colon, category = str(model.settings.get("env", "")).partition(":")
    return category if colon and scheme == "bfcl" else ""


def _changed(model: ReportedStage) -> str:
    """Why an environment of BFCL's did not ask as BFCL does; "" if it did, and for others."""
    if not _category(model):
        return ""
    if model.settings.get("extra_tools") is not None:
        return "it was measured with --extra-tools, which offers other tools than BFCL does"
    limit = RolloutSettings().max_turns
    if model.settings.get("max_turns", limit) != limit:
        return f"it was measured with another --max-turns than BFCL's {limit}"
    return ""


def _scored(name: str, digest: str, measured: dict[str, MeasuredCategory]) -> BfclOfModel:
    verdicts = {}
    for category, one in measured.items():
        right = round(one.figure["mean"] * one.figure["count"])
        verdicts[category] = [1.0] * right + [0.0] * (one.figure["count"] - right)
    return BfclOfModel(name, digest, measured, group_scores(verdicts))
