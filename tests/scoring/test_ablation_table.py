"""The table of an ablation: what it compares, and what its verdict says."""

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from agentlite.core.records import Step
from agentlite.scoring.ablation_table import AblationTable, CellRow, ablation_table
from agentlite.scoring.metrics.confidence import Summary, summary
from agentlite.scoring.metrics.summarize import Scores

METRIC = "exact_call"


class Evaluated(NamedTuple):
    row: CellRow
    scores: Scores


def row(state: Any, note: str = "", **figures: Summary) -> CellRow:
    return CellRow(name="", differs="beta", state=state, note=note, figures=figures)


def cell(right: int, of: int = 100) -> Evaluated:
    """Answers the first `right` questions rightly."""
    values = [float(number < right) for number in range(of)]
    scores = {Step(f"r{number}", 1): {METRIC: value} for number, value in enumerate(values)}
    return Evaluated(row("done", **{METRIC: summary(values, 0)}), scores)


def made(**results: Evaluated | CellRow) -> AblationTable:
    evaluated = {"sft (start)": cell(40)}
    evaluated |= {name: one for name, one in results.items() if isinstance(one, Evaluated)}
    scores = {name: one.scores for name, one in evaluated.items()}
    start, *cells = (
        replace(one.row if isinstance(one, Evaluated) else one, name=name)
        for name, one in {"sft (start)": cell(40), **results}.items()
    )
    return ablation_table("dpo", "test", METRIC, start, cells, scores, 0)


def test_equal_cells_are_not_called_different() -> None:
    table = made(first=cell(50), other=cell(51), third=cell(49))
    assert table.verdict == [
        "No cell is better than first beyond noise (exact_call); the highest is other (+1.0 points "
        "[+0.0, +3.0])."
    ]


def test_the_verdict_names_better_and_worse_cells_and_those_without_figures() -> None:
    failed = row("failed", "diverged")
    waiting = row("failed", "killed")
    table = made(first=cell(50), good=cell(80), bad=cell(20), torn=failed, late=waiting)
    assert len(table.verdict) == 3
    assert table.verdict[0].startswith("Better than first beyond noise (exact_call): good (+30.0")
    assert table.verdict[1].startswith("Worse beyond noise: bad (-30.0")
    assert table.verdict[2] == "2 cells failed."


def test_the_p_of_all_cells_are_corrected_together() -> None:
    """A gain that is beyond noise by itself is within it among twenty others."""
    alone = made(first=cell(50), good=cell(56)).cells[1].differences[METRIC]
    others = {f"c{number}": cell(50 + number % 2) for number in range(20)}
    among = made(first=cell(50), good=cell(56), **others).cells[1].differences[METRIC]
    assert alone.p == among.p <= alone.p_holm < among.p_holm
    assert alone.beyond_noise and not among.beyond_noise


def test_without_the_first_cell_nothing_is_compared() -> None:
    table = made(first=row("failed", "diverged"), other=cell(50))
    assert not table.cells[1].differences and table.cells[1].figures
    assert table.verdict == ["No cell can be compared with the first, first.", "1 cell failed."]


def test_the_start_is_compared_as_a_cell_is_on_the_prompts_that_all_have_answered() -> None:
    table = made(first=cell(50), fewer=cell(50, of=60))
    assert table.start.name == "sft (start)"
    assert table.start.differences[METRIC].mean == pytest.approx((40 - 50) / 60)
    assert table.prompts == 60 and table.metrics == [METRIC]
