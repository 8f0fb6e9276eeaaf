"""finished prep + a grid of weights and settings -> every cell trained, evaluated and compared."""

import contextlib
import ctypes
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentlite.config import resolve
from agentlite.config.settings import AblateSettings, default
from agentlite.core import console
from agentlite.core.errors import DISK, GATE, LOCKED, OTHER_PLAN, UserError, suggest
from agentlite.core.records import SPLITS, Step, digest, to_json
from agentlite.core.row_files import write_json
from agentlite.engine.watch import Stopped, note_signals
from agentlite.environments.trajectories import TRAJECTORIES, read_trajectories
from agentlite.report import write_report
from agentlite.scoring.ablation_table import AblationTable, CellRow, ablation_table
from agentlite.scoring.metrics import dialogs, step_metrics
from agentlite.scoring.metrics.figures import DONE_SCORES, read_metrics
from agentlite.scoring.metrics.summarize import Scores
from agentlite.scoring.predictions import read_scores
from agentlite.stages.ablate.cells import PAIRS, Ablation, Cell, read_ablation
from agentlite.stages.eval.subjects import slug
from agentlite.stages.frame import Figures, Work, plan_of, run_stage
from agentlite.workspace import lookup, stage_folder
from agentlite.workspace.lookup import Result, RunTarget, find_model

TABLE = "table.json"
POLL_SECONDS = 0.05  # between two looks at a process
# errors that the next cell would meet as well: they end the run, which carries on later
MACHINE_ERRORS = (DISK, LOCKED)


def run(settings: AblateSettings, target: RunTarget) -> Result:
    """Runs the commands of the cells one after the other: those that are done say so and end. A
    cell that fails is a row of the table, and is tried again by the same command.
    """
    ablation, cells = read_ablation(settings, target)
    if not ablation.is_live("eval"):
        _verdict_metric(settings.metric, [*step_metrics.METRICS, *dialogs.METRICS])
    all_live = ablation.is_live("eval") and ablation.is_live(ablation.by)  # no cell reads a record
    data = {} if all_live else lookup.find_finished_stage(settings.data, target.run, "prep").outputs
    splits = [data[name][:16] for name in sorted(data) if name.startswith(SPLITS)]
    model = ablation.settings.model
    inputs = {
        "data": ",".join(splits),
        "model": find_model(model, target.run, target.old_plan).digest,
        **ablation.world_digests(),
    }
    crossed_names = {name for cell in cells for name in cell.sets}
    common_settings = {  # to all cells
        name: value
        for command, stage in ablation.stages.items()
        for key, value in resolve.plan_settings(command, stage).items()
        if (name := f"{command}.{key}") not in crossed_names
    }
    plan = plan_of("ablate", settings, inputs, by=ablation.by, model=model, **common_settings)
    # the cells stand in the figures, not in the plan, so that a grid can grow
    grid = digest(to_json([[cell.name, cell.sets] for cell in cells]))
    result = run_stage(
        plan,
        target,
        _work(ablation, cells, grid),
        next_command="agentlite report",
        is_open=lambda figures: figures["grid"] != grid or bool(figures["failed"]),
        keep=["*/*"],  # whatever a command has begun
    )
    if result.status == "dry run":
        return result
    if result.status == "done":
        with console.waiting("ablate: writing the report"), stage_folder.in_turn(target.run):
            write_report(target.run)
    table = msgspec.json.decode((target.folder / TABLE).read_bytes())
    return msgspec.structs.replace(result, figures=table, sentences=table["verdict"])


def _work(ablation: Ablation, cells: Sequence[Cell], grid: str) -> Work:
    """Evaluates the model that the cells start from, then makes cell by cell, and compares all."""
    settings, is_paired = ablation.settings, PAIRS in ablation.stages
    yield {
        "by": ablation.by,
        "candidates": settings.candidates or ("sampled once" if is_paired else "none"),
        "cells": {cell.name: cell.differs for cell in cells},
    }
    rows: list[CellRow] = []
    scores: dict[str, Scores] = {}
    outcomes: dict[str, UserError | None] = {}
    failure = None
    with note_signals() as signals:
        start = _run_cell(ablation, ablation.start, outcomes, signals, scores)
        metric = settings.metric
        if ablation.is_live("eval"):
            metric = _verdict_metric(metric, sorted(set().union(*scores[start.name].values())))
        for number, cell in enumerate(cells, 1):
            console.notice(f"ablate: cell {number} of {len(cells)}, {cell.name}")
            try:
                rows.append(_run_cell(ablation, cell, outcomes, signals, scores))
            except UserError as error:
                if error.exit_code in MACHINE_ERRORS:
                    raise
                failure, note, command = error, error.problem, error.location
                console.notice(f"ablate: {cell.name} failed: {note}")
                rows.append(CellRow(cell.name, cell.differs, "failed", note=note, command=command))
    if failure and len(scores) == 1:  # the start alone was evaluated: there is no table to write
        raise failure
    table = ablation_table(ablation.by, settings.split, metric, start, rows, scores, settings.seed)
    write_json(ablation.target.folder / TABLE, table)
    return [TABLE], {**_figures(table), "grid": grid}


