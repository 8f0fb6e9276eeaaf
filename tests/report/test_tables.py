"""How figures are written in both reports: numbers, columns and rows, words for a gain."""

import pytest

from agentlite.report import retrieval_tables, tables
from agentlite.report.markdown import _titled, as_table
from agentlite.report.read_run import Evaluation
from agentlite.report.tables import Figures


def figure(mean, low=None, high=None, **more):
    ends = {} if low is None else {"low": low, "high": high}
    return {"mean": mean, **ends, **more}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not measured"),
        ("-", "-"),
        (7, "7"),
        (True, "true"),
        (0.123456, "0.1235"),
        (figure(0.625, 0.5312, 0.71, count=104), "62.5 % [53.1, 71.0] n=104"),
        (figure(0.0, 0.0, 1.0, count=1), "0.0 % [0.0, 100.0] n=1"),
        (figure(1.0), "100.0 %"),
        (figure(0.5, count=3), "50.0 % n=3"),
        (figure(12.3456, 11.0, 13.0, count=40), "12.35 [11, 13] n=40"),
        (figure(0.9, 0.5, 1.2, count=4), "0.9 [0.5, 1.2] n=4"),  # no share: it goes beyond 1
        (figure(0.1, -0.2, 0.4, count=4), "0.1 [-0.2, 0.4] n=4"),
    ],
)
def test_a_figure_is_a_percentage_only_where_all_of_it_lies_between_0_and_1(value, text):
    assert tables.share(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0123456789abcdef", "0123456789ab"),
        ("0123456789abcde", "0123456789abcde"),
        ("0123456789abcdefg", "0123456789abcdefg"),
        ("Oslo", "Oslo"),
        (1234.56789, "1235"),
        (1e-05, "1e-05"),
        (400, "400"),
        (["é"], '["é"]'),
    ],
)
def test_a_digest_is_cut_and_a_figure_has_four_digits(value, text):
    assert tables.short(value) == text


def test_a_listing_leaves_out_what_is_empty_and_what_has_a_table():
    values = {
        "lineage": ["base", "sft"],
        "seed": 0,
        "model": "",
        "out": None,
        "ranking": {"all": 1},
        "differences": [],
        "latency_ms": {},
    }
    assert tables.listed(values) == "lineage base -> sft, seed 0"


def row(mean=0.1, low=-0.02, high=0.22, beyond=False, metric="exact_call", **more):
    values = {"mean": mean, "low": low, "high": high, "beyond_noise": beyond, "metric": metric}
    return {**values, "first": "base", "second": "sft", "count": 40, **more}


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (row(), "+10.0 points [-2.0, +22.0], within noise: 40 prompts cannot tell them apart."),
        (
            row(-0.5, -0.6, -0.4, True, p=0.0001, p_holm=0.00123),
            "-50.0 points [-60.0, -40.0], beyond noise, on 40 prompts (p = 0.0012).",
        ),
        (
            row(-0.5, -0.6, -0.4, True, p=0.0001, p_holm=0.00099),
            "-50.0 points [-60.0, -40.0], beyond noise, on 40 prompts (p < 0.001).",
        ),
        (
            row(beyond=True),
            "+10.0 points [-2.0, +22.0], beyond noise, on 40 prompts.",
        ),
    ],
)
def test_a_difference_is_put_in_words(difference, words):
    assert tables.in_words(difference) == f"exact_call: sft over base {words}"


def test_a_difference_of_whole_dialogs_counts_dialogs():
    assert tables.verdict(row(beyond=True, metric="end_to_end_success")) == (
        "beyond noise, on 40 dialogs"
    )


def test_differences_of_the_main_figures_come_first_in_the_order_of_their_columns(tmp_path):
    names = ["env", "call_decision", "exact_call", "a", "tool_selection_accuracy"]
    compared = {"differences": [row(metric=name) for name in names]}
    found = tables.differences(Evaluation(tmp_path, {}, [], compared))
    main = ["tool_selection_accuracy", "exact_call", "call_decision"]
    assert [one["metric"] for one in found] == [*main, "env", "a"]


def metrics(**by):
    return {"metrics": {"rouge": 1, "call_decision": 2, "exact_call": 3}, "by": by}


