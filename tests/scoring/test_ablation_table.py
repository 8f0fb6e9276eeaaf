"""The table of an ablation: what it compares, and what its verdict says."""

import pytest

from agentlite.core.records import Step
from agentlite.scoring.ablation_table import AblationTable, CellResult, ablation_table
from agentlite.scoring.metrics.confidence import summary
from agentlite.scoring.metrics.summarize import WHOLE, differences_of

METRIC = "exact_call"


def cell(right: int, of: int = 100) -> CellResult:
    """Answers the first `right` questions rightly."""
    values = [float(number < right) for number in range(of)]
    scores = {Step(f"r{number}", 1): {METRIC: value} for number, value in enumerate(values)}
    return CellResult(state="done", figures={METRIC: summary(values, 0)}, scores=scores)


def made(**results: CellResult) -> AblationTable:
    words = dict.fromkeys(results, "beta")
    return ablation_table("dpo", "test", METRIC, words, results, ("sft (start)", cell(40)), 0)


def test_equal_cells_are_not_called_different() -> None:
    table = made(first=cell(50), other=cell(51), third=cell(49))
    assert table.verdict == [
        "No cell is better than first beyond noise (exact_call); the highest is other (+1.0 points "
        "[+0.0, +3.0])."
    ]


def test_the_verdict_names_better_and_worse_cells_and_those_without_figures() -> None:
    failed = CellResult(state="failed", note="diverged")
    waiting = CellResult(state="failed", note="killed")
    table = made(first=cell(50), good=cell(80), bad=cell(20), torn=failed, late=waiting)
    assert len(table.verdict) == 3
    assert table.verdict[0].startswith("Better than first beyond noise (exact_call): good (+30.0")
    assert table.verdict[1].startswith("Worse beyond noise: bad (-30.0")
    assert table.verdict[2] == "2 cells failed."


@pytest.mark.parametrize("others", [[50], [50, 50], [50, 48]])
def test_a_cell_that_equals_the_first_is_not_called_the_highest(others: list[int]) -> None:
    cells = {f"c{number}": cell(right) for number, right in enumerate(others)}
    assert made(first=cell(50), **cells).verdict == [
        "No cell is better than first beyond noise (exact_call); none is higher at all."
    ]


def test_the_p_of_all_cells_are_corrected_together() -> None:
    """A gain that is beyond noise by itself is within it among twenty others."""
    alone = made(first=cell(50), good=cell(56)).cells[1].differences[METRIC]
    others = {f"c{number}": cell(50 + number % 2) for number in range(20)}
    among = made(first=cell(50), good=cell(56), **others).cells[1].differences[METRIC]
    assert alone.p == among.p <= alone.p_holm < among.p_holm
    assert alone.beyond_noise and not among.beyond_noise


def test_a_cell_that_is_the_same_as_another_takes_its_figures_and_adds_no_comparison() -> None:
    twin = CellResult(state="same", note="good")
    table = made(first=cell(50), good=cell(57), twin=twin)
    assert table.cells[2].figures == table.cells[1].figures
    assert table.cells[2].differences == table.cells[1].differences
    assert table.cells[1].differences == made(first=cell(50), good=cell(57)).cells[1].differences


def test_without_the_first_cell_nothing_is_compared() -> None:
    table = made(first=CellResult(state="failed", note="diverged"), other=cell(50))
    assert not table.cells[1].differences and table.cells[1].figures
    assert table.verdict == ["No cell can be compared with the first, first.", "1 cell failed."]


def test_only_the_metrics_that_are_asked_for_are_compared() -> None:
    scores = {Step("r", 1): {METRIC: 1.0, "call_decision": 0.0}}
    found = differences_of([("a", "b")], {"a": scores, "b": scores}, 0, [METRIC])
    assert [one.metric for one in found] == [METRIC]


def test_the_verdict_names_three_cells_the_best_first_and_the_worst_first() -> None:
    good = {f"g{points}": cell(50 + points) for points in (30, 45, 35, 40)}
    bad = {f"b{points}": cell(50 - points) for points in (25, 45, 35, 40)}
    better, worse = made(first=cell(50), **good, **bad).verdict
    assert [part.split(" (")[0] for part in better.split(": ")[1].split("), ")] == [
        *("g45", "g40", "g35"),
        "1 more.",
    ]
    assert [part.split(" (")[0] for part in worse.split(": ")[1].split("), ")] == [
        *("b45", "b40", "b35"),
        "1 more.",
    ]
    three = {name: good[name] for name in ("g30", "g40", "g45")}
    assert "more" not in made(first=cell(50), **three).verdict[0]


def test_the_start_is_compared_as_a_cell_is_on_the_prompts_that_all_have_answered() -> None:
    table = made(first=cell(50), fewer=cell(50, of=60))
    assert table.start is not None and table.start.name == "sft (start)"
    assert table.start.differences[METRIC].mean == pytest.approx((40 - 50) / 60)
    assert table.prompts == 60 and table.metrics == [METRIC]
    words = {"first": ""}
    alone = ablation_table("dpo", "test", METRIC, words, {"first": cell(50)}, None, 0)
    assert alone.start is None and alone.prompts == 100


def measured(right: int, state: str = "done", **more: object) -> CellResult:
    """With a whole dialog beside its hundred steps, and two figures more."""
    one = cell(right)
    scores = {step: {**metrics, "recall": 1.0} for step, metrics in one.scores.items()}
    figures = dict.fromkeys(("recall", METRIC, "tool_selection_accuracy"), one.figures[METRIC])
    scores = {**scores, Step("r0", WHOLE): {"plan_partial": 1.0}}
    return CellResult(state=state, figures=figures, scores=scores, **more)  # type: ignore[arg-type]


def test_the_main_figures_stand_before_the_metric_of_the_verdict_and_dialogs_are_no_prompts() -> (
    None
):
    results = {"first": measured(50), "other": measured(60)}
    words = dict.fromkeys(results, "beta")
    table = ablation_table("dpo", "test", "recall", words, results, None, 0)
    assert table.metrics == ["tool_selection_accuracy", METRIC, "recall"]
    assert [*table.cells[0].figures] == table.metrics
    assert {*table.cells[1].differences} == {METRIC, "recall"} and table.prompts == 100


def test_a_cell_that_failed_says_why_and_with_which_command() -> None:
    failed = CellResult(state="failed", note="diverged", command="agentlite dpo --model sft")
    row = made(first=cell(50), torn=failed).cells[1]
    assert (row.state, row.note, row.command) == ("failed", "diverged", "agentlite dpo --model sft")
    assert (row.name, row.differs) == ("torn", "beta")


def test_the_figures_of_a_verdict_have_their_signs_and_their_interval() -> None:
    table = made(first=cell(50), good=cell(90), bad=cell(20))
    for sentence, row in zip(table.verdict, table.cells[1:], strict=True):
        found = row.differences[METRIC]
        low, mean, high = (f"{100 * one:+.1f}" for one in (found.low, found.mean, found.high))
        assert f"{row.name} ({mean} points [{low}, {high}])" in sentence
        assert found.low < found.mean < found.high
