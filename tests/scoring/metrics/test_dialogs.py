"""The metrics of whole dialogs: which dialogs count, and what the order of calls changes."""

import pytest
from msgspec.structs import replace
from support.samples import TIME, WEATHER

from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Message, Prediction, Record
from agentlite.scoring.metrics.dialogs import METRICS, DialogCalls, dialogs


def said(record, turn, *names, right=1.0):
    calls = tuple(Call(name, {"city": "Oslo"}) for name in names)
    return Prediction(record.id, turn, "", "", calls, {"call_decision": right}, {"turn": str(turn)})


def test_a_dialog_counts_once_all_of_its_steps_are_there_in_whatever_order(dialog):
    rows = [said(dialog, 2, "get_weather"), said(dialog, 4), said(dialog, 6)]
    (found,) = dialogs(rows, {dialog.id: dialog})
    assert found.metrics == dict.fromkeys(METRICS, 1.0) and found.slices == {"turn": "2"}
    assert dialogs(rows[::-1], {dialog.id: dialog}) == [found]
    for left in range(3):
        assert dialogs(rows[:left] + rows[left + 1 :], {dialog.id: dialog}) == []


def test_a_turn_that_is_not_asked_is_no_step_of_a_dialog(dialog):
    messages = [*dialog.messages[:4], replace(dialog.messages[4], loss=False), *dialog.messages[5:]]
    record = replace(dialog, messages=tuple(messages))
    assert record.prompted_turns == [2, 6]
    rows = [said(record, 2, "get_weather"), said(record, 6)]
    assert [one.record_id for one in dialogs(rows, {record.id: record})] == [record.id]


@pytest.mark.parametrize(
    ("expected", "called", "figures"),
    [
        # plan_success_rate, plan_partial, step_efficiency
        ([["a", "b"]], [["b", "a"]], (1, 1, 1)),  # calls of one step have no order
        ([["a"], ["b"]], [["b"], ["a"]], (0, 0, 1)),
        ([["a"], ["b"]], [["a"], ["c"]], (0, 1 / 2, 0)),
        ([["a"], ["b"]], [["a", "b"], []], (0, 1, 1)),
        ([["a"], ["b"]], [["a", "c"], ["b"]], (0, 1 / 2, 2 / 3)),
        ([["a"], ["b"]], [["a"], ["b", "c"]], (0, 1, 2 / 3)),
        ([["a"], ["b"]], [["a"], []], (0, 1 / 2, 0)),
        ([["a", "a"]], [["a"]], (0, 1 / 2, 0)),
        ([["a"], []], [[], []], (0, 0, 0)),
    ],
)
def test_a_plan_is_compared_step_by_step_and_call_by_call(expected, called, figures):
    taken = DialogCalls(expected, called, [True])
    names = ("plan_success_rate", "plan_partial", "step_efficiency")
    assert tuple(METRICS[name](taken) for name in names) == pytest.approx(figures)


@pytest.mark.parametrize(("right", "success"), [([1, 1], 1), ([1, 0], 0), ([0, 1], 0)])
def test_a_dialog_is_right_if_every_step_is(right, success):
    assert (
        METRICS["end_to_end_success"](DialogCalls([[]], [[]], [bool(n) for n in right])) == success
    )


@pytest.mark.parametrize("gold", [{}, {1: Gold((GoldCall(ANY_TOOL, {}),))}])
def test_a_dialog_without_a_named_call_has_no_plan(gold):
    record = Record(
        messages=(Message("user", "Hm."), Message("assistant", "Yes.")),
        tools=(WEATHER, TIME),
        gold=gold,
    )
    (found,) = dialogs([said(record, 1, right=0.0)], {record.id: record})
    assert found.metrics == {"end_to_end_success": 0.0}
