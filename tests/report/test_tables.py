"""How figures are written, and what is said of an evaluation that was not read."""

from support.generated_run import stage

from agentlite.report import page, tables
from agentlite.report.read_run import read_run
from agentlite.report.tables import NO_EVALUATION


def test_a_count_is_a_number_also_where_it_lies_between_0_and_1():
    figure = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 8, "interval": "bootstrap"}
    always = {"mean": 1.0, "low": 0.7, "high": 1.0, "count": 8, "interval": "wilson"}
    metrics = {"extra_calls": figure, "tool_errors": figure}
    cells = dict(tables.models({"m": {"metrics": metrics}}).cells)
    assert cells["tool_errors"] == "50.0 % [25.0, 75.0] n=8"
    assert cells["extra_calls"] == "0.5 [0.25, 0.75] n=8"
    cells = tables.models({"m": {"metrics": {"extra_calls": always}}}).cells
    assert cells == [["", "m"], ["extra_calls", "1 n=8"]]
    row = {"metric": "extra_calls", "mean": 0.5, "low": -0.25, "high": 1.25}
    assert (tables.gain(row), tables.gain_interval(row)) == ("+0.50", "[-0.25, +1.25]")
    assert tables.gain({**row, "metric": "tool_errors"}) == "+50.0 points"


def test_an_evaluation_of_which_nothing_was_read_is_named_with_its_reason_alone(tmp_path):
    figure = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 4}
    plan = {"command": "eval", "settings": {}, "inputs": {}}
    folder = tmp_path / "eval" / "prep" / "m"
    stage(folder, plan, {}, {}, {"metrics": {"exact_call": figure}})
    whole = page(read_run(tmp_path))
    assert NO_EVALUATION not in whole and "<b>50.0 %</b>" in whole
    (folder / "done.json").unlink()
    text = page(read_run(tmp_path))
    assert NO_EVALUATION in text and "<section" not in text
    assert "Not read: m (not finished)." in text


def test_values_of_a_slice_that_begin_with_a_number_stand_in_its_order():
    figure = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 4, "interval": "wilson"}
    of_value = {value: {"metrics": {"exact_call": figure}} for value in ("10", "rest", "2-4", "2")}
    [table] = tables.slices({"m": {"by": {"tools": of_value}}})
    assert [row[0] for row in table.rows] == ["2", "2-4", "10", "rest"]
