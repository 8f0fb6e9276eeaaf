"""A workspace -> report.html: one file that loads nothing and keeps models' texts as text."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agentlite.core.row_files import Row
from agentlite.report import ablation, bfcl_scores, charts, retrieval_tables, tables
from agentlite.report.explanations import EXPLANATIONS
from agentlite.report.headline import headline
from agentlite.report.prediction_viewer import pack
from agentlite.report.predictions import MOST, confusion, read_answers
from agentlite.report.provenance import commands, is_given, origins
from agentlite.report.read_run import Evaluation, Json, ReportedStage, WorkspaceRun
from agentlite.report.rollout_viewer import pack_rollouts
from agentlite.report.rollouts import file_of, files_of, read_rollouts
from agentlite.report.tables import Figures

if TYPE_CHECKING:
    from markupsafe import Markup

FILES = Path(__file__).parent
READER_BUDGET = 4_500_000  # characters, of all readers together: the page stays below 5 MB


def page(run: WorkspaceRun) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"tables": tables, "charts": charts, "is_given": is_given}
    environment.globals |= {"ablation": ablation, "bfcl_scores": bfcl_scores}
    environment.globals |= {"explanations": EXPLANATIONS, "zip": zip}
    environment.filters["with_code"] = with_code
    style, script = ((FILES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    acted = [stage for stage in run.stages if file_of(stage)]
    budget = READER_BUDGET // max(1, len(run.evaluations) + len(acted))
    sections = {
        "run": run,
        "evaluations": [_evaluation(run, evaluation, budget) for evaluation in run.evaluations],
        "bfcl": bfcl_scores.bfcl_table(run),
        "acted": [_rollouts(stage, budget) for stage in acted],
        "ablations": ablation.ablations(run),
        "retrievers": [
            _retriever(stage)
            for stage in run.stages
            if stage.kind == "retriever" and stage.is_as_left("metrics.json")
        ],
        "trained": [_trained(stage, rows) for stage in run.stages if (rows := stage.logged)],
        "origins": origins(run),
        "statistics": [
            (stage, list(_statistics(stage.json("stats.json"))))
            for stage in run.stages
            if stage.is_as_left("stats.json")
        ],
        "versions": _versions(run),
        "commands": commands(run),
    }
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        sections, links=_links(sections), style=style, script=script, script_digest=digest
    )


def with_code(sentence: str) -> "Markup":
    """Escaped, with what stands in backticks set as code."""
    from markupsafe import Markup

    parts = sentence.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
    )


def _links(sections: Json) -> list[tuple[str, str]]:
    """Anchors and names of the sections that have content, from top to bottom."""
    links = []
    for number, evaluation in enumerate(sections["evaluations"], 1):
        names = {
            "Models": "models",
            "Differences": "differences",
            "Slices": "models",
            "Tools": "answered",
            "Predictions": "answered",
            "Rollouts": "rollouts",
        }
        on = f" on {evaluation['evaluation'].name}" if len(sections["evaluations"]) > 1 else ""
        links += [
            (f"{name.lower()}-{number}", f"{name}{on}")
            for name, content in names.items()
            if evaluation.get(content)
        ]
    contents = {
        "BFCL": "bfcl",
        "Rollouts": "acted",
        "Ablation": "ablations",
        "Retrieval": "retrievers",
        "Training": "trained",
        "Lineage": "origins",
        "Data": "statistics",
        "Settings": "commands",
        "Commands": "commands",
    }
    return links + [(name.lower(), name) for name, content in contents.items() if sections[content]]


class PageRows(NamedTuple):
    """A table of text."""

    title: str
    head: list[str]
    rows: list[list[str]]


def _evaluation(run: WorkspaceRun, evaluation: Evaluation, budget: int) -> Json:
    if not evaluation.models:
        return {"evaluation": evaluation}
    metrics, models = evaluation.metrics, tables.models(evaluation.metrics)
    prompts = max(figures.get("prompts", 0) for figures in metrics.values())
    if evaluation.is_live:
        acted = read_rollouts(files_of(evaluation))
        subject = {
            "prompts": f"{prompts} tasks",
            "rollouts": pack_rollouts(evaluation.name, acted, budget),
        }
    else:
        subject = _answers(run, evaluation, models.names, prompts, budget)
    return {
        **subject,
        "evaluation": evaluation,
        "is_bfcl": run.is_bfcl(evaluation),
        "headline": headline(metrics, tables.differences(evaluation)),
        "learned_before": tables.learned_before(metrics),
        "models": _by_metric(models),
        "differences": _by_pair(tables.differences(evaluation)),
        "outdated": tables.outdated(evaluation),
        "slices": tables.slices(metrics),
        "groups": [figures.turned for figures in tables.groups(metrics)],
        "metrics": list(metrics),
        "wrong": tables.wrong_answers(metrics),
        "problems": tables.problems(metrics),
    }


def _answers(
    run: WorkspaceRun, evaluation: Evaluation, names: list[str], prompts: int, budget: int
) -> Json:
    """What the models answered to recorded prompts."""
    answers = read_answers(run, evaluation)
    confused = confusion(answers, list(evaluation.metrics))
    return {
        "answered": True,
        "prompts": f"{len(answers.by_step) or prompts} prompts",
        "confusion": confused[:MOST],
        "tools": len(confused),
        "unknown": sum(step.record_id not in answers.records for step in answers.by_step),
        "reader": pack(answers, list(evaluation.metrics), names, budget),
    }


def _rollouts(stage: ReportedStage, budget: int) -> Json:
    rollouts = read_rollouts(file_of(stage))
    return {"stage": stage, "reader": pack_rollouts(stage.name, rollouts, budget)}


def _by_metric(models: Figures) -> list[Json]:
    """Each metric with its figures by model, and the scale of its chart."""
    columns = zip(*(figures for _, figures in models.rows), strict=True)
    labels = [labels[0] for labels, _ in models.rows]
    metrics = []
    for name, column in zip(models.names, columns, strict=True):
        scale = charts.scale([figure for figure in column if tables.is_summary(figure)])
        marks = (0, 0.5, 1) if scale == (0, 1) else (0,)
        metrics.append(
            {
                "name": name,
                "rows": list(zip(labels, column, strict=True)),
                "scale": scale,
                "marks": marks,
            }
        )
    return metrics


def _by_pair(differences: list[Json]) -> list[Json]:
    """The differences between two models at a time, all on one scale around zero."""
    scale = charts.scale(differences, around_zero=True)
    pairs: dict[tuple[str, str], list[Json]] = {}
    for row in differences:
        pairs.setdefault((row["second"], row["first"]), []).append(row)
    return [
        {"second": second, "first": first, "rows": rows, "scale": scale}
        for (second, first), rows in pairs.items()
    ]


def _retriever(stage: ReportedStage) -> Json:
    figures = stage.json("metrics.json")
    every, *views = retrieval_tables.tables(figures)
    return {
        "stage": stage,
        "title": every.title,
        "every": _by_metric(every),
        "views": views,
        "differences": _by_pair(retrieval_tables.differences(figures)),
        "milliseconds": retrieval_tables.milliseconds(figures),
    }


def _trained(stage: ReportedStage, rows: list[Row]) -> Json:
    curves, components = charts.charts(rows)
    so_far = {} if stage.done else {"not finished, step": rows[-1]["step"]}
    return {
        "stage": stage,
        "figures": {**so_far, **stage.figures},
        "curves": curves,
        "components": components,
    }


def _statistics(values: Json, title: str = "") -> Iterator[PageRows]:
    """The numbers as a table; each value that is an object as a table of its own."""
    single = {name: value for name, value in values.items() if not isinstance(value, dict)}
    if single:
        yield PageRows(title, [], [[name, _text(value)] for name, value in single.items()])
    for name, value in values.items():
        if isinstance(value, dict) and value:
            called = f"{title} {name.replace('_', ' ')}".strip()
            if all(isinstance(inner, dict) for inner in value.values()):
                head = list(dict.fromkeys(key for inner in value.values() for key in inner))
                body = [
                    [key, *(_text(inner.get(column)) for column in head)]
                    for key, inner in value.items()
                ]
                yield PageRows(called, ["", *head], body)
            else:
                yield from _statistics(value, called)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items()) or tables.ABSENT
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return tables.ABSENT if value is None else tables.short(value)


def _versions(run: WorkspaceRun) -> list[tuple[str, dict[str, str]]]:
    """Each set of versions with the names of the stages that ran under it: as a rule, all."""
    plans = [(stage.name, stage.plan) for stage in run.stages]
    plans += [
        (f"eval {name}", model.plan)
        for evaluation in run.evaluations
        for name, model in evaluation.models.items()
    ]
    names: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, plan in plans:
        if plan.versions:
            names.setdefault(tuple(plan.versions.items()), []).append(name)
    return [
        ("all stages" if len(names) == 1 else ", ".join(of_these), dict(versions))
        for versions, of_these in names.items()
    ]
