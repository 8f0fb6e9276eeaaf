"""An evaluation in a few sentences: counts, what is beyond noise, and nothing that was not
measured.
"""

import pytest

from agentlite.report.headline import headline

TOOL, EXACT = "tool_selection_accuracy", "exact_call"


def measured(tool, exact=None, count=16, name=TOOL):
    figures = {name: {"mean": tool / count, "count": count}}
    if exact is not None:
        figures[EXACT] = {"mean": exact / count, "count": count}
    return {"prompts": 30, "metrics": figures}


def difference(first, second, beyond, metric=TOOL):
    return {"first": first, "second": second, "metric": metric, "beyond_noise": beyond}


def test_two_models_are_set_side_by_side_the_better_one_first():
    metrics = {"base": measured(1, 0), "sft": measured(14, 6)}
    assert headline(metrics, [difference("base", "sft", True)]) == [
        "sft picks the right tool for 14 of 16 questions that need one; base for 1.",
        "The difference is beyond noise.",
        "The whole call, with its arguments, is right for 6 (sft) and 0 (base).",
    ]


def test_of_several_models_each_that_is_better_beyond_noise_is_named_and_each_doubt():
    metrics = {name: measured(right, 0, 40) for name, right in zip("abc", (0, 38, 35), strict=True)}
    rows = [
        difference("a", "b", True),
        difference("a", "c", True),
        difference("b", "c", False),
    ]
    assert headline(metrics, rows)[:-1] == [
        "b picks the right tool for 38 of 40 questions that need one; c for 35, a for 0.",
        "b is better than a, beyond noise.",
        "c is better than a, beyond noise.",
        "Too few questions to tell b and c apart.",
    ]


def test_without_a_question_that_needs_a_tool_the_decision_is_what_counts():
    decided = {"a": measured(5, count=6, name="call_decision")}
    decided["a"]["metrics"][TOOL] = {"mean": None, "count": 0}
    assert headline(decided, []) == ["a is right to call a tool, or not to, for 5 of 6 questions."]
    assert headline({"a": {"metrics": {}}}, []) == []


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([difference("base", "sft", False)], ["The difference is within noise: it may be chance."]),
        ([difference("base", "sft", True, metric=EXACT)], []),  # of another figure
        ([difference("base", "dpo", True)], []),  # with a model that is not asked for
        ([], []),
    ],
)
def test_only_the_paired_difference_of_that_figure_says_what_is_beyond_noise(rows, sentence):
    metrics = {"base": measured(3), "sft": measured(4)}
    first = "sft picks the right tool for 4 of 16 questions that need one; base for 3."
    assert headline(metrics, rows) == [first, *sentence]
