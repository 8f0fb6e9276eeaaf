"""finished prep + a grid of weights and settings -> every cell trained, evaluated and compared."""

import contextlib
import math
import re
import shlex
import shutil
import time
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
from agentlite.core.row_files import disk_errors, write_json
from agentlite.engine.signals import Stopped, noted_signals
from agentlite.report import write_report
from agentlite.report.ablation import picture
from agentlite.scoring.ablation_table import AblationTable, CellResult, ablation_table
from agentlite.scoring.metrics import dialogs, tool_calls
from agentlite.scoring.metrics.model_metrics import read_metrics
from agentlite.scoring.predictions import read_scores
from agentlite.scoring.preference_pairs import read_pairs
from agentlite.stages.ablate import estimate
from agentlite.stages.ablate.cells import (
    CANDIDATES,
    PAIRED,
    Ablation,
    Cell,
    is_ranking,
    read_ablation,
)
from agentlite.stages.ablate.commands import CELLS, JOURNAL, CommandJournal
from agentlite.stages.api import execute
from agentlite.workspace import folder_lock, run_folder
from agentlite.workspace.model_source import Source, find_model
from agentlite.workspace.run_folder import Plan, Result, RunTarget

TABLE, COSTS, PICTURE = "table.json", "costs.json", "table.svg"
# how it is done, not what comes out; the cells stand in the figures, so that a grid can grow
NOT_OF_THE_PLAN = ("budget", "retry")
SHARED = "(all cells)"  # in commands.jsonl: what is done once


class Budget(NamedTuple):
    """Seconds that this run may take, and when it began, by the clock that never goes back."""

    seconds: float
    began: float

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def allows(self, seconds: float | None) -> bool:
        """Whether so much is left; of an unknown time, whether anything is."""
        return self.left > 0 and (seconds or 0.0) <= self.left


def run(settings: AblateSettings, target: RunTarget) -> Result:
    """Runs the cells that are not done, one after the other, and compares all of them. Raises
    UserError 2, 3, 5, 74 or 75; Stopped after a signal. A cell that fails is a row of the table.
    """
    budget = Budget(_seconds(settings.budget), time.monotonic())
    _check_metric(settings.metric)
    prepared = run_folder.finished(run_folder.find_stage(settings.data, target.run), PREPARED)
    ablation = read_ablation(settings, target)
    before = CommandJournal(target.folder, [], retry=settings.retry)
    if target.force:
        before.rows.clear()
    ablation = ablation.placed(before.kept())
    source = find_model(ablation.model, target.run, target.begun)
    ablation = ablation._replace(sampled=_sampled_already(ablation, source))
    rows = [prepared.outputs[name] for name in sorted(prepared.outputs) if _is_split(name)]
    plan = Plan(
        "ablate",
        {
            **resolve.plain_settings(settings, NOT_OF_THE_PLAN),
            "by": ablation.by,
            "model": ablation.model,
            **_given_to_all(ablation),
        },
        {"data": ",".join(value[:16] for value in rows), "model": source.digest},
        run_folder.versions(),
    )
    _refuse_unfit(ablation, before)
    if target.dry_run:
        return _dry_run(ablation, plan, before)
    grid = digest(plain([[cell.name, cell.sets] for cell in ablation.cells]))
    with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
        if stage.status == "done":
            figures = stage.done.figures
            again = figures["not_run"] or (settings.retry and figures["failed"])
            if figures["grid"] != grid or again:
                stage.reopen()
                stage.outcome = "done"
        if stage.status != "done":
            with noted_signals() as caught:
                journal = CommandJournal(stage.folder, caught, retry=settings.retry)
                stage.expect(JOURNAL, len(journal.rows) + _count_left(ablation, journal))
                _say_estimate(ablation, journal)
                table = _fill(ablation, journal, budget)
                if caught:
                    raise Stopped(caught[0])
            costs = journal.costs(
                {
                    cell.name: ablation.home(cell)
                    for cell, row in zip(ablation.cells, table.cells, strict=True)
                    if row.state != "same"
                }
            )
            _name_left_over(ablation, journal)
            write_json(stage.folder / TABLE, table)
            write_json(stage.folder / COSTS, costs)
            with disk_errors(stage.folder / PICTURE):
                (stage.folder / PICTURE).write_text(
                    picture(msgspec.to_builtins(table)), encoding="utf-8"
                )
            stage.finish([TABLE, COSTS, PICTURE], {**_key_figures(table), "grid": grid})
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


