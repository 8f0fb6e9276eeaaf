"""One list of figures, each with its sentence, and the gates that know them."""

import pytest

from agentlite.core.errors import UserError
from agentlite.scoring.metrics import bfcl
from agentlite.scoring.metrics.figures import (
    DONE_SCORES,
    EXPLANATIONS,
    GROUPS,
    HEADLINE,
    NAMES,
    Metrics,
    failures,
    figure_name,
    parse_gate,
)

FIGURES = {name for _, figures in GROUPS.values() for name in figures}


def test_each_figure_has_a_sentence_or_is_a_category_of_bfcl():
    assert FIGURES - {*EXPLANATIONS} == {*bfcl.RULES}
    assert all(says.endswith(".") and "\n" not in says for says in EXPLANATIONS.values())


def test_groups_are_keys_of_metrics_json_and_gates_know_their_figures():
    assert {*GROUPS} <= {*Metrics.__struct_fields__}
    assert {*NAMES} >= FIGURES >= {*DONE_SCORES, *HEADLINE}


@pytest.mark.parametrize("name", ["exact_cal", "pass^", "pass^1a", "xpass^1", "pass", "Overall"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_figure_that_there_is_not_is_refused_wherever_it_stands(name, place):
    known = "exact_call>=0.5"
    text = f"{name}>=0.5,{known}" if place == "first" else f"{known},{name}>=0.5"
    for check, location in (
        (lambda: figure_name(name, "--metrics"), "--metrics"),
        (lambda: parse_gate(text), "--gate"),
    ):
        with pytest.raises(UserError, match="no figure is called") as refused:
            check()
        assert (refused.value.location, refused.value.exit_code) == (location, 2)


def test_the_names_of_seed_002_are_names_of_its_figures():
    printed = ["tool_accuracy", "plan_success", "efficiency", "timing_precision"]
    own = ["tool_selection_accuracy", "plan_success_rate", "step_efficiency", "timing_precision"]
    assert [figure_name(name, "--metrics") for name in printed] == own
    assert [condition.name for condition in parse_gate(">=0.5,".join([*printed, "f1>=0.5"]))] == [
        *own,
        "f1",
    ]
    assert {*own} <= {*NAMES}


def test_each_condition_is_judged_by_its_own_figure_and_one_not_measured_fails():
    conditions = parse_gate("exact_call>=0.5,rouge>=0.5,forgetting<=0.02", own_scores=True)
    assert failures(conditions, {"exact_call": 0.4, "rouge": None}) == [
        "exact_call>=0.5: it is 0.4",
        "rouge>=0.5: not measured",
        "forgetting<=0.02: not measured",
    ]
    assert failures(conditions, {"exact_call": 0.5, "rouge": 0.9, "forgetting": 0.0}) == []