def test_columns_have_the_order_of_the_metrics_and_others_follow_by_name():
    other = {"metrics": {"a": 1, "tool_selection_accuracy": 2}}
    found = tables.models({"b": metrics(), "a": other})
    known = ["tool_selection_accuracy", "exact_call", "call_decision"]
    assert sorted(found.names[:3]) == sorted(known) and found.names[3:] == ["a", "rouge"]
    by_name = [dict(zip(found.names, figures, strict=True)) for _, figures in found.rows]
    assert by_name[0] == {**metrics()["metrics"], "tool_selection_accuracy": "-", "a": "-"}
    assert [labels for labels, _ in found.rows] == [["b"], ["a"]]  # as they were compared


def slice_of(*values):
    return {value: {"metrics": {"exact_call": value}} for value in values}


def test_slices_of_one_value_are_left_out_but_for_the_number_of_tools():
    first = metrics(tools=slice_of("1"), source=slice_of("x"), zeta=slice_of("b", "a"))
    second = metrics(protocol=slice_of("hermes"), task=slice_of("c", "d"))
    third = metrics(protocol=slice_of("react"), source=slice_of("x"))
    found = tables.slices({"m": first, "n": second, "o": third})
    assert [table.title for table in found] == [
        "By number of tools to choose from",
        "By task",
        "By protocol",
        "By zeta",
    ]
    assert [labels for labels, _ in found[-1].rows] == [["a", "m"], ["b", "m"]]
    assert [labels for labels, _ in found[2].rows] == [["hermes", "n"], ["react", "o"]]
    assert found[2].cells[1] == ["hermes", "n", "hermes"]
    assert found[0].labels == ["tools", "model"]


def test_groups_have_their_own_order_and_names_of_one_level():
    values = {
        "prompts": 3,
        "problems": {"x": 1},
        "of_mine": {"a_b": {"c": figure(0.5), "count": 3}, "count": 9},
        "timing": {"recall": figure(0.5), "unreadable": 2, "count": 3},
        "passes": {"pass^1": figure(0.5), "pass^2": figure(0.25)},
        "dialogs_are": "teacher-forced",
        "of_nothing": {},
        "wrong_answers": {"no_call": 1},  # and what follows has tables or words of its own
        "learned_before": {"records": 1},
        "by": {"task": {}},
        "metrics": {"exact_call": figure(0.5)},
    }
    found = tables.groups({"m": values, "n": {"passes": None}})
    assert [table.title for table in found] == [
        "Call or no call",
        "All of k samples right",
        "Of mine",
    ]
    timing, passes, mine = found
    assert timing.names == [
        "timing_precision",
        "recall",
        "f1",
        "balanced_accuracy",
        "specificity",
        "unreadable",
    ]
    assert timing.rows[0] == (["m"], ["-", figure(0.5), "-", "-", "-", 2])
    assert passes.rows[1] == (["n"], ["-", "-"]) and passes.names == ["pass^1", "pass^2"]
    assert mine.names == ["a b c", "a b count"]


def test_problems_are_counted_by_model_and_0_where_there_were_none():
    found = tables.problems({"m": {"problems": {"b": 2}}, "n": {"problems": {"a": 1}}, "o": {}})
    assert found.cells == [
        ["problem", "m", "n", "o"],
        ["a", "0", "1", "0"],
        ["b", "2", "0", "0"],
    ]


def test_wrong_answers_are_counted_by_kind_in_the_one_order_of_kinds():
    m = {"prompts": 9, "wrong_answers": {"other_text": 2, "no_call": 1}}
    n = {"prompts": 9, "wrong_answers": {}}
    found = tables.wrong_answers({"m": m, "n": n, "old": {"prompts": 8}})
    assert found and found.cells == [
        ["kind", "m", "n", "old"],
        ["no call where one is wanted", "1", "0", "-"],
        ["another text", "2", "0", "-"],
        ["all wrong answers", "3", "0", "-"],
        ["all answers", "9", "9", "8"],
    ]
    assert tables.wrong_answers({"old": {"prompts": 8}}) is None
    right = tables.wrong_answers({"n": n})
    assert right and right.cells == [
        ["kind", "n"],
        ["all wrong answers", "0"],
        ["all answers", "9"],
    ]