def _seconds(text: str) -> float:
    """`1h30min`, `2h`, `90min`, `0`; an empty text sets no limit. Raises UserError 2."""
    found = re.fullmatch(r"(?:([\d.]+)\s*h)?\s*(?:([\d.]+)\s*(?:min|m))?|0", text.strip())
    with contextlib.suppress(ValueError):
        if found:
            hours, minutes = (float(part) if part else 0.0 for part in found.groups())
            return 3600 * hours + 60 * minutes if text.strip() else math.inf
    raise UserError(
        f"'{text}' is not a time.", "Write it as 90min, 2h or 1h30min.", location="--budget"
    )


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


def _name_left_over(ablation: Ablation, journal: CommandJournal) -> None:
    """Folders of cells that are no longer in the grid: they stay until the user removes them."""
    folder, places = ablation.target.folder, {*ablation.places.values()}
    found = {f"{CELLS}/{path.name}" for path in (folder / CELLS).glob("*")}
    found |= {name for name in journal.kept().values() if (folder / name).exists()}
    if left_over := [str(folder / name) for name in sorted(found - places)]:
        console.notice(
            f"ablate: folders of cells that are no longer in the grid: {len(left_over)}, kept in "
            f"case the cells come back. To remove them: rm -r {shlex.join(left_over)}"
        )


def _refuse_unfit(ablation: Ablation, journal: CommandJournal) -> None:
    """A dry run of the stage that trains, for cells that are to be trained and whose data is there.
    A cell whose values were all tried in cells before it is left out: a long grid takes little
    time. Raises UserError for a cell that would fail.
    """
    target, by, seen = ablation.target, ablation.by, set[str]()
    for cell in ablation.cells:
        left = _left(ablation, journal, cell, ablation.settings.split)
        data = f"{target.out}/{ablation.pairs_of(cell)}" if ablation.paired else ""
        is_there = not data or run_folder.is_finished(target.run / data)
        if not is_there or all(one.command != by for one in left):
            continue
        values = {plain([key, value]) for key, value in cell.of(by).items()} | {data}
        if not values - seen:
            continue
        seen |= values
        settings = ablation.settled(by, ablation.origins(by, cell), data)
        planned = RunTarget(target.run, f"{by}-planned", dry_run=True, given=ablation.given())
        try:
            execute(by, settings, planned)
        except UserError as error:
            cell_of = f"{ablation.settings.grid}, cell {cell.name}"
            raise UserError(
                error.problem,
                f"Correct the cell in the grid, or take it out. {error.fix}".rstrip(),
                location=": ".join(filter(None, (cell_of, error.location))),
                exit_code=error.exit_code,
            ) from error


def _dry_run(ablation: Ablation, plan: Plan, journal: CommandJournal) -> Result:
    """The cells, what each changes, and how long it would take."""
    target = ablation.target
    status = "new" if target.force else run_folder.compare(target.folder, plan)
    cells = {
        cell.name: {
            "differs": cell.differs,
            "seconds": _cell_seconds(ablation, journal, cell, ablation.settings.split),
        }
        for cell in ablation.cells
    }
    shared = _shared_seconds(ablation, journal)
    every = [shared, *(one["seconds"] for one in cells.values())]
    figures = {
        "folder": status,
        "by": ablation.by,
        "candidates": ablation.sampled or ("sampled once" if ablation.paired else "none"),
        "cells": cells,
        "shared_seconds": shared,
        "seconds": estimate.total(every),  # type: ignore[arg-type]  # values of a mapping
    }
    return Result("ablate", "dry run", str(target.folder), figures, [], 0.0)


