"""The evaluated cells of a grid -> one table: each cell against the first, and a verdict."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from agentlite.scoring.metrics.confidence import Difference, Summary
from agentlite.scoring.metrics.figures import HEADLINE
from agentlite.scoring.metrics.summarize import WHOLE_DIALOG, Scores, differences_of


class CellRow(Struct, frozen=True):
    """A cell in table.json. `differs`: the settings in which it differs from the first cell;
    `note`, `command`: why it failed, and at what; `differences`: what it has over the first one,
    by metric; `seconds`, `gib`: of its training and evaluation, and the most memory of a GPU.
    """

    name: str
    differs: str
    state: Literal["done", "failed"]
    note: str = ""
    command: str = ""
    figures: Mapping[str, Summary] = {}
    differences: Mapping[str, Difference] = {}
    seconds: float = 0.0
    gib: float = 0.0


class AblationTable(Struct, frozen=True, kw_only=True):
    """table.json. `start`: the model that the cells started from; `metric`: the one that the
    verdict is about; `prompts`: those that all cells answered.
    """

    by: str
    split: str
    prompts: int
    metric: str
    metrics: list[str]
    start: CellRow
    cells: list[CellRow]
    verdict: list[str]


def ablation_table(
    by: str,
    split: str,
    metric: str,
    start: CellRow,
    cells: Sequence[CellRow],
    scores: Mapping[str, Scores],
    seed: int,
) -> AblationTable:
    """`cells` in the order of the grid; `scores`: of those that were evaluated, by name."""
    metrics = list(dict.fromkeys([*HEADLINE, metric]))
    first = cells[0].name
    pairs = [(first, name) for name in scores if name != first] if first in scores else []
    gains = differences_of(pairs, scores, seed, metrics)

    def compare(cell: CellRow) -> CellRow:
        figures = {name: cell.figures[name] for name in metrics if name in cell.figures}
        return replace(
            cell,
            figures=figures,
            differences={gain.metric: gain for gain in gains if gain.second == cell.name},
        )

    common_steps = set.intersection(*map(set, scores.values())) if scores else set()
    rows = list(map(compare, cells))
    return AblationTable(
        by=by,
        split=split,
        prompts=sum(step.turn != WHOLE_DIALOG for step in common_steps),
        metric=metric,
        metrics=[name for name in metrics if any(name in row.figures for row in rows)],
        start=compare(start),
        cells=rows,
        verdict=verdict(rows, metric),
    )


def verdict(cells: Sequence[CellRow], metric: str) -> list[str]:
    """At most three sentences: which cells beat or trail the first, or were not measured."""
    first, *others = cells
    gains = [(cell.name, cell.differences[metric]) for cell in others if metric in cell.differences]
    gains.sort(key=lambda gain: -gain[1].mean)
    beyond_noise = [gain for gain in gains if gain[1].beyond_noise]
    better = [gain for gain in beyond_noise if gain[1].mean > 0]
    worse = [gain for gain in beyond_noise[::-1] if gain[1].mean < 0]
    sentences = []
    if not gains:
        sentences.append(f"No cell can be compared with the first, {first.name}.")
    elif better:
        sentences.append(f"Better than {first.name} beyond noise ({metric}): {_top_gains(better)}.")
    else:
        is_higher = gains[0][1].mean > 0
        best = f"the highest is {_top_gains(gains[:1])}" if is_higher else "none is higher at all"
        sentences.append(f"No cell is better than {first.name} beyond noise ({metric}); {best}.")
    if worse:
        sentences.append(f"Worse beyond noise: {_top_gains(worse)}.")
    if failures := sum(cell.state == "failed" for cell in cells):
        sentences.append(f"{failures} {'cell' if failures == 1 else 'cells'} failed.")
    return sentences


def _top_gains(gains: Sequence[tuple[str, Difference]]) -> str:
    """The first three cells, with their gains in points."""
    cells = [
        f"{name} ({100 * gain.mean:+.1f} points [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}])"
        for name, gain in gains[:3]
    ]
    others = [f"{len(gains) - 3} more"] if len(gains) > 3 else []
    return ", ".join([*cells, *others])
