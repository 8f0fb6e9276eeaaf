"""The figures of a model from its predictions: timing, slices, names of figures, what retrieval
cost.
"""

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace
from support.samples import TIME, WEATHER

from agentlite.core.errors import UserError
from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Message, Prediction, Record, Step
from agentlite.scoring.metrics.bfcl import category_of
from agentlite.scoring.metrics.call_timing import Decision, timing
from agentlite.scoring.metrics.dialogs import Dialog, dialogs
from agentlite.scoring.metrics.forgetting import GeneralResults, forgetting, is_right
from agentlite.scoring.metrics.measure_predictions import figures
from agentlite.scoring.metrics.model_metrics import (
    GROUPS,
    JudgeMetrics,
    Metrics,
    means,
    read_metrics,
)
from agentlite.scoring.metrics.pass_hat_k import pass_hat, passes
from agentlite.scoring.metrics.retrieval_loss import in_words, retrieval_loss
from agentlite.scoring.metrics.summarize import compare, scores, summarize

OSLO = Call("get_weather", {"city": "Oslo"}, "call_0")


def record(number, meta=None, tools=(WEATHER, TIME), gold=None):
    messages = (Message("user", f"Is it wet? {number}"), Message("assistant", calls=(OSLO,)))
    return Record(messages=messages, tools=tools, meta=meta or {}, gold=gold or {})


def answered(one, turn=1, calls=(OSLO,), problem="", slices=None, **metrics):
    scored = {"expected": 1.0, "tool_selection_accuracy": 1.0, "exact_call": 1.0, **metrics}
    return Prediction(one.id, turn, "", problem, calls, scored, slices or {})


@pytest.mark.parametrize(
    ("expected", "called", "readable", "figures"),
    [
        (True, True, True, {"timing_precision": 1, "recall": 1, "f1": 1}),
        (True, False, True, {"recall": 0, "f1": 0}),
        (False, True, True, {"timing_precision": 0, "specificity": 0, "f1": 0}),
        (False, False, True, {"specificity": 1}),
        (False, False, False, {"specificity": 0}),
        (True, True, False, {"timing_precision": 1, "recall": 1, "f1": 1}),
    ],
)
def test_one_decision_counts_where_it_can_be_measured(expected, called, readable, figures):
    found = timing([Decision(expected, called, readable)] * 3, 0)
    names = ("timing_precision", "recall", "specificity", "f1", "balanced_accuracy")
    measured = {name: getattr(found, name) for name in names if getattr(found, name)}
    assert {name: figure.mean for name, figure in measured.items()} == figures
    assert {figure.count for figure in measured.values()} == {3}
    assert (found.count, found.unreadable) == (3, 0 if readable else 3)


def test_an_interval_leaves_out_the_draws_in_which_there_is_nothing_to_measure():
    found = timing([Decision(True, True, True)] + [Decision(False, False, True)] * 3, 0)
    assert (found.f1.low, found.f1.mean, found.f1.high) == (1.0, 1.0, 1.0)
    balanced = found.balanced_accuracy
    assert (balanced.low, balanced.mean, balanced.high, balanced.count) == (1.0, 1.0, 1.0, 4)


def test_a_summary_names_all_that_it_has_in_an_order_that_stays():
    slices = [
        dict.fromkeys(("tools", "source", "task", "protocol", "difficulty"), "1"),
        {"tools": "2-4"},
    ]
    problems = ["torn", "call is not JSON", "", "call not closed", "torn"]
    rows = [
        answered(record(n), slices=slices[n % 2], problem=problem, expected=float(n != 2))
        for n, problem in enumerate(problems)
    ]
    found = summarize(rows, [], 0)
    for first in range(2):  # whichever slices the first one has
        by = summarize(rows[first:], [], 0).by
        assert list(by) == ["difficulty", "protocol", "source", "task", "tools"]
    assert {value: part.prompts for value, part in found.by["tools"].items()} == {"1": 3, "2-4": 2}
    assert list(found.problems.items()) == [
        ("call is not JSON", 1),
        ("call not closed", 1),
        ("torn", 2),
    ]
    assert "expected" not in found.metrics and found.metrics["exact_call"].count == 5
    assert (found.timing.recall.count, found.timing.specificity.count) == (4, 1)
    # a call is one, also in a text that cannot be read
    assert (found.timing.recall.mean, found.timing.unreadable) == (1.0, 4)
    with pytest.raises(KeyError, match="expected"):
        summarize([replace(rows[0], metrics={"exact_call": 1.0})], [], 0)