def _count_left(ablation: Ablation, journal: CommandJournal) -> int:
    """How many commands will end, for `agentlite runs`."""
    split = ablation.settings.split
    left = {
        (one.folder, journal.typed(one.words))
        for cell in ablation.cells
        for one in _left(ablation, journal, cell, split)
    }
    return len(left) + len(_shared_left(ablation, journal))


def _say_estimate(ablation: Ablation, journal: CommandJournal) -> None:
    split = ablation.settings.split
    parts = [_cell_seconds(ablation, journal, cell, split) for cell in ablation.cells]
    left = sum(part != 0 for part in parts)
    whole = estimate.total([_shared_seconds(ablation, journal), *parts])
    by = "by the cells that are done" if journal.rows else "calculated"
    halved = "; halving takes less" if ablation.settings.halving else ""
    console.notice(
        f"ablate: {left} of {len(parts)} cells to run by {ablation.by}, "
        f"{estimate.in_words(whole)} ({by}{halved})"
    )


class CellCommand(NamedTuple):
    """One of the commands of a cell: its words, the folder of its stage, what that is made of, and
    the folders that it reads.
    """

    command: str
    words: list[str]
    folder: str
    made_of: str
    after: list[str]


def _commands(
    ablation: Ablation, cell: Cell, split: str, steps: int | None = None
) -> list[CellCommand]:
    """In order: pairs for a trainer that reads them, the trainer, eval."""
    made_of = ablation.made_of(CELLS, cell)
    made = [
        (
            ablation.by,
            ablation.training_words(cell, steps),
            f"{ablation.home(cell)}/{ablation.trained(steps)}",
            made_of,
        ),
        (
            "eval",
            ablation.eval_words(cell, split, steps),
            ablation.evaluated(cell, split, steps),
            made_of,
        ),
    ]
    before = []
    if ablation.paired:
        ranked = ablation.made_of(PAIRED, cell)
        made.insert(0, (PAIRED, ablation.ranking_words(cell), ablation.pairs_of(cell), ranked))
        before = [] if ablation.sampled else [ablation.candidates_of(cell)]
    return [
        CellCommand(*one, [*before, *(folder for *_, folder, _ in made[:index])])
        for index, one in enumerate(made)
    ]


def _left(
    ablation: Ablation, journal: CommandJournal, cell: Cell, split: str, steps: int | None = None
) -> list[CellCommand]:
    """The commands of a cell that are to be run: none behind one that failed."""
    left = []
    for one in _commands(ablation, cell, split, steps):
        row = journal.earlier(one.folder, journal.typed(one.words), one.after)
        if row and row.exit_code:
            break
        left += [] if row else [one]
    return left


def _cell_seconds(
    ablation: Ablation,
    journal: CommandJournal,
    cell: Cell,
    split: str,
    steps: int | None = None,
    share: float = 1.0,
) -> float | None:
    """Of what is left to do for a cell: 0 if that is nothing. Ranking takes no time to speak of."""
    return estimate.total(
        [
            estimate.expected(
                estimate.calculated(ablation, one.command, cell),
                one.command,
                journal.rows,
                share if one.command == ablation.by else 1.0,
            )
            for one in _left(ablation, journal, cell, split, steps)
            if one.command != PAIRED
        ]
    )


def _shared_left(
    ablation: Ablation, journal: CommandJournal
) -> list[tuple[str, Cell, list[str], str]]:
    """What is done once and is not done: asking the model that all start from, and sampling. Each
    is a command, a cell that needs it, its words and its folder.
    """
    split, first = ablation.settings.split, ablation.cells[0]
    parts = [("eval", first, ablation.eval_words(None, split), ablation.evaluated(None, split))]
    if ablation.paired and not ablation.sampled:
        sampled = {ablation.candidates_of(cell): cell for cell in ablation.cells[::-1]}
        parts += [
            (PAIRED, cell, ablation.sampling_words(cell), folder)
            for folder, cell in sampled.items()
        ]
    return [
        (command, cell, words, folder)
        for command, cell, words, folder in parts
        if not journal.earlier(folder, journal.typed(words))
    ]


