"""The evaluated cells of a grid -> one table: each cell against the first, and a verdict."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from agentlite.scoring.metrics.confidence import Summary
from agentlite.scoring.metrics.model_metrics import HEADLINE, ModelDifference
from agentlite.scoring.metrics.summarize import WHOLE, Scores, differences_of

CellState = Literal["done", "same", "failed"]


class CellRow(Struct, frozen=True, kw_only=True):
    """A cell of the grid. `differs`: the settings in which it differs from the first cell; `note`:
    of a cell that is not done, the reason, and of one that is the same as another, that one's name;
    `command`: the command that failed. `figures` and `differences` (over the first cell) by metric.
    """

    name: str
    differs: str
    state: CellState
    note: str = ""
    command: str = ""
    figures: dict[str, Summary] = {}
    differences: dict[str, ModelDifference] = {}


class AblationTable(Struct, frozen=True, kw_only=True):
    """table.json. `start`: the model that the cells started from, or None where it was not
    measured; `metric`: the one that the verdict is about; `prompts`: those that all cells answered.
    """

    by: str
    split: str
    prompts: int
    metric: str
    metrics: list[str]
    start: CellRow | None
    cells: list[CellRow]
    verdict: list[str]


class CellResult(Struct, frozen=True, kw_only=True):
    """How a cell ended, before the cells are compared. `figures` and `scores` of a cell that
    was evaluated.
    """

    state: CellState
    note: str = ""
    command: str = ""
    figures: Mapping[str, Summary] = {}
    scores: Scores = {}


def ablation_table(
    by: str,
    split: str,
    metric: str,
    differs: Mapping[str, str],
    results: Mapping[str, CellResult],
    start: tuple[str, CellResult] | None,
    seed: int,
) -> AblationTable:
    """`differs` and `results` by the name of the cell, in the order of the grid. A cell
    that is the same as another one takes its figures, and adds no comparison.
    """
    metrics = list(dict.fromkeys([*HEADLINE, metric]))
    every = {**({start[0]: start[1]} if start else {}), **results}
    scored = {name: one.scores for name, one in every.items() if one.state == "done"}
    first = next(iter(results))
    pairs = [(first, name) for name in scored if name != first] if first in scored else []
    found = differences_of(pairs, scored, seed, metrics)

    def row(name: str, words: str) -> CellRow:
        one = every[name]
        of = one.note if one.state == "same" else name
        shown = every[of].figures if of in scored else {}
        return CellRow(
            name=name,
            differs=words,
            state=one.state,
            note=one.note,
            command=one.command,
            figures={key: shown[key] for key in metrics if key in shown},
            differences={this.metric: this for this in found if this.second == of},
        )

    common = set.intersection(*map(set, scored.values())) if scored else set()
    cells = [row(name, words) for name, words in differs.items()]
    measured = [name for name in metrics if any(name in cell.figures for cell in cells)]
    return AblationTable(
        by=by,
        split=split,
        prompts=sum(step.turn != WHOLE for step in common),
        metric=metric,
        metrics=measured,
        start=row(start[0], "the model that the cells start from") if start else None,
        cells=cells,
        verdict=verdict(cells, metric),
    )


def verdict(cells: Sequence[CellRow], metric: str) -> list[str]:
    """At most three sentences: which cells are better or worse than the first beyond noise, and
    which were not measured.
    """
    first, *others = cells
    done = [cell for cell in others if metric in cell.differences and cell.state == "done"]
    done.sort(key=lambda cell: -cell.differences[metric].mean)
    better = [cell for cell in done if _beyond(cell, metric) and _gain(cell, metric) > 0]
    worse = [cell for cell in done[::-1] if _beyond(cell, metric) and _gain(cell, metric) < 0]
    sentences = []
    if not done:
        sentences.append(f"No cell can be compared with the first, {first.name}.")
    elif better:
        sentences.append(
            f"Better than {first.name} beyond noise ({metric}): {_listed(better, metric)}."
        )
    else:
        higher = _gain(done[0], metric) > 0
        best = f"the highest is {_listed(done[:1], metric)}" if higher else "none is higher at all"
        sentences.append(f"No cell is better than {first.name} beyond noise ({metric}); {best}.")
    if worse:
        sentences.append(f"Worse beyond noise: {_listed(worse, metric)}.")
    if failed := sum(cell.state == "failed" for cell in cells):
        sentences.append(f"{failed} {'cell' if failed == 1 else 'cells'} failed.")
    return sentences


def _gain(cell: CellRow, metric: str) -> float:
    return cell.differences[metric].mean


def _beyond(cell: CellRow, metric: str) -> bool:
    return cell.differences[metric].beyond_noise


def _listed(cells: Sequence[CellRow], metric: str) -> str:
    """The first three, with their gains in points."""
    named = [
        f"{cell.name} ({100 * found.mean:+.1f} points [{100 * found.low:+.1f}, "
        f"{100 * found.high:+.1f}])"
        for cell in cells[:3]
        for found in [cell.differences[metric]]
    ]
    more = [f"{len(cells) - 3} more"] if len(cells) > 3 else []
    return ", ".join([*named, *more])