def test_models_are_compared_on_steps_and_on_whole_dialogs():
    records = {one.id: one for one in map(record, range(8))}
    right = [answered(one, call_decision=1.0) for one in records.values()]
    wrong = [answered(one, exact_call=0.0, call_decision=1.0) for one in records.values()]
    found = compare(
        {
            name: scores(rows, dialogs(rows, records))
            for name, rows in (("a", wrong), ("b", right[:7]))
        },
        0,
    )
    rows = {row.metric: row for row in found.differences}
    assert (found.prompts, found.models) == (7, ["a", "b"])
    assert rows["exact_call"].mean == rows["end_to_end_success"].mean == 1.0
    assert rows["exact_call"].p == pytest.approx(2 / 2**7)
    assert rows["plan_partial"].mean == 0.0 and not rows["plan_partial"].beyond_noise
    assert {row.count for row in rows.values()} == {7} and "expected" not in rows


def test_a_metric_is_compared_where_both_have_it_and_the_seed_decides_the_draws():
    steps = [Step(f"r{n}", 1) for n in range(30)]
    first = {step: {"toolrl": n / 30, "exact_call": 1.0} for n, step in enumerate(steps)}
    second = {step: {"toolrl": n % 7 / 7} for n, step in enumerate(steps)}
    second[steps[0]] = {"exact_call": 0.0}
    first[steps[1]]["rouge_l"] = second[steps[2]]["rouge_l"] = 1.0  # at no step that both have
    found, again, other = (compare({"a": first, "b": second}, seed) for seed in (0, 0, 1))
    assert [(row.metric, row.count) for row in found.differences] == [
        ("exact_call", 1),
        ("toolrl", 29),
    ]
    assert found == again
    one, two = (compared.differences[1] for compared in (found, other))
    assert one.mean == two.mean and (one.low, one.high, one.p) != (two.low, two.high, two.p)


def test_a_slice_has_the_dialogs_that_are_in_it():
    rows = [answered(record(n), slices={"tools": "1"}) for n in range(2)]
    whole = [
        Dialog("a", {"plan_partial": 1.0}, {"tools": "1"}),
        Dialog("b", {"plan_partial": 0.0}, {"tools": "2-4"}),
    ]
    found = summarize(rows, whole, 0)
    (part,) = found.by["tools"].values()
    assert (part.dialogs["plan_partial"].mean, part.dialogs["plan_partial"].count) == (1.0, 1)
    assert found.dialogs["plan_partial"].mean == 0.5


def whole_metrics(**groups):
    one = record(0)
    return replace(figures([answered(one)], [], {one.id: one}, 0), **groups)


def test_a_gate_can_name_every_figure_and_no_count():
    summary = whole_metrics().metrics["exact_call"]
    found = means(
        whole_metrics(
            judge=JudgeMetrics(replace(summary, mean=4.5), None),
            passes={"pass^1": replace(summary, mean=0.5)},
            forgetting=forgetting(
                GeneralResults({"a": 1.0, "b": 2.0}, {"q": True}, {"z": True}),
                GeneralResults({"a": 1.5, "b": 2.5}, {"q": False}, {"z": False}),
                0,
            ),
        )
    )
    assert (found["judge_score"], found["judge_usable"], found["pass^1"]) == (4.5, None, 0.5)
    assert (found["forgetting"], found["questions_forgotten"]) == (0.5, 1.0)
    assert found["perplexity"] == pytest.approx(2.718281828459**2)
    assert (found["exact_call"], found["recall"], found["specificity"]) == (1.0, 1.0, None)
    assert found["name_f1"] == found["schema_validity"] == 1.0
    assert not {"count", "unreadable", "prompts"} & found.keys()
    assert {*GROUPS} <= {*Metrics.__struct_fields__}
    assert {name for group in ("judge", "timing") for name in GROUPS[group].names} <= {*found}