def _shared_seconds(ablation: Ablation, journal: CommandJournal) -> float | None:
    return estimate.total(
        [
            estimate.expected(estimate.calculated(ablation, command, cell), command, journal.rows)
            for command, cell, *_ in _shared_left(ablation, journal)
        ]
    )


def _fill(ablation: Ablation, journal: CommandJournal, budget: Budget) -> AblationTable:
    """Runs what is not done, and compares what there is."""
    settings, cells = ablation.settings, ablation.cells
    shared = _shared_seconds(ablation, journal)
    first = estimate.total([shared, _cell_seconds(ablation, journal, cells[0], settings.split)])
    results: dict[str, CellResult] = {}
    start = None
    if shared == 0 or budget.allows(first):
        start = _start(ablation, journal)
    else:  # nothing is run, and what is known of the cells stays known
        budget = Budget(0.0, budget.began)
    going_on = _halve(ablation, journal, budget, results) if settings.halving else cells
    twins: dict[str, str] = {}
    for cell in going_on:
        results[cell.name] = _cell(ablation, journal, budget, cell, twins, settings.split)
    return ablation_table(
        ablation.by,
        settings.split,
        settings.metric,
        {cell.name: cell.differs for cell in cells},
        {cell.name: results[cell.name] for cell in cells},
        (f"{ablation.model} (start)", start) if start else None,
        settings.seed,
    )


def _does_not_fit(seconds: float | None) -> str:
    return f"it takes {estimate.in_words(seconds)}, and less is left of the budget"


def _start(ablation: Ablation, journal: CommandJournal) -> CellResult:
    """Does what all cells share, once. Returns what the model says that they start from. Raises
    UserError where a command fails.
    """
    for command, cell, words, folder in _shared_left(ablation, journal):
        calculated = estimate.calculated(ablation, command, cell)
        made_of = ablation.made_of(CANDIDATES, cell) if command == PAIRED else ""
        row = journal.run(SHARED, folder, words, calculated, made_of=made_of)
        if row.exit_code:
            raise UserError(
                row.problem,
                "Correct that, and run the same command again with --retry.",
                location=row.command,
                exit_code=row.exit_code if row.exit_code > 0 else 1,
            )
    split = ablation.settings.split
    words = ablation.eval_words(None, split)
    name = words[words.index("--model") + 1]
    return _evaluated(ablation.target.folder / ablation.evaluated(None, split), name)


def _cell(
    ablation: Ablation,
    journal: CommandJournal,
    budget: Budget,
    cell: Cell,
    twins: dict[str, str],
    split: str,
    steps: int | None = None,
    share: float = 1.0,
) -> CellResult:
    """Ranks, trains and asks, unless another cell was trained on the same pairs with the same
    settings. `twins`: the names of the cells by all that decides what comes out; `steps`, `share`:
    of a round of halving.
    """
    left = _cell_seconds(ablation, journal, cell, split, steps, share)
    if left != 0 and not budget.allows(left):
        return CellResult(state="not run", note=_does_not_fit(left))
    number = f"cell {ablation.cells.index(cell) + 1} of {len(ablation.cells)}"
    round_of = f", {steps} steps" if steps else ""
    if left != 0:
        console.notice(f"ablate: {number}, {cell.name}{round_of}: {estimate.in_words(left)}")
    for one in _commands(ablation, cell, split, steps):
        is_training = one.command == ablation.by
        if is_training:
            key = _what_decides(ablation, cell)
            if twins.setdefault(key, cell.name) != cell.name:
                return CellResult(state="same", note=twins[key])
        calculated = estimate.calculated(ablation, one.command, cell)
        if calculated is not None and is_training:
            calculated *= share
        row = journal.run(cell.name, one.folder, one.words, calculated, one.after, one.made_of)
        if row.exit_code:
            console.notice(f"ablate: {cell.name} failed: {row.problem}")
            return CellResult(state="failed", note=row.problem, command=row.command)
        if is_training:
            # a finished stage carries nothing on: its checkpoints are much, and are of no use
            shutil.rmtree(journal.folder / one.folder / "checkpoints", ignore_errors=True)
    folder = ablation.target.folder / ablation.evaluated(cell, split, steps)
    return _evaluated(folder, ablation.trained(steps))


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