def test_a_wide_table_is_turned_and_a_cell_stays_a_cell():
    table = Figures("t", ["model", "of"], ["a", "b"], [(["m", "x"], [1, 2]), (["n", "y"], [3, 4])])
    assert table.turned.cells == [["", "m x", "n y"], ["a", "1", "3"], ["b", "2", "4"]]
    assert as_table([["a|b", "c"], ["<x>\ny", "\\"]]) == (
        "| a\\|b | c |\n| --- | --- |\n| &lt;x> y | \\\\ |"
    )


def ranked(recall, count=40):
    names = ("recall@1", "recall@5", "comp@5", "ndcg@5", "mrr", "map")
    return {name: figure(recall + n / 100, count=count) for n, name in enumerate(names)}


RANKING = {
    "names": 500,
    "ranking": {
        "all": {
            "100": {"bm25": ranked(0.5), "tuned": ranked(0.7)},
            "500": {"bm25": ranked(0.3), "tuned": ranked(0.6)},
        },
        "new tools": {"500": {"bm25": ranked(0.1, 7), "tuned": ranked(0.2, 7)}},
        "tool_retrieval": {"500": {"bm25": ranked(0.3), "tuned": ranked(0.6)}},
    },
    "differences": [
        {
            **row(0.3, 0.2, 0.4, beyond, "ndcg@5"),
            "view": view,
            "tools": tools,
            "first": first,
            "second": "tuned",
        }
        for view, tools, first, beyond in [
            ("all", 100, "bm25", True),
            ("all", 500, "untrained", False),
            ("all", 500, "tfidf", True),
            ("new tools", 500, "bm25", True),
        ]
    ],
    "latency_ms": {"bm25": 0.12345, "tuned": 12.345},
}


def test_a_retriever_has_recall_at_every_size_and_the_others_at_the_largest():
    whole, new = retrieval_tables.tables(RANKING)
    assert whole.title == "All questions, Task tool_retrieval"
    assert new.title == "Questions whose tools were never right in training"
    assert whole.names == [
        "recall@5 of 100",
        "recall@5 of 500",
        "comp@5 of 500",
        "ndcg@5 of 500",
        "mrr of 500",
        "map of 500",
    ]
    (labels, figures), _ = whole.rows
    assert labels == ["bm25"]
    assert [one["mean"] for one in figures] == pytest.approx([0.51, 0.31, 0.32, 0.33, 0.34, 0.35])
    assert [labels for labels, _ in whole.rows] == [["bm25"], ["tuned"]]


def test_a_retrievers_gains_are_those_over_the_baselines_on_all_questions():
    found = retrieval_tables.differences(RANKING)
    assert [retrieval_tables.in_words(one) for one in found] == [
        "ndcg@5 of 100: tuned +30.0 [+20.0, +40.0] over bm25",
        "ndcg@5 of 500: tuned +30.0 [+20.0, +40.0] over untrained, within noise",
    ]
    assert retrieval_tables.milliseconds(RANKING) == "ms a question: bm25 0.123, tuned 12.3"
    assert retrieval_tables.best_in_words(RANKING) == "recall@5 61.0 % of 500 tools"
    assert retrieval_tables.best_in_words({"names": 500}) == "500 tools"


@pytest.mark.parametrize(("count", "turned"), [(8, False), (9, True)])
def test_a_table_of_more_than_eight_figures_is_turned(count, turned):
    names = [f"n{n}" for n in range(count)]
    _, text = _titled(Figures("t", ["model"], names, [(["m"], list(range(count)))]))
    assert text.startswith("|  | m |" if turned else "| model | n0 |")


def test_a_bar_after_a_backslash_does_not_end_a_cell():
    assert as_table([["\\|"]]).splitlines()[0] == "| \\\\\\| |"


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


def test_values_of_a_slice_are_in_the_order_of_their_numbers():
    part = {"metrics": {"env": {"mean": 0.5, "count": 1}}}
    metrics = {"m": {"by": {"user_turn": dict.fromkeys(["10", "2", "1", "x"], part)}}}
    [table] = tables.slices(metrics)
    assert [labels[0] for labels, _ in table.rows] == ["1", "2", "10", "x"]
