"""How long the commands of a cell take: calculated as `plan` does, then by those that ended."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import RowLengths, data_of, plan
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.model_shape import base_of, find_shape, with_teacher
from agentlite.stages.ablate.cells import PAIRED, Ablation, Cell
from agentlite.stages.ablate.commands import EndedCommand
from agentlite.workspace import run_folder


def calculated(ablation: Ablation, command: str, cell: Cell | None) -> float | None:
    """Seconds, as `agentlite plan` calculates them; None where the model's shape is not known."""
    changes = cell.of(command) if cell else {}
    sets = {f"{command}.{key}": value for key, value in changes.items()}
    settings: Any = resolve.resolve(command, ablation.given(sets)).settings
    run = ablation.target.run
    try:
        shape = with_teacher(find_shape(base_of(ablation.model, run)), settings, run)
        rows = _rows(ablation, command, settings, cell)
        machine = machine_of(ablation.target.given.profile)
        time = plan(command, settings, shape, machine, rows).time
        return time["seconds_a_step"] * time["steps"]
    except (UserError, KeyError):
        return None


def _rows(ablation: Ablation, command: str, settings: Any, cell: Cell | None) -> RowLengths:
    """Of what the command reads. Before there are pairs, at most one for each sampled step."""
    run, data = ablation.target.run, ablation.settings.data
    if command != ablation.by or not ablation.paired:
        limit = getattr(settings, "limit", None)
        known = data_of(command, replace(settings, data=data), run)
        return known._replace(rows=min(known.rows, limit or known.rows))
    sampling = resolve.resolve(PAIRED, ablation.given()).settings
    known = data_of(PAIRED, replace(sampling, data=data), run)
    pairs = ablation.target.folder / ablation.pairs_of(cell) if cell else None
    if pairs and run_folder.is_finished(pairs):
        done = run_folder.read(pairs).done
        return known._replace(rows=int(done.figures["pairs"]) if done else known.rows)
    limit = sampling.limit or known.rows
    return known._replace(rows=min(known.rows, limit))


def expected(
    seconds: float | None, command: str, ended: Iterable[EndedCommand], share: float = 1.0
) -> float | None:
    """Seconds of a command that were calculated as `seconds` for all its steps, corrected by the
    commands of its kind that have ended: by how much longer they took, or their mean where nothing
    could be calculated. `share`: of the steps, that are taken.
    """
    alike = [row for row in ended if not row.exit_code and row.command.split()[1:2] == [command]]
    if seconds is None:
        return share * fmean(row.seconds for row in alike) if alike else None
    ratios = [row.seconds / row.calculated for row in alike if row.calculated]
    return share * seconds * (fmean(ratios) if ratios else 1.0)


def in_words(seconds: float | None) -> str:
    """`2 h 10 min`, `12 min`, `40 s`; of an unknown time, that it is unknown."""
    if seconds is None:
        return "an unknown time"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def total(parts: Sequence[float | None]) -> float | None:
    """None if one of them is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