def _halve(
    ablation: Ablation,
    journal: CommandJournal,
    budget: Budget,
    results: dict[str, CellResult],
) -> list[Cell]:
    """Rounds of all cells for a share of the steps, twice as many each time, after which the better
    half goes on, by the metric on dev. The first cell always goes on: the others are compared with
    it. Those that do not are in `results`. Test records are not looked at.
    """
    settings = ablation.settings
    first, *others = ablation.cells
    share = settings.first_share
    while share < 1 and len(others) > 1:
        twins: dict[str, str] = {}
        means: dict[str, float] = {}
        for cell in [first, *others]:
            steps = _steps(ablation, cell, share, journal, budget)
            found = (
                steps
                if isinstance(steps, CellResult)
                else _cell(ablation, journal, budget, cell, twins, "dev", steps, share)
            )
            if found.state == "same":
                means[cell.name] = means.get(found.note, -1.0)
            elif found.state == "done" and settings.metric in found.figures:
                means[cell.name] = found.figures[settings.metric].mean
            elif found.state == "done":
                results[cell.name] = CellResult(
                    state="failed", note=f"{settings.metric} was not measured on dev"
                )
            else:
                results[cell.name] = found
        alive = sorted(
            (cell for cell in others if cell.name in means), key=lambda cell: -means[cell.name]
        )
        kept = alive[: math.ceil(len(alive) / 2)]
        for cell in alive[len(kept) :]:
            note = f"{settings.metric} {100 * means[cell.name]:.1f} % on dev after {share:.0%}"
            results[cell.name] = CellResult(state="dropped", note=f"{note} of the steps")
        others = [cell for cell in others if cell in kept]
        console.notice(
            f"ablate: after {share:.0%} of the steps "
            f"{', '.join(cell.name for cell in others) or 'no cell'} go on with {first.name}"
        )
        share *= 2
    return [cell for cell in [first, *others] if cell.name not in results]


def _steps(
    ablation: Ablation, cell: Cell, share: float, journal: CommandJournal, budget: Budget
) -> int | CellResult:
    """How many steps a share of the cell's are: a dry run knows them all, once it has its pairs."""
    *ranking, training, _ = _commands(ablation, cell, "dev")
    left = _left(ablation, journal, cell, "dev")
    if any(one.command == PAIRED for one in left) and not budget.allows(None):
        return CellResult(state="not run", note=_does_not_fit(None))
    for one in ranking:
        row = journal.run(cell.name, one.folder, one.words, None, one.after, one.made_of)
        if row.exit_code:
            return CellResult(state="failed", note=row.problem, command=row.command)
    planned = journal.ask(
        training.folder, [*training.words, "--out", f"{ablation.by}-planned", "--dry-run"]
    )
    if planned.exit_code:
        typed = journal.typed(training.words)
        return CellResult(state="failed", note=planned.problem, command=typed)
    steps: int = planned.answer["figures"]["steps"]
    return max(1, round(share * steps))


def _key_figures(table: AblationTable) -> dict[str, object]:
    metric = table.metric
    done = [row for row in table.cells if row.state in ("done", "same")]
    measured = [row for row in done if metric in row.figures]
    best = max(measured, key=lambda row: row.figures[metric].mean, default=None)
    return {
        "cells": len(table.cells),
        "done": len(done),
        "failed": sum(row.state == "failed" for row in table.cells),
        "not_run": sum(row.state == "not run" for row in table.cells),
        "dropped": sum(row.state == "dropped" for row in table.cells),
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
        [TABLE, COSTS, PICTURE, JOURNAL],
        stage.done.seconds,
        target.next("agentlite report"),
        sentences=table["verdict"],
    )