def test_a_file_of_another_version_is_named_with_what_to_do(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_bytes(msgspec.json.encode(whole_metrics()))
    assert read_metrics(path) == whole_metrics()
    path.write_text('{"prompts": 1}')
    with pytest.raises(UserError, match=r"is not a metrics\.json of this version") as refused:
        read_metrics(path)
    assert (
        refused.value.location == str(path)
        and refused.value.fix == "Run that eval again with --force."
    )


def test_a_call_is_repeated_only_if_it_was_made_before_its_step(dialog):
    records = {dialog.id: dialog}
    for turn, repeated in ((2, 0.0), (4, 1.0)):
        found = figures([answered(dialog, turn)], [], records, 0)
        assert found.tools["repeated_calls"].mean == repeated
    assert found.retrieval is UNSET and found.bfcl is UNSET
    # the call that the record has at the step itself is not one that the model was shown
    other = replace(dialog, gold={2: Gold((GoldCall("get_time", {}),))})
    found = figures([answered(other, 2)], [], {other.id: other}, 0)
    assert found.tools["repeated_calls"].mean == 0.0
    torn = figures([answered(dialog, 2, (), "torn"), answered(dialog, 4)], [], records, 0)
    assert {name: share.mean for name, share in torn.parse_problems.items()} == {"torn": 0.5}
    # a call is one, also in a text with a problem
    torn = figures([answered(dialog, 2, problem="torn")], [], records, 0)
    assert (torn.tools["name_recall"].mean, torn.tools["name_precision"].count) == (1.0, 1)


def test_the_seed_decides_every_interval_that_is_drawn():
    records = {one.id: one for one in map(record, range(40))}
    rows = [
        answered(one, calls=(OSLO,) * (n % 3), toolrl=n / 40, expected=float(n % 5 < 3))
        for n, one in enumerate(records.values())
    ]
    rows = [replace(row, slices={"tools": "2-4"}) for row in rows]

    def drawn(seed):
        found = figures(rows, [], records, seed)
        return {
            "step": found.metrics["toolrl"],
            "slice": found.by["tools"]["2-4"].metrics["toolrl"],
            "timing": found.timing.f1,
            "balanced": found.timing.balanced_accuracy,
            "tools": found.tools["name_f1"],
        }

    first, other = drawn(0), drawn(1)
    assert all(first[name].mean == other[name].mean for name in first)
    assert [name for name in first if first[name] == other[name]] == []


# --- what retrieval cost ---


def retrieved(number, missing=(), other=(), tools=(WEATHER, TIME)):
    meta = {"k": 5, "by": "bm25", "missing": [*missing], "other_schema": [*other]}
    return record(number, {"retrieved": meta}, tools)


def test_what_a_step_lost_is_retrievals_where_its_tool_is_not_on_offer_and_else_the_choices():
    lost, redeclared = ["get_weather"], ["get_weather"]
    records = [
        retrieved(0),
        retrieved(1),
        retrieved(2, other=redeclared),
        retrieved(3, missing=lost, tools=(TIME,)),
        retrieved(4, missing=lost),  # added by prep: on offer all the same
        retrieved(5, missing=["get_time"]),
        record(6),
        record(7, {"retrieved": {"k": 5, "by": "bm25"}}, gold={1: Gold((GoldCall(ANY_TOOL, {}),))}),
    ]
    exact = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    rows = [answered(one, exact_call=right) for one, right in zip(records, exact, strict=True)]
    found = retrieval_loss(rows, {one.id: one for one in records}, 0)
    assert (found.k, found.by, found.steps) == (5, "bm25", 6)
    assert found.retrieved.mean == pytest.approx(4 / 6)
    assert found.as_declared.mean == pytest.approx(3 / 6)
    assert found.exact_call.mean == pytest.approx(3 / 6)
    assert found.exact_call_lost_to_retrieval.mean == pytest.approx(1 / 6)
    assert found.exact_call_lost_to_choosing.mean == pytest.approx(2 / 6)
    assert found.tool_selection_accuracy.mean == 1.0
    assert in_words(found) == (
        "of 6 steps with an expected call, 66.7 % had their tools among the 5 retrieved (bm25); "
        "right tool 100.0 %: 0.0 % lost to retrieval, 0.0 % to choosing"
    )
    assert retrieval_loss(rows[6:], {one.id: one for one in records}, 0) is None
    tools = [replace(row, metrics={**row.metrics, "tool_selection_accuracy": 0.0}) for row in rows]
    found = retrieval_loss([rows[0], *tools[1:5]], {one.id: one for one in records}, 0)
    assert in_words(found).endswith(
        "60.0 % had their tools among the 5 retrieved (bm25); right tool 20.0 %: 20.0 % lost to "
        "retrieval, 60.0 % to choosing"
    )


def test_a_step_has_its_tools_only_if_all_are_on_offer_and_the_schemas_of_others_cost_nothing():
    two = Gold(tuple(GoldCall(one.name, {"city": ["Oslo"]}) for one in (WEATHER, TIME)))
    half = replace(retrieved(0, missing=["get_time"], tools=(WEATHER,)), gold={1: two})
    other = retrieved(1, other=["get_time"])
    rows = [answered(half, exact_call=0.0), answered(other)]
    found = retrieval_loss(rows, {one.id: one for one in (half, other)}, 0)
    assert (found.retrieved.mean, found.as_declared.mean) == (0.5, 0.5)
    assert found.exact_call_lost_to_retrieval.mean == 0.5
    assert found.exact_call_lost_to_choosing.mean == 0.0


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("It is Oslo.", True),
        ("OSLO", True),
        ("Oslofjord", False),
        ("the ｏｓｌｏ", True),
        ("new\nyork city", True),
        ("newyork", False),
        ("", False),
    ],
)
def test_an_answer_is_right_if_it_holds_an_accepted_one_as_whole_words(text, right):
    assert is_right(text, ["Oslo", "New York"]) is right


