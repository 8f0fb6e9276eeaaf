"""agentlite.report.tables: the rows and the notes of a table of cells."""

from typing import Any

from agentlite.report.tables import cell_rows as rows
from agentlite.scoring.metrics.figures import HEADLINE, TITLES

TOOL, EXACT = HEADLINE


def figure(mean: float) -> dict[str, Any]:
    low, high = max(0.0, mean - 0.1), min(1.0, mean + 0.1)
    return {"mean": mean, "std": 0.1, "count": 90, "low": low, "high": high, "interval": "wilson"}


def difference(metric: str, mean: float, reach: float = 0.1) -> dict[str, Any]:
    low, high = mean - reach, mean + reach
    beyond = low > 0 or high < 0
    return {"metric": metric, "mean": mean, "low": low, "high": high, "beyond_noise": beyond}


def cell(name: str, mean: float | None = None, over: float | None = None, **fields: Any) -> Any:
    """`mean`: of both metrics; `over`: what it has over the first."""
    return {
        "name": name,
        "differs": f"{name}=1",
        "state": "done",
        "note": "",
        "command": "",
        "figures": {} if mean is None else dict.fromkeys((TOOL, EXACT), figure(mean)),
        "differences": {}
        if over is None
        else {metric: difference(metric, over) for metric in (TOOL, EXACT)},
        "seconds": 0.0,
        "gib": 0.0,
        **fields,
    }


def table(*cells: Any, start: Any = None) -> dict[str, Any]:
    return {"metrics": [TOOL, EXACT], "start": start, "cells": [*cells]}


FIRST = cell("first", 0.5, differs="")


def test_a_row_has_the_figures_of_a_cell_what_it_gained_and_what_it_cost():
    made = table(
        {**FIRST, "seconds": 119.4, "gib": 1.5},
        cell("good", 0.75, 0.25, seconds=120, gib=2),
        cell("near", 0.45, -0.05, seconds=5400, gib=2.25),
        cell("torn", state="failed"),
        start=cell("before", 0.25, -0.25),
    )
    head, before, first, good, near, torn = rows(made)
    words = [TITLES[TOOL], TITLES[EXACT]]
    over = [f"{one}, points over first" for one in words]
    assert head == ["cell", "what differs", *words, *over, "time", "GiB"]
    assert first[:2] == ["first", "the first"] and good[:2] == ["good", "good=1"]
    assert first[2].startswith("50.0 %") and good[3].startswith("75.0 %")
    assert first[4:] == ["-", "-", "119 s", "1.5"]
    assert good[4:] == ["+25.0 [+15.0, +35.0], beyond noise"] * 2 + ["2 min", "2"]
    assert near[4:] == ["-5.0 [-15.0, +5.0]"] * 2 + ["90 min", "2.25"]
    assert before[0] == "before" and before[4].startswith("-25.0 ") and before[6:] == ["-", "-"]
    assert torn[2:] == ["failed", "-", "-", "-", "-", "-"]
