"""The figures of a model from its predictions: timing, slices, names of figures, what retrieval
cost.
"""

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from support.samples import TIME, WEATHER

from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Message, Prediction, Record
from agentlite.scoring.metrics.bfcl import category_of
from agentlite.scoring.metrics.general_talk import is_right
from agentlite.scoring.metrics.summarize import figures, retrieval_loss

OSLO = Call("get_weather", {"city": "Oslo"}, "call_0")


def record(number, meta=None, tools=(WEATHER, TIME), gold=None):
    messages = (Message("user", f"Is it wet? {number}"), Message("assistant", calls=(OSLO,)))
    return Record(messages=messages, tools=tools, meta=meta or {}, gold=gold or {})


def answered(one, turn=1, calls=(OSLO,), problem="", slices=None, **metrics):
    scored = {"tool_selection_accuracy": 1.0, "exact_call": 1.0, **metrics}
    return Prediction(one.id, turn, "", problem, calls, scored, slices or {})


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
    assert (found["k"], found["by"], found["steps"]) == (5, "bm25", 6)
    assert found["retrieved"].mean == pytest.approx(4 / 6)
    assert found["as_declared"].mean == pytest.approx(3 / 6)
    assert found["exact_call"].mean == pytest.approx(3 / 6)
    assert found["exact_call_lost_to_retrieval"].mean == pytest.approx(1 / 6)
    assert found["exact_call_lost_to_choosing"].mean == pytest.approx(2 / 6)
    assert found["tool_selection_accuracy"].mean == 1.0
    assert retrieval_loss(rows[6:], {one.id: one for one in records}, 0) == {}
    tools = [replace(row, metrics={**row.metrics, "tool_selection_accuracy": 0.0}) for row in rows]
    found = retrieval_loss([rows[0], *tools[1:5]], {one.id: one for one in records}, 0)
    assert found["tool_selection_accuracy"].mean == pytest.approx(1 / 5)
    assert found["tool_selection_accuracy_lost_to_retrieval"].mean == pytest.approx(1 / 5)
    assert found["tool_selection_accuracy_lost_to_choosing"].mean == pytest.approx(3 / 5)


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


def test_a_step_has_its_tools_only_if_all_are_on_offer_and_the_schemas_of_others_cost_nothing():
    two = Gold(tuple(GoldCall(one.name, {"city": ["Oslo"]}) for one in (WEATHER, TIME)))
    half = replace(retrieved(0, missing=["get_time"], tools=(WEATHER,)), gold={1: two})
    other = retrieved(1, other=["get_time"])
    rows = [answered(half, exact_call=0.0), answered(other)]
    found = retrieval_loss(rows, {one.id: one for one in (half, other)}, 0)
    assert (found["retrieved"].mean, found["as_declared"].mean) == (0.5, 0.5)
    assert found["exact_call_lost_to_retrieval"].mean == 0.5
    assert found["exact_call_lost_to_choosing"].mean == 0.0