def of_bfcl(number, category):
    return record(number, {"category": category, "bfcl_id": f"{category}_{number}"})


def test_the_figures_of_bfcl_are_those_of_its_own_records_alone():
    own = [of_bfcl(0, "simple_python"), of_bfcl(1, "simple_python"), of_bfcl(2, "irrelevance")]
    made = replace(of_bfcl(3, "multiple"), parent=own[0].id)
    joined = record(4, {"category": "multiple", "bfcl_id": "m", "joined": 2})
    assert [category_of(one) for one in (*own, made, joined, record(5))] == [
        "simple_python",
        "simple_python",
        "irrelevance",
        "",
        "",
        "",
    ]
    rows = [answered(one, bfcl=right) for one, right in zip(own, (1.0, 0.0, 1.0), strict=True)]
    found = figures([*rows[::-1], answered(made)], [], {one.id: one for one in (*own, made)}, 0)
    assert (found.bfcl["bfcl_non_live"].mean, found.bfcl["bfcl_irrelevance"].mean) == (0.5, 1.0)
    assert found.bfcl["bfcl_overall"].mean == pytest.approx((10 * 0.5 + 10 * 1.0) / 20)
    assert found.bfcl["bfcl_overall"].count == 3
    assert (found.bfcl["bfcl_non_live"].count, found.bfcl["bfcl_irrelevance"].count) == (2, 1)
    assert found.bfcl["bfcl_agentic"] is None
    for given in (rows, rows[::-1]):
        again = figures(given, [], {one.id: one for one in own}, 0)
        assert list(again.bfcl)[-2:] == ["irrelevance", "simple_python"]
    assert (found.bfcl["simple_python"].mean, found.bfcl["simple_python"].count) == (0.5, 2)
    assert found.bfcl_is == "BFCL-style subset" and "multiple" in found.bfcl_not_measured
    assert "simple_python" not in found.bfcl_not_measured


def test_passes_go_up_to_the_fewest_samples_of_a_step():
    found = passes({Step("a", 1): [True, True, False], Step("b", 1): [True, False]}, 0)
    assert {name: figure.mean for name, figure in found.items()} == {
        "pass^1": pytest.approx((2 / 3 + 1 / 2) / 2),
        "pass^2": pytest.approx((1 / 3 + 0) / 2),
    }
    assert passes({}, 0) == {} == passes({Step("a", 1): []}, 0)
    with pytest.raises(ValueError, match="3 of 2"):
        pass_hat(2, 2, 3)
