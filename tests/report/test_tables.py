"""How figures are written in both reports: numbers, columns and rows, words for a gain."""

from agentlite.report import tables
from agentlite.report.markdown import as_table
from agentlite.report.tables import Table


def figure(mean, low=None, high=None, **more):
    ends = {} if low is None else {"low": low, "high": high}
    return {"mean": mean, **ends, **more}


def row(mean=0.1, low=-0.02, high=0.22, beyond=False, metric="exact_call", **more):
    values = {"mean": mean, "low": low, "high": high, "beyond_noise": beyond, "metric": metric}
    return {**values, "first": "base", "second": "sft", "count": 40, **more}


def test_a_wide_table_is_turned_and_a_cell_stays_a_cell():
    table = Table("t", ["model", "of", "a", "b"], [["m", "x", 1, 2], ["n", "y", 3, 4]], 2)
    assert table.turned.cells == [["", "m x", "n y"], ["a", "1", "3"], ["b", "2", "4"]]
    assert as_table([["a|b", "c"], ["<x>\ny", "\\"]]) == (
        "| a\\|b | c |\n| --- | --- |\n| &lt;x> y | \\\\ |"
    )


def test_a_count_is_a_number_also_where_it_lies_between_0_and_1():
    figure = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 8, "interval": "bootstrap"}
    always = {"mean": 1.0, "low": 0.7, "high": 1.0, "count": 8, "interval": "wilson"}
    metrics = {"calls_made": figure, "tool_errors": figure}
    head, row = tables.models({"m": {"metrics": metrics}}).cells
    cells = dict(zip(head, row, strict=True))
    assert cells["tool_errors"] == "50.0 % [25.0, 75.0] n=8"
    assert cells["calls_made"] == "0.5 [0.25, 0.75] n=8"
    head, row = tables.models({"m": {"metrics": {"calls_made": always}}}).cells
    assert dict(zip(head, row, strict=True))["calls_made"] == "1 n=8"
    row = {"metric": "calls_made", "mean": 0.5, "low": -0.25, "high": 1.25}
    assert (tables.gain(row), tables.reach(row)) == ("+0.50", "[-0.25, +1.25]")
    assert tables.gain({**row, "metric": "tool_errors"}) == "+50.0 points"
