"""finished prep + a grid of weights and settings -> every cell trained, evaluated and compared."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.config import resolve
from agentlite.config.resolve import Given
from agentlite.config.settings import AblateSettings
from agentlite.core import console
from agentlite.core.errors import UserError, nearest
from agentlite.core.records import digest, plain
from agentlite.core.row_files import write_json
from agentlite.engine.signals import Stopped, noted_signals
from agentlite.report import write_report
from agentlite.scoring.ablation_table import AblationTable, CellResult, ablation_table
from agentlite.scoring.metrics import dialogs, tool_calls
from agentlite.scoring.metrics.model_metrics import read_metrics
from agentlite.scoring.predictions import read_scores
from agentlite.scoring.preference_pairs import read_pairs
from agentlite.stages.ablate.cells import (
    PAIRED,
    Ablation,
    Cell,
    is_ranking,
    read_ablation,
)
from agentlite.stages.ablate.commands import JOURNAL, CommandJournal
from agentlite.workspace import folder_lock, run_folder
from agentlite.workspace.model_source import Source, find_model
from agentlite.workspace.run_folder import Plan, Result, RunTarget

TABLE, COSTS = "table.json", "costs.json"
SHARED = "(all cells)"  # in commands.jsonl: what is done once


def run(settings: AblateSettings, target: RunTarget) -> Result:
    """Runs the cells that are not done, one after the other, and compares all of them. Raises
    UserError 2, 3, 5, 74 or 75; Stopped after a signal. A cell that fails is a row of the table.
    """
    _check_metric(settings.metric)
    prepared = run_folder.finished(run_folder.find_stage(settings.data, target.run), PREPARED)
    ablation = read_ablation(settings, target)
    source = find_model(ablation.model, target.run, target.begun)
    ablation = ablation._replace(sampled=_sampled_already(ablation, source))
    rows = [prepared.outputs[name] for name in sorted(prepared.outputs) if _is_split(name)]
    plan = Plan(
        "ablate",
        {
            **resolve.plan_settings("ablate", settings),
            "by": ablation.by,
            "model": ablation.model,
            **_given_to_all(ablation),
        },
        {"data": ",".join(value[:16] for value in rows), "model": source.digest},
        run_folder.versions(),
    )
    if target.dry_run:
        return _dry_run(ablation, plan)
    grid = digest(plain([[cell.name, cell.sets] for cell in ablation.cells]))
    with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
        if stage.status == "done":
            figures = stage.done.figures
            if figures["grid"] != grid or (settings.retry and figures["failed"]):
                stage.reopen()
                stage.outcome = "done"
        if stage.status != "done":
            with noted_signals() as caught:
                journal = CommandJournal(stage.folder, caught, retry=settings.retry)
                stage.expect(JOURNAL, len(journal.rows) + _count_left(ablation, journal))
                table = _fill(ablation, journal)
                if caught:
                    raise Stopped(caught[0])
            costs = journal.costs(
                {
                    cell.name: ablation.home(cell)
                    for cell, row in zip(ablation.cells, table.cells, strict=True)
                    if row.state != "same"
                }
            )
            write_json(stage.folder / TABLE, table)
            write_json(stage.folder / COSTS, costs)
            stage.finish([TABLE, COSTS], {**_key_figures(table), "grid": grid})
            with console.waiting("ablate: writing the report"), folder_lock.in_turn(target.run):
                write_report(target.run)
        return _result(stage, target)


def key_figure(figures: Mapping[str, Any]) -> str:
    """For `agentlite runs`."""
    best = f", best {figures['best']}" if figures["best"] else ""
    return f"{figures['done']} of {figures['cells']} cells{best}"


PREPARED = "prep"
SPLITS = ("train", "dev", "test")


def _is_split(name: str) -> bool:
    return name.partition(".")[0] in SPLITS


def _check_metric(name: str) -> None:
    known = [*tool_calls.METRICS, *dialogs.METRICS]
    if name not in known:
        raise UserError(f"no metric '{name}'.", nearest(name, known), location="--metric")


def _given_to_all(ablation: Ablation) -> dict[str, Any]:
    """What the user set for the stages of every cell, by `command.setting`."""
    by_cell = {name for cell in ablation.cells for name in cell.sets}
    commands = [ablation.by, *([PAIRED] if ablation.paired else []), "eval"]
    changed: dict[str, Any] = {}
    for command in commands:
        given, usual = (
            resolve.plain_settings(resolve.resolve(command, one).settings)
            for one in (ablation.given(), Given(profile=ablation.target.given.profile))
        )
        changed |= {
            f"{command}.{key}": value for key, value in given.items() if value != usual[key]
        }
    return {name: value for name, value in changed.items() if name not in by_cell}


def _sampled_already(ablation: Ablation, source: Source) -> str:
    """The stage with candidates: that of --from, or the pairs of the workspace, if they are those
    that would be sampled; "" if they are to be sampled here.
    """
    if not ablation.paired or ablation.settings.candidates:
        return ablation.settings.candidates if ablation.paired else ""
    own = ablation.target.folder / ablation.candidates_of(ablation.cells[0])
    stored = run_folder.read(ablation.target.run / PAIRED)
    changes = any(not is_ranking(key) for cell in ablation.cells for key in cell.of(PAIRED))
    if changes or run_folder.is_stage(own) or not stored.plan or not stored.done:
        return ""
    settings = resolve.plain_settings(resolve.resolve(PAIRED, ablation.given()).settings)
    settings |= {"data": ablation.settings.data, "model": ablation.model}
    is_alike = all(
        settings.get(key) == value
        for key, value in stored.plan.settings.items()
        if key in settings and not is_ranking(key)
    )
    has_candidates = "candidates.jsonl" in stored.done.outputs
    if is_alike and has_candidates and stored.plan.inputs.get("model") == source.digest:
        if stored.problem():
            return ""
        console.notice(f"ablate: the candidates are those of {PAIRED}, which were sampled alike")
        return PAIRED
    return ""


def _dry_run(ablation: Ablation, plan: Plan) -> Result:
    """The cells, and what each changes."""
    target = ablation.target
    status = "new" if target.force else run_folder.compare(target.folder, plan)
    figures = {
        "folder": status,
        "by": ablation.by,
        "candidates": ablation.sampled or ("sampled once" if ablation.paired else "none"),
        "cells": {cell.name: cell.differs for cell in ablation.cells},
    }
    return Result("ablate", "dry run", str(target.folder), figures, [], 0.0)


def _count_left(ablation: Ablation, journal: CommandJournal) -> int:
    """How many commands will end, for `agentlite runs`."""
    left = {
        (one.folder, journal.typed(one.words))
        for cell in ablation.cells
        for one in _left(ablation, journal, cell)
    }
    return len(left) + len(_shared_left(ablation, journal))


class CellCommand(NamedTuple):
    """One of the commands of a cell: its words, the folder of its stage, those that it reads."""

    command: str
    words: list[str]
    folder: str
    after: list[str]


def _commands(ablation: Ablation, cell: Cell) -> list[CellCommand]:
    """In order: pairs for a trainer that reads them, the trainer, eval."""
    by = ablation.by
    made = [
        (by, ablation.training_words(cell), f"{ablation.home(cell)}/{by}"),
        ("eval", ablation.eval_words(cell), ablation.evaluated(cell)),
    ]
    before = []
    if ablation.paired:
        made.insert(0, (PAIRED, ablation.ranking_words(cell), ablation.pairs_of(cell)))
        before = [] if ablation.sampled else [ablation.candidates_of(cell)]
    return [
        CellCommand(*one, [*before, *(folder for *_, folder in made[:index])])
        for index, one in enumerate(made)
    ]


def _left(ablation: Ablation, journal: CommandJournal, cell: Cell) -> list[CellCommand]:
    """The commands of a cell that are to be run: none behind one that failed."""
    left = []
    for one in _commands(ablation, cell):
        row = journal.earlier(one.folder, journal.typed(one.words), one.after)
        if row and row.exit_code:
            break
        left += [] if row else [one]
    return left


def _shared_left(ablation: Ablation, journal: CommandJournal) -> list[tuple[list[str], str]]:
    """The words and folders of what is done once and is not done: asking the model that all start
    from, and sampling.
    """
    parts = [(ablation.eval_words(None), ablation.evaluated(None))]
    if ablation.paired and not ablation.sampled:
        sampled = {ablation.candidates_of(cell): cell for cell in ablation.cells[::-1]}
        parts += [(ablation.sampling_words(cell), folder) for folder, cell in sampled.items()]
    return [
        (words, folder)
        for words, folder in parts
        if not journal.earlier(folder, journal.typed(words))
    ]


def _fill(ablation: Ablation, journal: CommandJournal) -> AblationTable:
    """Runs what is not done, and compares what there is."""
    settings, cells = ablation.settings, ablation.cells
    start = _start(ablation, journal)
    twins: dict[str, str] = {}
    results = {cell.name: _cell(ablation, journal, cell, twins) for cell in cells}
    return ablation_table(
        ablation.by,
        settings.split,
        settings.metric,
        {cell.name: cell.differs for cell in cells},
        results,
        (f"{ablation.model} (start)", start),
        settings.seed,
    )


def _start(ablation: Ablation, journal: CommandJournal) -> CellResult:
    """Does what all cells share, once. Returns what the model says that they start from. Raises
    UserError where a command fails.
    """
    for words, folder in _shared_left(ablation, journal):
        row = journal.run(SHARED, folder, words)
        if row.exit_code:
            raise UserError(
                row.problem,
                "Correct that, and run the same command again with --retry.",
                location=row.command,
                exit_code=row.exit_code if row.exit_code > 0 else 1,
            )
    words = ablation.eval_words(None)
    name = words[words.index("--model") + 1]
    return _evaluated(ablation.target.folder / ablation.evaluated(None), name)


def _cell(
    ablation: Ablation, journal: CommandJournal, cell: Cell, twins: dict[str, str]
) -> CellResult:
    """Ranks, trains and asks, unless another cell was trained on the same pairs with the same
    settings. `twins`: the names of the cells by all that decides what comes out.
    """
    if _left(ablation, journal, cell):
        number = f"cell {ablation.cells.index(cell) + 1} of {len(ablation.cells)}"
        console.notice(f"ablate: {number}, {cell.name}")
    for one in _commands(ablation, cell):
        is_training = one.command == ablation.by
        if is_training:
            key = _what_decides(ablation, cell)
            if twins.setdefault(key, cell.name) != cell.name:
                return CellResult(state="same", note=twins[key])
        row = journal.run(cell.name, one.folder, one.words, one.after)
        if row.exit_code:
            console.notice(f"ablate: {cell.name} failed: {row.problem}")
            return CellResult(state="failed", note=row.problem, command=row.command)
        if is_training:
            # a finished stage carries nothing on: its checkpoints are much, and are of no use
            shutil.rmtree(journal.folder / one.folder / "checkpoints", ignore_errors=True)
    return _evaluated(ablation.target.folder / ablation.evaluated(cell), ablation.by)


def _what_decides(ablation: Ablation, cell: Cell) -> str:
    """All that a trained cell depends on, and other cells do not share."""
    pairs: list[object] = []
    if ablation.paired:
        folder = ablation.target.folder / ablation.pairs_of(cell)
        done = run_folder.read(folder).done
        pairs = [done.outputs["records.jsonl"] if done else "", *_as_learned(folder)]
    mine = {key: value for key, value in cell.changed.items() if key.startswith(f"{ablation.by}.")}
    return digest(plain([sorted(mine.items()), pairs]))


def _as_learned(folder: Path) -> Iterator[object]:
    """The pairs as a trainer reads them: their texts. By how much one is better, which most weights
    change, does not count.
    """
    for pair in read_pairs(folder / "pairs.jsonl"):
        answers = ((side.text, side.ended) for side in (pair.chosen, pair.rejected))
        yield [*pair.step, pair.protocol, *answers]


def _evaluated(folder: Path, model: str) -> CellResult:
    """What eval left in a folder of models, of the one that it was called with."""
    found = next(
        path
        for path in run_folder.stages_in(folder, "*/*")
        if run_folder.read_plan(path).settings["model"] == model
    )
    metrics = read_metrics(found / "metrics.json")
    every = {**metrics.metrics, **metrics.dialogs}
    figures = {name: figure for name, figure in every.items() if figure}
    return CellResult(state="done", figures=figures, scores=read_scores(found))


def _key_figures(table: AblationTable) -> dict[str, object]:
    metric = table.metric
    done = [row for row in table.cells if row.state in ("done", "same")]
    measured = [row for row in done if metric in row.figures]
    best = max(measured, key=lambda row: row.figures[metric].mean, default=None)
    return {
        "cells": len(table.cells),
        "done": len(done),
        "failed": sum(row.state == "failed" for row in table.cells),
        "best": f"{best.name} ({metric} {100 * best.figures[metric].mean:.0f} %)" if best else "",
    }


def _result(stage: run_folder.StageFolder, target: RunTarget) -> Result:
    table = msgspec.json.decode((stage.folder / TABLE).read_bytes())
    costs = msgspec.json.decode((stage.folder / COSTS).read_bytes())
    return Result(
        "ablate",
        stage.outcome,
        str(stage.folder),
        {**table, "costs": costs},
        [TABLE, COSTS, JOURNAL],
        stage.done.seconds,
        target.next("agentlite report"),
        sentences=table["verdict"],
    )
