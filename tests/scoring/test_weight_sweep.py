"""From where two components count as the same, and what a comparison says of them."""

import msgspec
import pytest

from agentlite.core.records import GOLD, Candidate, Score
from agentlite.scoring.preference_pairs import (
    PairRule,
    build_pairs,
    group,
)
from agentlite.scoring.weight_sweep import report_components


def grouped(*steps):
    candidates = [
        Candidate(f"r{n}", 2, "hermes", model, sample, text, "turn", 5)
        for n, step in enumerate(steps)
        for sample, (text, _, model) in enumerate(step)
    ]
    components = [one for step in steps for _, one, _ in step]
    scores = {
        one.key: Score(*one.key, {"missed_call": 0.0, "wrong_tool": 0.0, **of_one})
        for one, of_one in zip(candidates, components, strict=True)
    }
    return group(candidates, scores, PairRule())


def said(text, model="sft", **components):
    return text, {"exact": 0.0, **components}, model


@pytest.mark.parametrize(("other", "together"), [(3.0, True), (2.05, True), (2.0, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_components_move_together_from_a_correlation_of_95_percent(other, together, sign):
    """Over 0, 1, 2, 3 against 0, 1, 2, x: r is 1 for 3, .951 for 2.05 and .944 for 2."""
    values = zip((0, 1, 2, 3), (0, 1, 2, other), strict=True)
    step = [said(f"t{one}", one=float(one), two=sign * float(two)) for one, two in values]
    report = report_components(grouped(step), {"one": 1.0, "two": 1.0}, {})
    assert [pair.components for pair in report.together] == ([("one", "two")] if together else [])
    assert all(pair.r * sign > 0 for pair in report.together)


def test_a_component_is_described_by_its_spread_over_the_sample_alone():
    steps = [
        [said("a", exact=1.0), said("b"), said("gold", GOLD, exact=1.0)],
        [said("c", exact=0.5)],  # alone: it cannot differ
        [said("d", exact=0.5), said("e", exact=0.5)],
    ]
    report = report_components(grouped(*steps), {"exact": 0.5}, {})
    assert (report.steps, report.candidates) == (3, 5)
    assert msgspec.structs.asdict(report.components["exact"]) == {
        "weight": 0.5,
        "mean": 0.5,
        "std": pytest.approx((0.5 / 4) ** 0.5),
        "differs": 0.5,
    }
    assert report.components["wrong_tool"].weight == 0.0
    assert report.constant == ["missed_call", "wrong_tool"]
    (line,) = report_components(grouped([said("a", exact=1.0)]), {"exact": 1.0}, {}).constant[:1]
    assert line == "missed_call"


def test_a_pair_names_both_sides_with_their_totals():
    groups = grouped([said("a", exact=0.25), said("b", exact=1.0, wrong_tool=1.0)])
    [[pair], _] = build_pairs(groups, {"exact": 1.0, "wrong_tool": -0.25}, PairRule())
    assert (pair.record_id, pair.turn, pair.protocol) == ("r0", 2, "hermes")
    chosen, rejected = pair.chosen, pair.rejected
    assert (chosen.text, chosen.ended, chosen.model, chosen.sample) == ("b", "turn", "sft", 1)
    assert (chosen.total, rejected.total, pair.margin) == (0.75, 0.25, 0.5)
