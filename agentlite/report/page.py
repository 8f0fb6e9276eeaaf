"""A workspace -> report.html: one file that loads nothing and keeps models' texts as text."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agentlite.report import ablation, bfcl_scores, charts, retrieval_tables, tables
from agentlite.report.headline import headline
from agentlite.report.predictions import MOST, confusion, pack_predictions, read_answers
from agentlite.report.provenance import commands, is_given, origins
from agentlite.report.read_run import Evaluation, Json, WorkspaceRun
from agentlite.report.rollouts import file_of, files_of, pack_rollouts, read_rollouts
from agentlite.report.tables import Table
from agentlite.scoring.metrics.model_metrics import EXPLANATIONS

if TYPE_CHECKING:
    from markupsafe import Markup

FILES = Path(__file__).parent
READER_BUDGET = 4_500_000  # characters, of all readers together: the page stays below 5 MB


def page(run: WorkspaceRun) -> str:
    """Its sections by title, from top to bottom; the page leaves out those without content."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    acted = [stage for stage in run.stages if file_of(stage)]
    budget = READER_BUDGET // max(1, len(run.evaluations) + len(acted))
    evaluations = [_evaluation(run, evaluation, budget) for evaluation in run.evaluations]
    rollouts, retrievers, trained, data = [], [], [], []
    for stage in run.stages:
        if files := file_of(stage):
            rollouts.append((stage, pack_rollouts(stage.name, read_rollouts(files), budget)))
        if stage.kind == "retriever" and (figures := stage.json("metrics.json")):
            every, *views = retrieval_tables.tables(figures)
            retrieval = {
                "stage": stage,
                "title": every.title,
                "every": _by_metric(every),
                "views": views,
                "differences": _by_pair(retrieval_tables.differences(figures)),
                "milliseconds": retrieval_tables.milliseconds(figures),
            }
            retrievers.append(retrieval)
        if rows := stage.logged:
            so_far = {} if stage.done else {"not finished, step": rows[-1]["step"]}
            trained.append((stage, {**so_far, **stage.figures}, *charts.charts(rows)))
        if statistics := stage.json("stats.json"):
            data.append((stage, list(_statistics(statistics))))
    stages = [(stage.name, stage) for stage in run.stages]
    stages += [
        (f"eval {evaluation.name}: {name}", model)
        for evaluation in run.evaluations
        for name, model in evaluation.models.items()
    ]
    ran_under: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, stage in stages:
        if versions := stage.plan.versions:
            ran_under.setdefault(tuple(versions.items()), []).append(name)
    sections = {
        "BFCL": bfcl_scores.bfcl_table(run),
        "Rollouts": rollouts,
        "Ablation": ablation.ablations(run),
        "Retrieval": retrievers,
        "Training": trained,
        "Lineage": origins(run),
        "Data": data,
        "Settings": stages,
        "Commands": commands(run),
    }
    links = [
        (f"{title.lower()}-{number}", f"{title}{evaluation['on']}")
        for number, evaluation in enumerate(evaluations, 1)
        for title, content in evaluation["sections"].items()
        if content
    ]
    links += [(title.lower(), title) for title, content in sections.items() if content]
    environment = Environment(
        loader=FileSystemLoader(FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"tables": tables, "charts": charts, "is_given": is_given}
    environment.globals |= {"ablation": ablation, "bfcl_scores": bfcl_scores}
    environment.globals |= {"explanations": EXPLANATIONS}
    environment.filters["with_code"] = with_code
    style, script = ((FILES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        run=run,
        evaluations=evaluations,
        sections=sections,
        versions=ran_under,
        links=links,
        style=style,
        script=script,
        script_digest=digest,
    )


def with_code(sentence: str) -> "Markup":
    """Escaped, with what stands in backticks set as code."""
    from markupsafe import Markup

    parts = sentence.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
    )


def _evaluation(run: WorkspaceRun, evaluation: Evaluation, budget: int) -> Json:
    on = f" on {evaluation.name}" if len(run.evaluations) > 1 else ""
    content: Json = {"evaluation": evaluation, "on": on, "sections": {}, "headline": []}
    if not evaluation.models:
        return content
    metrics, differences = evaluation.metrics, tables.differences(evaluation)
    models, wrong = tables.models(metrics), tables.wrong_answers(metrics)
    sections: Json = {
        "Models": _by_metric(models),
        "Differences": _by_pair(differences),
        "Slices": {
            "folded": tables.slices(metrics)
            + [group.turned for group in tables.groups(metrics).values()],
            "wrong": wrong,
            "problems": tables.problems(metrics),
        },
    }
    prompts = max(figures.get("prompts", 0) for figures in metrics.values())
    if evaluation.is_live:
        counted = f"{prompts} tasks"
        rollouts = read_rollouts(files_of(evaluation))
        sections["Rollouts"] = pack_rollouts(evaluation.name, rollouts, budget)
    else:
        answers = read_answers(run, evaluation)
        counted = f"{len(answers.by_step) or prompts} prompts"
        confused = confusion(answers, list(metrics))
        sections["Tools"] = {"shown": confused[:MOST], "count": len(confused)}
        sections["Predictions"] = {
            "unknown": sum(step.record_id not in answers.records for step in answers.by_step),
            "reader": pack_predictions(answers, list(metrics), models.head[1:], budget),
        }
    return content | {
        "prompts": counted,
        "is_bfcl": run.is_bfcl(evaluation),
        "headline": headline(metrics, differences),
        "learned_before": tables.learned_before(metrics),
        "outdated": tables.outdated(evaluation),
        "sections": sections,
    }


def _by_metric(table: Table) -> list[Json]:
    """Each metric with its figures by model, and the scale of its chart."""
    metrics = []
    for column, name in enumerate(table.head[1:], 1):
        rows = [(row[0], row[column]) for row in table.rows]
        scale = charts.scale([figure for _, figure in rows if tables.is_summary(figure)])
        marks = (0, 0.5, 1) if scale == (0, 1) else (0,)
        metrics.append({"name": name, "rows": rows, "scale": scale, "marks": marks})
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


def _statistics(values: Json, title: str = "") -> Iterator[Table]:
    """The numbers as a table; each value that is an object as a table of its own."""
    single = {name: value for name, value in values.items() if not isinstance(value, dict)}
    if single:
        yield Table(title, [], [[name, _text(value)] for name, value in single.items()])
    for name, value in values.items():
        if not isinstance(value, dict) or not value:
            continue
        called = f"{title} {name.replace('_', ' ')}".strip()
        if not all(isinstance(inner, dict) for inner in value.values()):
            yield from _statistics(value, called)
            continue
        head = list(dict.fromkeys(key for inner in value.values() for key in inner))
        rows = [[key, *(_text(inner.get(name)) for name in head)] for key, inner in value.items()]
        yield Table(called, ["", *head], rows)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items()) or tables.ABSENT
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return tables.ABSENT if value is None else tables.short(value)