def _verdict_metric(metric: str, names: Sequence[str]) -> str:
    """The metric of the verdict; of an environment, if none is named, the score that says whether a
    task is done.
    """
    if metric == default("ablate", "metric"):
        metric = next((name for name in DONE_SCORES if name in names), metric)
    if metric not in names:
        raise UserError(f"no metric '{metric}'.", suggest(metric, names), location="--metric")
    return metric


def _figures(table: AblationTable) -> Figures:
    """How many cells are done, and which one is the best."""
    cells, metric = table.cells, table.metric
    failed = sum(cell.state == "failed" for cell in cells)
    means = {cell.name: cell.figures[metric].mean for cell in cells if metric in cell.figures}
    best = max(means, key=means.__getitem__, default="")
    return {
        "cells": len(cells),
        "done": len(cells) - failed,
        "failed": failed,
        "best": f"{best} ({metric} {100 * means[best]:.0f} %)" if best else "",
    }


def key_figure(figures: Mapping[str, Any]) -> str:
    """For `agentlite runs`."""
    best = f", best {figures['best']}" if figures["best"] else ""
    return f"{figures['done']} of {figures['cells']} cells{best}"


def _run_cell(
    ablation: Ablation,
    cell: Cell,
    outcomes: dict[str, UserError | None],
    signals: Sequence[int],
    scores: dict[str, Scores],
) -> CellRow:
    """Runs the commands of a cell, but for those that ended for another one and are in `outcomes`,
    and adds its scores; of rollouts those of the environment. A stage that was finished with other
    settings, because the cell of that name was another one, is started over. Raises UserError where
    one fails.
    """
    for words in cell.commands:
        command_line = shlex.join(["agentlite", *words])
        if command_line not in outcomes:
            error = run_command(words, signals)
            if error and error.exit_code == OTHER_PLAN:
                console.notice(f"ablate: made with other settings, and made again: {command_line}")
                error = run_command([*words, "--force"], signals)
            outcomes[command_line] = error
        if error := outcomes[command_line]:
            error.location = command_line
            raise error
    folder = ablation.target.folder
    # a finished stage carries nothing on: its checkpoints are much, and are of no use
    if cell.sets:
        shutil.rmtree(folder / cell.model / "checkpoints", ignore_errors=True)
    eval_folder = next(
        path
        for path in lookup.stages_in(folder / "eval", f"*/{slug(cell.model)}")
        if lookup.read_plan(path).settings["model"] == cell.model
    )
    if (eval_folder / TRAJECTORIES).exists():
        scores[cell.name] = {
            Step(rollout.task, rollout.sample): rollout.scores
            for rollout in read_trajectories(eval_folder / TRAJECTORIES)
        }
    else:
        scores[cell.name] = read_scores(eval_folder)
    metrics = read_metrics(eval_folder / "metrics.json")
    all_figures = {**metrics.metrics, **metrics.dialogs}
    stages = [lookup.read_stage(p).done for p in (eval_folder, folder / cell.model) if cell.sets]
    return CellRow(
        cell.name,
        cell.differs,
        "done",
        figures={name: figure for name, figure in all_figures.items() if figure},
        seconds=round(sum(done.seconds for done in stages if done), 1),
        gib=max((done.figures.get("gpu_gib") or 0.0 for done in stages if done), default=0.0),
    )


def run_command(words: Sequence[str], signals: Sequence[int]) -> UserError | None:
    """Runs `agentlite WORDS --json`; what it says goes to our stderr. Returns why it failed.

    It has a session of its own, so that Ctrl-C reaches it once, through us; and it ends with us,
    however we end. Raises Stopped if a signal came.
    """
    if signals:
        raise Stopped(signals[0])
    with (
        tempfile.TemporaryFile() as stdout,  # a pipe would fill up, as nobody reads before the end
        subprocess.Popen(
            [sys.executable, "-m", "agentlite", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            start_new_session=True,  # the terminal's Ctrl-C reaches us alone
            preexec_fn=_die_with_parent,
        ) as process,
    ):
        try:
            while process.poll() is None and not signals:
                time.sleep(POLL_SECONDS)
            if signals:  # it saves what it has, and ends in its own time
                process.send_signal(signals[0])
            process.wait()
        except BaseException:
            process.kill()
            raise
        stdout.seek(0)
        output = None
        with contextlib.suppress(ValueError):
            output = json.load(stdout)
    if signals:
        raise Stopped(signals[0])
    code = process.returncode
    if code in (0, GATE):  # a gate that is not passed is a finding about a model that was measured
        return None
    problem, fix = f"ended with exit code {code}", ""
    if code == -signal.SIGKILL:
        problem = "killed by SIGKILL: out of memory?"
    if isinstance(output, dict) and (error := output.get("error")):
        location = f"{error['location']}: " if error["location"] else ""
        problem, fix = " ".join(f"{location}{error['problem']}".split()), error["fix"]
    return UserError(problem, fix, exit_code=max(code, 1))  # of a process that was killed: -9


def _die_with_parent() -> None:
    """In a process that was just forked: the system kills it when its parent ends, however that
    ends. Linux only; elsewhere it is left to itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
