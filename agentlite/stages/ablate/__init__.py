"""finished prep + a grid of weights and settings -> every cell trained, evaluated and compared."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.config.settings import AblateSettings, default
from agentlite.core import console
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import SPLITS, Step, digest, plain
from agentlite.core.row_files import write_json
from agentlite.engine.watch import Stopped, note_signals
from agentlite.environments.trajectories import TRAJECTORIES, read_trajectories
from agentlite.report import write_report
from agentlite.scoring.ablation_table import AblationTable, CellRow, ablation_table
from agentlite.scoring.metrics import dialogs, step_metrics
from agentlite.scoring.metrics.figures import DONE, read_metrics
from agentlite.scoring.metrics.summarize import Scores
from agentlite.scoring.predictions import read_scores
from agentlite.stages.ablate.cells import (
    Ablation,
    Cell,
    read_ablation,
    with_commands,
)
from agentlite.stages.ablate.commands import JOURNAL, CellCommand, CommandJournal
from agentlite.stages.frame import Figures, Work, plan_of, run_stage
from agentlite.workspace import stage_folder
from agentlite.workspace.model_source import find_model
from agentlite.workspace.stage_folder import Result, RunTarget

TABLE, COSTS = "table.json", "costs.json"


def run(settings: AblateSettings, target: RunTarget) -> Result:
    """Runs the commands of the cells that are not done, one after the other, and compares all
    cells. One that fails is a row of the table.
    """
    ablation, cells = read_ablation(settings, target)
    is_live = ablation.acts("eval")
    if not is_live:
        _refuse_unknown(settings.metric, [*step_metrics.METRICS, *dialogs.METRICS])
    data = {}
    if not (is_live and ablation.acts(ablation.by)):
        data = stage_folder.find_finished(settings.data, target.run, "prep").outputs
    model = find_model(ablation.model, target.run, target.begun).digest
    once, cells = with_commands(ablation, cells, settings.candidates)
    splits = [data[name][:16] for name in sorted(data) if name.startswith(SPLITS)]
    plan = plan_of(
        "ablate",
        settings,
        {"data": ",".join(splits), "model": model, **ablation.world_files()},
        by=ablation.by,
        model=ablation.model,
        **_common_settings(ablation, cells),
    )
    # the cells stand in the figures, not in the plan, so that a grid can grow
    grid = digest(plain([[cell.name, cell.sets] for cell in cells]))
    result = run_stage(
        plan,
        target,
        _work(settings, ablation, once, cells, grid),
        next_command="agentlite report",
        is_open=lambda done: done["grid"] != grid or bool(settings.retry and done["failed"]),
        keep=["*/*"],  # whatever a command has begun
    )
    if result.status == "dry run":
        return result
    if result.status == "done":
        with console.waiting("ablate: writing the report"), stage_folder.in_turn(target.run):
            write_report(target.run)
    table, costs = (
        msgspec.json.decode((target.folder / name).read_bytes()) for name in (TABLE, COSTS)
    )
    return replace(
        result,
        figures={**table, "costs": costs},
        outputs=[TABLE, COSTS, JOURNAL],
        sentences=table["verdict"],
    )


def _work(
    settings: AblateSettings,
    ablation: Ablation,
    once: Sequence[CellCommand],
    cells: Sequence[Cell],
    grid: str,
) -> Work:
    """Runs what all cells need, then cell by cell what is not done, and compares all. `once`: what
    they need, the evaluation of the model that they start from first.
    """
    stage = yield {
        "by": ablation.by,
        "candidates": settings.candidates or ("sampled once" * ablation.is_paired or "none"),
        "cells": {cell.name: cell.differs for cell in cells},
    }
    scores: dict[str, Scores] = {}
    with note_signals() as caught:
        journal = CommandJournal(stage.folder, caught, retry=settings.retry)
        chains = [once[:1], *(cell.commands for cell in cells)]
        left = {one.folder for chain in chains for one in chain[len(journal.results(chain)) :]}
        stage.expect(JOURNAL, len(journal.rows) + len(left))
        for command in once:
            _run_shared(journal, command)
        start = Cell(f"{ablation.model} (start)", "the model that the cells start from", {}, {})
        asked = ablation.path_to(ablation.model)
        first = _read_evaluation(start, stage.folder / once[0].folder, asked, scores)
        metric = settings.metric
        if ablation.acts("eval"):
            metric = _of_the_world(metric, sorted(set().union(*scores[start.name].values())))
        rows = []
        for number, cell in enumerate(cells, 1):
            console.notice(f"ablate: cell {number} of {len(cells)}, {cell.name}")
            rows.append(_run_cell(ablation, journal, cell, scores))
        if caught:
            raise Stopped(caught[0])
    table = ablation_table(ablation.by, settings.split, metric, first, rows, scores, settings.seed)
    write_json(stage.folder / TABLE, table)
    write_json(stage.folder / COSTS, journal.costs({cell.name: cell.home for cell in cells}))
    return [TABLE, COSTS], {**_figures(table, rows), "grid": grid}


def _of_the_world(metric: str, known: Sequence[str]) -> str:
    """The score that says whether a task is done, where no other is named."""
    if metric == default("ablate", "metric"):
        metric = next((name for name in DONE if name in known), metric)
    _refuse_unknown(metric, known)
    return metric


def _refuse_unknown(metric: str, metrics: Sequence[str]) -> None:
    if metric not in metrics:
        raise UserError(f"no metric '{metric}'.", nearest(metric, metrics), location="--metric")


def _figures(table: AblationTable, rows: Sequence[CellRow]) -> Figures:
    """How many cells are done, and which one is the best."""
    metric, failed = table.metric, sum(row.state == "failed" for row in rows)
    means = {row.name: row.figures[metric].mean for row in table.cells if metric in row.figures}
    best = max(means, key=means.__getitem__, default="")
    return {
        "cells": len(rows),
        "done": len(rows) - failed,
        "failed": failed,
        "best": f"{best} ({metric} {100 * means[best]:.0f} %)" if best else "",
    }


def key_figure(figures: Mapping[str, Any]) -> str:
    """For `agentlite runs`."""
    best = f", best {figures['best']}" if figures["best"] else ""
    return f"{figures['done']} of {figures['cells']} cells{best}"


def _common_settings(ablation: Ablation, cells: Sequence[Cell]) -> dict[str, Any]:
    """The settings of the stages of every cell, by `command.setting`."""
    by_cell = {name for cell in cells for name in cell.sets}
    return {
        name: value
        for command in (*ablation.commands, "eval")
        for key, value in resolve.plan_settings(command, ablation.settings(command)).items()
        if (name := f"{command}.{key}") not in by_cell
    }


def _run_shared(journal: CommandJournal, command: CellCommand) -> None:
    """Runs what all cells need. Raises UserError where it fails."""
    [row] = journal.results([command]) or [journal.run(command)]
    if row.exit_code:
        raise UserError(
            row.problem,
            "Correct that, and run the same command again with --retry.",
            location=row.command,
            exit_code=max(row.exit_code, 1),
        )


def _run_cell(
    ablation: Ablation, journal: CommandJournal, cell: Cell, scores: dict[str, Scores]
) -> CellRow:
    """Runs what is not done of a cell, and adds its scores."""
    ended = iter(journal.results(cell.commands))
    for command in cell.commands:
        row = next(ended, None) or journal.run(command)
        if row.exit_code:
            console.notice(f"ablate: {cell.name} failed: {row.problem}")
            return CellRow(
                name=cell.name,
                differs=cell.differs,
                state="failed",
                note=row.problem,
                command=row.command,
            )
        # a finished stage carries nothing on: its checkpoints are much, and are of no use
        shutil.rmtree(journal.folder / command.folder / "checkpoints", ignore_errors=True)
    return _read_evaluation(cell, journal.folder / command.folder, ablation.by, scores)


def _read_evaluation(cell: Cell, folder: Path, model: str, scores: dict[str, Scores]) -> CellRow:
    """What eval left in a folder of models, of the one that it was called with; its scores are
    added, of rollouts those of the environment.
    """
    stage = next(
        path
        for path in stage_folder.stages_in(folder, "*/*")
        if stage_folder.read_plan(path).settings["model"] == model
    )
    metrics = read_metrics(stage / "metrics.json")
    every = {**metrics.metrics, **metrics.dialogs}
    figures = {name: figure for name, figure in every.items() if figure}
    if (stage / TRAJECTORIES).exists():
        rollouts = read_trajectories(stage / TRAJECTORIES)
        scores[cell.name] = {Step(one.task, one.sample): one.scores for one in rollouts}
    else:
        scores[cell.name] = read_scores(stage)
    return CellRow(name=cell.name, differs=cell.differs, state="done", figures=figures)
