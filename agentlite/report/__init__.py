"""Finished run folders -> report.html: one file, which loads nothing and keeps texts as text."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from agentlite.core.row_files import replacing
from agentlite.report import charts, tables
from agentlite.report.headline import headline
from agentlite.report.read_run import Json, ReportedEvaluation, WorkspaceRun, read_run
from agentlite.report.readers import (
    TRAJECTORIES,
    confusion,
    pack_predictions,
    pack_rollouts,
    read_prediction_rows,
    read_rollouts,
)
from agentlite.scoring.metrics.figures import EXPLANATIONS, TITLES, learned_before_sentences

FILES = Path(__file__).parent
READER_BUDGET = 4_500_000  # characters, of all readers together: the page stays below 5 MB


def write_report(run: Path) -> Path:
    """Writes report.html into `run` from its finished stages; returns its path.

    It names the stages that were not read. Raises UserError where there is no run, or a finished
    stage left a broken file.
    """
    text = page(read_run(run))
    with replacing(run / "report.html") as file:
        file.write(text.encode("utf-8", "replace"))
    return run / "report.html"


def page(run: WorkspaceRun) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "tables": tables,
        "charts": charts,
        "by_metric": _by_metric,
        "by_pair": _by_pair,
        "learned_before_sentences": learned_before_sentences,
        "explanations": EXPLANATIONS,
        "titles": TITLES,
    }
    style, script = ((FILES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    # the page's policy allows the script of this digest and no other, whatever a model's text holds
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        _contents(run), style=style, script=script, script_digest=digest
    )


def _contents(run: WorkspaceRun) -> Json:
    """`sections`: by title, from top to bottom; the page leaves out those without content."""
    rollout_stages = [stage for stage in run.stages if stage.is_unchanged(TRAJECTORIES)]
    budget = READER_BUDGET // max(1, len(run.evaluations) + len(rollout_stages))
    evaluations = [_evaluation_contents(run, evaluation, budget) for evaluation in run.evaluations]
    sections = {
        "Sampled": [
            (stage, pack_rollouts(read_rollouts({stage.settings.get("model", ""): stage}), budget))
            for stage in rollout_stages
        ],
        "Ablation": [
            (stage.name, table)
            for stage in run.stages
            if stage.plan.command == "ablate" and (table := stage.json("table.json"))
        ],
        "Retrieval": [
            (stage, figures)
            for stage in run.stages
            if stage.plan.command == "retriever"
            and (figures := stage.json("metrics.json"))
            and "methods" not in figures  # of an earlier version, by size and not by method
        ],
        "Training": [
            (
                stage,
                stage.figures if stage.done else {"not finished, step": rows[-1]["step"]},
                charts.charts(rows),
            )
            for stage in run.stages
            if (rows := stage.logged_rows)
        ],
        "Data": [(stage, figures) for stage in run.stages if (figures := stage.json("stats.json"))],
        "Settings": [*run.stages, *chain(*(e.models.values() for e in run.evaluations))],
    }
    return {"run": run, "evaluations": evaluations, "sections": sections}


def _evaluation_contents(run: WorkspaceRun, evaluation: ReportedEvaluation, budget: int) -> Json:
    metrics, differences = evaluation.metrics, tables.differences(evaluation)
    models, names = tables.models(metrics), list(metrics)
    predictions = read_prediction_rows(run, evaluation)
    rollouts = read_rollouts(evaluation.models)
    # rollouts leave no predictions: their tasks are counted in metrics.json
    counts = [len(predictions.by_step), *(f.get("prompts", 0) for f in metrics.values())]
    return {
        "reported": evaluation,
        "metrics": metrics,
        "on": f" on {evaluation.name}" if len(run.evaluations) > 1 else "",
        "models": models if metrics else None,
        "headline": headline(metrics, differences),
        "differences": differences,
        "prompts": f"{max(counts)} {'tasks' if evaluation.is_live else 'prompts'}",
        "tools": confusion(predictions, names),
        "unknown": sum(step.record_id not in predictions.records for step in predictions.by_step),
        "predictions": predictions.by_step
        and pack_predictions(predictions, names, [row[0] for row in models.rows], budget),
        "rollouts": rollouts and pack_rollouts(rollouts, budget),
    }


def _by_metric(table: tables.Table) -> Iterator[Json]:
    """Each metric with its figures by model, and the scale of its chart."""
    for name, *figures in table.rows:
        rows = [*zip(table.head[1:], figures, strict=True)]
        scale = charts.scale([figure for _, figure in rows if tables.is_summary(figure)])
        marks = (0, 0.5, 1) if scale == (0, 1) else (0,)
        yield {"name": name, "rows": rows, "scale": scale, "marks": marks}


def _by_pair(differences: Sequence[Json]) -> Iterator[Json]:
    """The differences between two models at a time, all on one scale around zero."""
    scale = charts.scale(differences, around_zero=True)
    pairs: dict[tuple[str, str], list[Json]] = {}
    for row in differences:
        pairs.setdefault((row["second"], row["first"]), []).append(row)
    for (second, first), rows in pairs.items():
        table = [(TITLES.get(row["metric"], "").capitalize() or row["metric"], row) for row in rows]
        yield {"title": second, "over": f"over {first}", "rows": table, "scale": scale}
