"""An evaluation in a few sentences: counts, what is beyond noise, and nothing that was not
measured.
"""

import itertools
import random
import re

import pytest
from msgspec import to_builtins

from agentlite.core.records import Step
from agentlite.report.headline import headline
from agentlite.scoring.metrics.confidence import summary
from agentlite.scoring.metrics.summarize import compare

TOOL, EXACT = "tool_selection_accuracy", "exact_call"


def measured(tool, exact=None, count=16, name=TOOL):
    figures = {name: {"mean": tool / count, "count": count}}
    if exact is not None:
        figures[EXACT] = {"mean": exact / count, "count": count}
    return {"prompts": 30, "metrics": figures}


def difference(first, second, beyond, mean=0.8, count=16, metric=TOOL):
    row = {"first": first, "second": second, "metric": metric, "beyond_noise": beyond}
    return {**row, "mean": mean, "count": count}


def test_two_models_are_set_side_by_side_the_better_one_first():
    metrics = {"base": measured(1, 0), "sft": measured(14, 6)}
    assert headline(metrics, [difference("base", "sft", True)]) == [
        "sft picks the right tool for 14 of 16 questions that need one; base for 1.",
        "The difference is beyond noise.",
        "The whole call, with its arguments, is right for 6 (sft) and 0 (base).",
    ]
    equal = {"base": measured(7), "sft": measured(7)}
    assert headline(equal, [difference("base", "sft", False, 0.0)])[1:] == [
        "The difference is zero."
    ]


def test_without_a_question_that_needs_a_tool_the_decision_is_what_counts():
    decided = {"a": measured(5, count=6, name="call_decision")}
    decided["a"]["metrics"][TOOL] = {"mean": None, "count": 0}
    assert headline(decided, []) == ["a is right to call a tool, or not to, for 5 of 6 questions."]
    assert headline({"a": {"metrics": {}}}, []) == []


def test_of_many_models_the_others_are_compared_with_the_best_alone():
    metrics = {name: measured(right) for name, right in zip("abcde", (9, 16, 2, 3, 4), strict=True)}
    rows = [
        difference(*sorted(pair, key=lambda name: metrics[name]["metrics"][TOOL]["mean"]), True)
        for pair in itertools.combinations("abcde", 2)
    ]
    metrics["c"]["timing"] = {"specificity": {"mean": 0.25, "count": 8}}
    assert headline(metrics, rows)[1:] == [
        "b is better than a, c, d and e, beyond noise.",
        "Where no tool is needed, one is called, or the answer cannot be read, for 6 of 8 (c).",
    ]


def model_at(right, steps):
    """The metrics of a model that is right at so many of its steps, and its scores."""
    scores = {Step(str(step), 1): {TOOL: float(step in right)} for step in steps}
    figure = summary([scored[TOOL] for scored in scores.values()], 1)
    return {"metrics": {TOOL: to_builtins(figure)}}, scores


@pytest.mark.parametrize("count", [2, 3, 4])
def test_no_sentence_contradicts_the_sign_of_its_paired_row_whatever_steps_the_models_share(count):
    """Each model answers the first 40 to 120 steps, and some are better at the later ones."""
    draw, claims = random.Random(count), 0
    for _ in range(60):
        metrics, scores = {}, {}
        for name in "abcd"[:count]:
            steps, early, late = range(draw.choice((40, 80, 120))), draw.random(), draw.random()
            right = {step for step in steps if draw.random() < (early if step < 40 else late)}
            metrics[name], scores[name] = model_at(right, steps)
        rows = to_builtins(compare(scores, 1)["differences"])
        text = " ".join(headline(metrics, rows))
        first = text.split()[0]
        for row in rows:
            better, worse = (row["second"], row["first"])[:: 1 if row["mean"] > 0 else -1]
            said = re.findall(rf"{worse} is better than [^.]*\b{better}\b", text)
            assert not said, text
            if count == 2 and row["mean"]:
                assert first == better, text
            if row["beyond_noise"]:
                claims += 1
                assert re.search(rf"{better} is better than [^.]*\b{worse}\b", text) or count == 2
        differ = len({len(one) for one in scores.values()}) > 1
        assert ("on the 40 questions that all answered" in text) == (
            differ and min(map(len, scores.values())) == 40
        )
    assert claims > 20
