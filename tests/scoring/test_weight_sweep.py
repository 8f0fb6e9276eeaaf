"""From where two components count as the same, and what a comparison says of them."""

import msgspec
import pytest

from agentlite.core.records import GOLD, Candidate, Score
from agentlite.scoring.preference_pairs import (
    PairRule,
    build_pairs,
    group,
    read_pairs,
    write_pairs,
)
from agentlite.scoring.weight_sweep import compare_weightings, report_components, sentences


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
    return group(candidates, scores)


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


def test_a_step_in_which_only_one_component_differs_counts_for_both():
    """One differs in the second step alone, and the other hardly in the first: r is .995."""
    steps = [
        [said("a", one=0.0, two=0.0), said("b", one=0.0, two=0.1)],
        [said("a", one=0.0, two=0.0), said("b", one=1.0, two=1.0)],
    ]
    for made in (steps, steps[::-1]):
        (pair,) = report_components(grouped(*made), {"one": 1.0, "two": 1.0}, {}).together
        assert pair.r == pytest.approx(0.5 / (0.5 * 0.505) ** 0.5)


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


def test_three_components_that_are_the_same_are_named_in_one_sentence():
    step = [said("a", one=1.0, two=0.0, three=0.5), said("b", one=1.0, two=0.0, three=0.5)]
    weights = {"one": 1.0, "two": 1.0, "three": 1.0}
    assert sentences(report_components(grouped(step), weights, {})) == [
        "one, two and three are the same for every candidate: their weights decide nothing."
    ]
    assert sentences(report_components(grouped(step), {"one": 1.0}, {})) == [
        "one is the same for every candidate: its weight decides nothing."
    ]


def test_a_report_is_at_most_three_sentences_whatever_it_says():
    """Two sets that move together, one component constant everywhere, one within each step, and
    calls both where they are expected and where they are not."""
    names = ("a", "b", "c", "d", "fixed", "level")
    steps = []
    for number in range(20):
        first, second = number % 3 / 4, number % 5 / 8
        same = {"fixed": 0.5, "level": number / 20}
        one = {"a": first, "b": first, "c": second, "d": second, **same}
        other = {"a": 1 - first, "b": 1 - first, "c": 1 - second * 2, "d": 1 - second * 2, **same}
        steps.append([said("x", **one), said("y", **other, missed_call=1.0)])
    groups = grouped(*steps)
    weights = dict.fromkeys(names, 1.0)
    expected = {step: number % 2 == 0 for number, step in enumerate(groups)}
    report = report_components(groups, weights, expected)
    moving, nothing, calling = sentences(report)
    assert "a and b move with or against each other" in moving and "so do c and d:" in moving
    assert nothing == (
        "fixed is the same for every candidate, and level is the same for all candidates of a "
        "step: their weights decide nothing."
    )
    assert calling.startswith("Where a call is expected, ") and "; where no call" in calling


@pytest.mark.parametrize(("difference", "pairs"), [(0.05, 1), (0.049, 0), (0.051, 1)])
def test_a_pair_needs_a_twentieth_unless_another_margin_is_given(difference, pairs):
    groups = grouped([said("a", exact=0.4 + difference), said("b", exact=0.4)])
    weights = {"exact": 1.0}
    assert len(build_pairs(groups, weights, PairRule()).pairs) == pairs
    assert len(build_pairs(groups, weights, PairRule(margin=0.0)).pairs) == 1
    (row,) = compare_weightings(groups, {"w": weights}, PairRule())
    assert row.no_pair["small margin"] == 1 - pairs
    assert row.weights == weights and row.mean_margin == pytest.approx(pairs * difference)


def test_a_pair_names_both_sides_with_their_totals():
    groups = grouped([said("a", exact=0.25), said("b", exact=1.0, wrong_tool=1.0)])
    (pair,) = build_pairs(groups, {"exact": 1.0, "wrong_tool": -0.25}, PairRule()).pairs
    assert (pair.record_id, pair.turn, pair.protocol) == ("r0", 2, "hermes")
    chosen, rejected = pair.chosen, pair.rejected
    assert (chosen.text, chosen.ended, chosen.model, chosen.sample) == ("b", "turn", "sft", 1)
    assert (chosen.total, rejected.total, pair.margin) == (0.75, 0.25, 0.5)


def test_pairs_are_written_whole(tmp_path, disk_calls):
    groups = grouped([said("a", exact=1.0), said("b")])
    pairs = build_pairs(groups, {"exact": 1.0}, PairRule()).pairs
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    assert "rename .pairs.jsonl.partial pairs.jsonl" in disk_calls
    assert list(read_pairs(tmp_path / "pairs.jsonl")) == pairs


def test_balance_goes_by_the_lengths_of_all_pairs_before():
    """Two steps lean by 5 each; of pairs of -5 and -10 the one that evens out both is taken."""
    forced = [said("123456", exact=1.0), said("1")]
    choice = [said("12", exact=1.0), said("1234567"), said("123456789012")]
    made = build_pairs(grouped(forced, forced, choice), {"exact": 1.0}, PairRule(balance=True))
    assert [len(pair.chosen.text) - len(pair.rejected.text) for pair in made.pairs] == [5, 5, -10]


def test_a_weighting_is_compared_with_the_first_one_step_by_step():
    """One step has the same pair under both, one has another chosen text, two have a pair only
    under the second, and one only under the first.
    """
    totals = {"same": (1, 0, 1, 0), "flipped": (1, 0, 0, 1), "lost": (1, 0, 0.5, 0.5)}
    steps = [*totals.values(), (0.5, 0.5, 1, 0), (0.5, 0.5, 0, 1)]
    groups = grouped(
        *([said("a", exact=a, other=c), said("b", exact=b, other=d)] for a, b, c, d in steps)
    )
    weightings = {"first": {"exact": 1.0}, "second": {"other": 1.0}, "again": {"exact": 0.5}}
    rows = compare_weightings(groups, weightings, PairRule())
    assert [
        (row.name, row.steps, row.pairs, row.flipped, row.gained, row.lost) for row in rows
    ] == [
        ("first", 5, 3, 0, 0, 0),
        ("second", 5, 4, 1, 2, 1),
        ("again", 5, 3, 0, 0, 0),
    ]
    assert [row.mean_margin for row in rows] == [1.0, 1.0, 0.5]
    assert (rows[1].chosen["other"], rows[1].rejected["other"]) == (1.0, 0.0)
    assert (rows[1].chosen["exact"], rows[1].rejected["exact"]) == (0.5, 0.5)
