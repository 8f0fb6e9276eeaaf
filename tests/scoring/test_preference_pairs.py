"""Pairs keep their margin and never say the same; every step without one has a reason; a flip can
be seen.
"""

import json
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.unknown_arguments import RECORD

from agentlite.config.resolve import parse_weights
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, PreferencePair, Score, Side, Step
from agentlite.core.row_files import encode
from agentlite.rendering import Prompt
from agentlite.scoring.preference_pairs import (
    REASONS,
    PairRule,
    build_pairs,
    gold_candidates,
    group,
    read_candidates,
    read_pairs,
    read_rollouts,
    read_scores,
    write_pairs,
)
from agentlite.scoring.weight_sweep import (
    ComponentsReport,
    TotalsByDecision,
    WeightingRow,
    compare_weightings,
    read_grid,
    report_components,
    sentences,
)

WEIGHTS = {"exact": 0.5, "efficiency": 0.2, "wrong_tool": -0.3}


@dataclass
class Said:
    """A candidate in one line: its text and its components, those that are not named being 0."""

    text: str
    components: dict
    model: str = "sft"


def said(text, model="sft", **components):
    return Said(
        text,
        {"exact": 0.0, "efficiency": 0.0, "wrong_tool": 0.0, "missed_call": 0.0, **components},
        model,
    )


def grouped(*steps):
    """Steps r0, r1, ... with the candidates of each, numbered as they come."""
    candidates, scores = [], {}
    for index, step in enumerate(steps):
        for sample, one in enumerate(step):
            candidate = Candidate(f"r{index}", 2, "hermes", one.model, sample, one.text, "turn", 5)
            candidates.append(candidate)
            scores[candidate.key] = Score(*candidate.key, one.components)
    return group(candidates, scores)


def only_pair(step, weights=WEIGHTS, rule=PairRule()):  # noqa: B008  (a tuple)
    (pair,) = build_pairs(grouped(step), weights, rule).pairs
    return pair.chosen.text, pair.rejected.text


def reason(step, weights=WEIGHTS, rule=PairRule()):  # noqa: B008
    pairs, reasons = build_pairs(grouped(step), weights, rule)
    assert not pairs and set(reasons) == set(REASONS)
    return [name for name, count in reasons.items() if count]


texts = st.sampled_from(["", " ", "a", " a", "b", "a long answer", "c"])
shares = st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0])
sayings = st.builds(
    said,
    texts,
    model=st.sampled_from(["sft", "sft", GOLD]),
    exact=shares,
    efficiency=shares,
    wrong_tool=st.sampled_from([0.0, 1.0, 2.0]),
)
steps_of = st.lists(st.lists(sayings, max_size=5), max_size=6)
weights_of = st.fixed_dictionaries(
    {name: st.integers(-100, 100).map(lambda percent: percent / 100) for name in WEIGHTS}
)
rules = st.builds(
    PairRule, st.sampled_from([0.0, 0.05, 0.3]), st.booleans(), st.sampled_from(["never", "failed"])
)
unbalanced = rules.map(lambda rule: rule._replace(balance=False))


@given(steps_of, weights_of, rules)
def test_a_pair_never_says_the_same_twice_keeps_the_margin_and_chooses_somebody_who_speaks(
    steps, weights, rule
):
    for pair in build_pairs(grouped(*steps), weights, rule).pairs:
        assert pair.chosen.text.strip() and pair.chosen.text.strip() != pair.rejected.text.strip()
        assert round(pair.margin, 9) >= rule.margin and round(pair.margin, 9) > 0
        assert pair.rejected.model != GOLD


@pytest.mark.parametrize(
    ("margin", "difference", "enough"),
    [(0.3, 0.3, True), (0.3, 0.3 - 1e-9, False), (0.0, 1e-9, True), (0.0, 4e-10, False)],
)
def test_the_margin_itself_is_enough_and_a_billionth_less_is_not(margin, difference, enough):
    step = [said("a", exact=difference), said("b")]
    pairs, _ = build_pairs(grouped(step), {"exact": 1.0}, PairRule(margin, False, "never"))
    assert len(pairs) == enough


def test_of_equal_candidates_the_first_sample_is_taken_whichever_model_said_it():
    best = [said(text, model, exact=1.0) for text, model in (("x", "z"), ("y", "b"), ("w", "a"))]
    worst = [said(text, model) for text, model in (("p", "z"), ("q", "a"))]
    assert only_pair([*best, *worst]) == ("x", "p")


@given(steps_of, weights_of, rules)
def test_every_step_gives_a_pair_or_a_reason(steps, weights, rule):
    groups = grouped(*steps)
    pairs, reasons = build_pairs(groups, weights, rule)
    assert len(pairs) + sum(reasons.values()) == len(groups)


@given(steps_of, weights_of, rules)
def test_no_pair_is_missed_and_none_is_narrower_than_need_be(steps, weights, rule):
    groups = grouped(*steps)
    found = {
        pair.step: pair.margin
        for pair in build_pairs(groups, weights, rule._replace(balance=False)).pairs
    }
    balanced = {
        pair.step for pair in build_pairs(groups, weights, rule._replace(balance=True)).pairs
    }
    assert balanced == set(found)
    for step, scored in groups.items():
        margins = [
            round(
                sum(
                    weight * (one.components[name] - other.components[name])
                    for name, weight in weights.items()
                ),
                9,
            )
            for one in scored
            for other in scored
            if one.candidate.text.strip() not in ("", other.candidate.text.strip())
            and GOLD not in (one.candidate.model, other.candidate.model)
        ]
        if any(margin > 0 and margin >= rule.margin for margin in margins):
            assert rule.gold == "failed" or found[step] == pytest.approx(max(margins))
            assert step in found
        elif rule.gold == "never":
            assert step not in found


@given(steps_of, weights_of, unbalanced, st.randoms(use_true_random=False))
def test_the_order_of_candidates_and_steps_is_without_effect(steps, weights, rule, generator):
    groups = grouped(*steps)
    mixed = [(step, generator.sample(scored, len(scored))) for step, scored in groups.items()]
    generator.shuffle(mixed)
    pairs, reasons = build_pairs(groups, weights, rule)
    others, other_reasons = build_pairs(dict(mixed), weights, rule)
    assert reasons == other_reasons
    assert {pair.step: pair for pair in pairs} == {pair.step: pair for pair in others}


@given(steps_of, weights_of, rules)
def test_a_weighting_flips_nothing_against_itself(steps, weights, rule):
    first, again = compare_weightings(grouped(*steps), {"first": weights, "again": weights}, rule)
    assert msgspec.structs.replace(first, name="again") == again
    assert again.flipped == again.gained == again.lost == 0


@given(steps_of, weights_of, st.integers(1, 1000).map(lambda tenths: tenths / 10))
def test_weights_that_are_all_so_many_times_as_large_flip_nothing(steps, weights, times):
    larger = {name: weight * times for name, weight in weights.items()}
    *_, row = compare_weightings(
        grouped(*steps), {"first": weights, "larger": larger}, PairRule(margin=0)
    )
    assert row.flipped == row.gained == row.lost == 0


@given(steps_of, weights_of, rules)
def test_a_row_of_the_comparison_tells_of_the_pairs_that_would_be_built(steps, weights, rule):
    groups = grouped(*steps)
    pairs, reasons = build_pairs(groups, weights, rule)
    (row,) = compare_weightings(groups, {"only": weights}, rule)
    assert (row.pairs, row.no_pair, row.steps) == (len(pairs), reasons, len(groups))
    assert row.mean_margin == pytest.approx(sum(pair.margin for pair in pairs) / max(1, len(pairs)))
    for side in ("chosen", "rejected"):
        total = (
            sum(weight * getattr(row, side)[name] for name, weight in weights.items())
            if pairs
            else 0.0
        )
        assert total == pytest.approx(
            sum(getattr(pair, side).total for pair in pairs) / max(1, len(pairs)), abs=1e-8
        )


def test_the_best_stands_against_the_worst_and_the_first_of_equals_is_taken():
    step = [
        said("b", efficiency=0.5),
        said("a", exact=1),
        said("a too", exact=1),
        said("c"),
        said("c too"),
    ]
    assert only_pair(step) == ("a", "c")


def test_where_best_and_worst_say_the_same_the_next_one_that_differs_is_taken():
    step = [said("a", exact=1), said("b", efficiency=0.5), said(" a\n")]
    assert only_pair(step) == ("a", "b")


def test_an_empty_text_is_rejected_but_never_chosen():
    assert only_pair([said("a", exact=1), said("")]) == ("a", "")
    assert only_pair([said(" ", exact=1), said("a", efficiency=1), said("b")]) == ("a", "b")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ([said("a", exact=1)], "failed"),
        ([said("a", exact=1), said("b", model=GOLD)], "failed"),
        ([said("a"), said("a ", exact=1)], "same text"),
        ([said(""), said("")], "same text"),
        ([said("a"), said("b"), said("c", missed_call=1)], "same score"),
        ([said("a"), said("b", efficiency=0.2)], "small margin"),
        ([said("a", efficiency=0.4), said("b", efficiency=0.2), said("a")], "small margin"),
        ([said("a"), said("", exact=1)], "empty text"),
        ([said("a"), said("b", efficiency=0.2), said("", exact=1)], "empty text"),
    ],
)
def test_a_step_without_a_pair_has_its_reason(step, expected):
    assert reason(step) == [expected]


def test_the_order_of_a_sum_makes_no_difference():
    weights = {"exact": 0.1, "efficiency": 0.2, "wrong_tool": 0.3}
    assert 0.1 + 0.2 != 0.3
    step = [said("a", exact=1, efficiency=1), said("b", wrong_tool=1)]
    assert reason(step, weights, PairRule(margin=0)) == ["same score"]
    assert 0.35 - 0.3 < 0.05
    assert only_pair([said("a", exact=0.35), said("b", exact=0.3)], {"exact": 1.0}) == ("a", "b")
    assert only_pair(
        [said("a", exact=0.067), said("b")], {"exact": 1.0}, PairRule(margin=0.067)
    ) == (
        "a",
        "b",
    )


FAILING = [said("a", efficiency=0.5), said("b")]
RIGHT = said("gold", GOLD, exact=1, efficiency=1)
WITH_GOLD = PairRule(gold="failed")


def test_the_gold_is_chosen_against_the_worst_where_every_candidate_fails():
    assert only_pair([*FAILING, RIGHT], rule=WITH_GOLD) == ("gold", "b")
    assert only_pair([said("b"), RIGHT], rule=WITH_GOLD) == ("gold", "b")


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ([*FAILING, RIGHT], PairRule()),
        ([*FAILING, said("gold", GOLD, efficiency=0.1)], WITH_GOLD),
        ([*FAILING, said("", GOLD, exact=1)], WITH_GOLD),
    ],
    ids=["not asked for", "not better by the margin", "says nothing"],
)
def test_otherwise_the_gold_takes_no_part(step, rule):
    assert only_pair(step, rule=rule) == ("a", "b")


def test_the_gold_takes_no_part_where_a_candidate_is_right():
    assert only_pair([*FAILING, said("right", exact=1), RIGHT], rule=WITH_GOLD) == ("right", "b")
    assert reason([said("right", exact=1), said("right ", exact=1), RIGHT], rule=WITH_GOLD) == [
        "same text"
    ]


def test_balance_evens_out_the_lengths_of_all_pairs_so_far():
    step = [said("6 long", exact=1), said("3 l", exact=0.5), said("8 letter")]

    def leans(balance):
        pairs = build_pairs(grouped(*[step] * 5), WEIGHTS, PairRule(balance=balance)).pairs
        return [len(pair.chosen.text) - len(pair.rejected.text) for pair in pairs]

    assert leans(False) == [-2] * 5
    assert leans(True) == [-2, 3, -2, 3, -2]  # -2, 1, -1, 2 and 0 together


def test_of_pairs_that_balance_alike_the_wider_is_taken():
    step = [said("aaaa", exact=1), said("bbbb", exact=0.5), said("cccc")]
    assert only_pair(step, rule=PairRule(balance=True)) == ("aaaa", "cccc")


def test_candidates_that_failed_or_were_not_scored_are_left_out_and_their_step_stays():
    candidates = [
        Candidate("r", turn, "hermes", "sft", n, "a", "turn", 5)
        for turn in (2, 4)
        for n in range(3)
    ]
    scores = {one.key: Score(*one.key, {"exact": 1.0}) for one in candidates[:2]}
    scores[candidates[1].key] = Score(*candidates[1].key, {}, error="f raised ValueError")
    groups = group(candidates, scores)
    assert {step: [one.candidate for one in scored] for step, scored in groups.items()} == {
        Step("r", 2): [candidates[0]],
        Step("r", 4): [],
    }
    assert build_pairs(groups, {"exact": 1.0}, PairRule()).reasons["failed"] == 2


def test_candidates_scored_on_other_parts_are_refused_with_their_place():
    candidates = [Candidate("r", 2, "hermes", "sft", n, "a", "turn", 5) for n in range(2)]
    scores = {
        one.key: Score(*one.key, {name: 1.0})
        for one, name in zip(candidates, ("exact", "mine"), strict=True)
    }
    with pytest.raises(UserError, match=r"record r, turn 2, sft, sample 1: .*exact, mine"):
        group(candidates, scores)


def test_a_weight_for_a_part_that_nobody_scored_is_refused_unless_it_is_zero():
    with pytest.raises(UserError, match="no score for 'mine'"):
        build_pairs(grouped(FAILING), {**WEIGHTS, "mine": 1.0}, PairRule())
    assert only_pair(FAILING, {**WEIGHTS, "mine": 0.0}) == ("a", "b")


def test_a_pair_whose_chosen_text_stays_the_same_is_not_flipped():
    step = [said("a", exact=1, mine=0), said("a ", exact=0, mine=1), said("b", exact=0, mine=0)]
    rows = compare_weightings(
        grouped(step), {"exact": {"exact": 1.0}, "mine": {"mine": 1.0}}, PairRule()
    )
    assert [(row.pairs, row.flipped) for row in rows] == [(1, 0), (1, 0)]


def test_no_candidates_give_no_pairs_and_an_empty_report():
    assert build_pairs({}, WEIGHTS, PairRule()).pairs == []
    (row,) = compare_weightings({}, {"only": WEIGHTS}, PairRule())
    assert (row.steps, row.pairs, row.chosen) == (0, 0, {})
    assert sentences(report_components({}, WEIGHTS, {})) == []


# a right answer by a detour, and a quick one that is wrong
TWO_TASTES = [said("right", exact=1, efficiency=0.2), said("quick", exact=0, efficiency=1)]


def test_a_flip_a_gain_and_a_loss_are_counted_against_the_first():
    groups = grouped(
        TWO_TASTES,  # whom it flips
        [said("right", exact=1), said("wrong")],  # whom speed says nothing of
        [said("fast", efficiency=1), said("slow")],  # whom only speed can tell apart
        [said("same"), said("same")],
    )
    weightings = {
        "right": {"exact": 1.0},
        "quick": {"efficiency": 1.0},
        "both": {"exact": 1.0, "efficiency": 0.1},
    }
    right, quick, both = compare_weightings(groups, weightings, PairRule())

    def counts(row):
        return [
            getattr(row, name) for name in ("name", "steps", "pairs", "flipped", "gained", "lost")
        ]

    assert counts(right) == ["right", 4, 2, 0, 0, 0]
    assert counts(quick) == ["quick", 4, 2, 1, 1, 1]
    assert counts(both) == ["both", 4, 3, 0, 1, 0]
    assert right.chosen["exact"] == 1 and right.chosen["efficiency"] == pytest.approx(0.1)
    assert right.rejected["exact"] == 0 and right.rejected["efficiency"] == pytest.approx(0.5)
    assert quick.mean_margin == pytest.approx(0.9)
    assert quick.no_pair["same score"] == quick.no_pair["same text"] == 1


def test_another_rejected_side_alone_is_no_flip():
    step = [said("a", exact=1, efficiency=1), said("b", efficiency=0.5), said("c", exact=0.5)]
    first, second = compare_weightings(
        grouped(step), {"one": {"exact": 1.0}, "two": {"efficiency": 1.0}}, PairRule()
    )
    assert first.rejected != second.rejected
    assert second.flipped == 0


def test_the_report_knows_parts_that_never_differ_and_parts_that_move_together():
    groups = grouped(
        [
            said("a", exact=1, efficiency=0.5, wrong_tool=0),
            said("b", exact=0, efficiency=0.1, wrong_tool=1),
        ],
        [
            said("a", exact=1, efficiency=0.9, wrong_tool=0),
            said("b", exact=0, efficiency=0.5, wrong_tool=1),
        ],
        [said("a", missed_call=1), said("b", missed_call=1)],
        [said("gold", GOLD, exact=1, missed_call=5), said("a")],
    )
    report = report_components(groups, {**WEIGHTS, "missed_call": -0.3}, {})
    assert (report.steps, report.candidates) == (4, 7)
    assert report.constant == ["missed_call"]
    # efficiency moves with exact only within a step: over all candidates r is .82
    assert [(pair.components, round(pair.r, 6)) for pair in report.together] == [
        (("exact", "efficiency"), 1),
        (("exact", "wrong_tool"), -1),
        (("efficiency", "wrong_tool"), -1),
    ]
    assert msgspec.structs.asdict(report.components["exact"]) == {
        "weight": 0.5,
        "mean": pytest.approx(2 / 7),
        "std": pytest.approx((10 / 7 / 6) ** 0.5),
        "differs": 2 / 3,
    }
    assert not [one for one in sentences(report) if "move with" in one], "too few to say so"
    many = msgspec.structs.replace(report, candidates=30)
    assert sentences(many)[0] == (
        "exact, efficiency and wrong_tool move with or against each other (|r| >= 0.95 among 30 "
        "candidates): the weight of one of them is enough."
    )
    assert sum("move with" in one for one in sentences(many)) == 1
    assert (
        "missed_call is the same for all candidates of a step: its weight decides nothing."
        in sentences(report)
    )


def test_parts_that_are_the_same_everywhere_are_told_in_one_sentence_and_those_without_weight_not_at_all():  # noqa: E501  (verbatim text)
    report = report_components(grouped(FAILING), WEIGHTS, {})
    assert set(report.constant) == {"exact", "wrong_tool", "missed_call"}
    assert sentences(report) == [
        "exact and wrong_tool are the same for every candidate: their weights decide nothing."
    ]


def test_the_report_sets_calling_beside_abstaining_where_a_call_is_due_and_where_none_is():
    groups = grouped(
        [said("a", exact=1), said("b", missed_call=1), said("c", exact=0.5)],
        [said("d", exact=1), said("e", wrong_tool=1)],
        [said("not asked", exact=1)],
    )
    expected = {Step("r0", 2): True, Step("r1", 2): False}
    report = report_components(
        groups, {"exact": 1.0, "missed_call": -0.3, "wrong_tool": -0.5}, expected
    )
    assert msgspec.to_builtins(report.abstaining) == {
        "expected": {
            "calling": {"mean": 0.75, "count": 2},
            "abstaining": {"mean": -0.3, "count": 1},
        },
        "not_expected": {
            "calling": {"mean": -0.5, "count": 1},
            "abstaining": {"mean": 1.0, "count": 1},
        },
    }
    assert sentences(report)[-1] == (
        "Where a call is expected, calling earns 0.75 on average (n = 2) and abstaining -0.30 "
        "(n = 1); where no call is expected, abstaining earns 1.00 on average (n = 1) and calling "
        "-0.50 (n = 1)."
    )


def test_a_side_that_nobody_took_is_none_and_said_so():
    groups = grouped([said("a", exact=1), said("b", exact=0.5)])
    report = report_components(groups, {"exact": 1.0}, {Step("r0", 2): True})
    assert report.abstaining.expected.abstaining is None
    assert report.abstaining.not_expected == TotalsByDecision(None, None)
    assert (
        sentences(report)[-1]
        == "Where a call is expected, calling earns 0.75 on average (n = 2), and none abstained."
    )


def test_a_report_and_a_comparison_are_json():
    groups = grouped(TWO_TASTES, FAILING, [said("", missed_call=1)])
    report = report_components(groups, WEIGHTS, dict.fromkeys(groups, True))
    rows = compare_weightings(groups, {"only": WEIGHTS}, PairRule())
    assert msgspec.json.decode(msgspec.json.encode(report), type=ComponentsReport) == report
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[WeightingRow]) == rows


def grid_of(tmp_path, text, own=()):
    path = tmp_path / "grid.yaml"
    path.write_text(text, encoding="utf-8")
    return read_grid(path, own)


def test_a_grid_is_a_mapping_of_names_or_a_list_named_by_what_it_changes(tmp_path):
    named = grid_of(
        tmp_path,
        "plain: {}\nbrief: {efficiency: .5, wrong_tool: -.2}\nmine: {mine: 1e-1}",
        iter(["mine"]),
    )
    assert list(named) == ["plain", "brief", "mine"]
    assert named["brief"] == {**named["plain"], "efficiency": 0.5, "wrong_tool": -0.2}
    assert named["mine"] == {**named["plain"], "mine": 0.1}
    listed = grid_of(tmp_path, "- {}\n- tool_accuracy: 0.5\n- {tool_accuracy: 0.5, efficiency: 0}")
    assert list(listed) == ["defaults", "tool_accuracy=0.5", "tool_accuracy=0.5,efficiency=0"]
    assert listed["tool_accuracy=0.5,efficiency=0"]["efficiency"] == 0


ZERO = ", ".join(
    f"{name}: 0"
    for name in (
        "task_completion",
        "tool_accuracy",
        "efficiency",
        "timing_quality",
        "format_compliance",
        "wrong_tool",
        "redundant_call",
        "format_error",
        "timeout",
        "missed_call",
        "excess_text",
    )
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {}\nb: {efficency: 1}", r"grid\.yaml, b: .*efficency"),
        ("- {}\n- {efficency: 1}", r"grid\.yaml, efficency=1: "),
        (f"none: {{{ZERO}}}", r"grid\.yaml, none: "),
        ("a: {efficiency: lots}", r"grid\.yaml, a: efficiency is 'lots', which is not a number"),
        ("a: {efficiency: true}", r"grid\.yaml, a: efficiency is True, which is not a number"),
        ("a: {efficiency: }", r"grid\.yaml, a: efficiency is None, which is not a number"),
        ("a: {efficiency: .nan}", r"grid\.yaml, a: .*efficiency"),
        ("a: {efficiency: 1}\na: {efficiency: 2}", r"grid\.yaml, a: appears twice"),
        ("a: {efficiency: 1}\na: {}", r"grid\.yaml, a: appears twice"),
        ("- {efficiency: 1}\n- {efficiency: 1}", r"grid\.yaml, efficiency=1: appears twice"),
        ("a: [1, 2]", r"grid\.yaml, a: \[1, 2\] is not a mapping"),
        ("- 3", r"grid\.yaml: holds 3 in place of a weighting"),
        ("three", r"grid\.yaml: holds \"three\" in place of a weighting"),
        ("", r"grid\.yaml: holds no weighting"),
        ("a: {", r"grid\.yaml:1: invalid YAML"),
    ],
)
def test_a_mistake_in_a_grid_is_told_with_file_and_name(tmp_path, text, told):
    with pytest.raises(UserError, match=told) as error:
        grid_of(tmp_path, text)
    assert error.value.exit_code == 2


def test_a_grid_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UserError, match=r"none\.yaml: cannot read the grid"):
        read_grid(tmp_path / "none.yaml")


def test_weights_in_words_are_read_and_a_mistake_is_shown():
    assert parse_weights("tool_accuracy=.5, efficiency=0,wrong_tool=-.3", "") == {
        "tool_accuracy": 0.5,
        "efficiency": 0.0,
        "wrong_tool": -0.3,
    }
    for text, told in (
        ("efficiency=half", "'half' is not a number"),
        ("efficiency", "'efficiency' has no ="),
    ):
        with pytest.raises(UserError, match=told) as error:
            parse_weights(text, "--weights")
        assert (error.value.exit_code, error.value.location) == (2, "--weights")


ODD = ["", 'a "quote"\n', "中\u2028", "half a pair: \ud83d"]
CANDIDATES = [Candidate("r", 2, "hermes", "sft", n, text, "cut", 5) for n, text in enumerate(ODD)]
SCORES = [Score(*one.key, {"exact": 0.1}, "right") for one in CANDIDATES]


def test_rows_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "rows.jsonl"
    for read, rows in ((read_candidates, CANDIDATES), (read_scores, SCORES)):
        path.write_bytes(b"".join(encode(msgspec.structs.asdict(row)) for row in rows))
        assert list(read(path)) == rows
    sides = [Side(text, "turn", "sft", n, 0.1 * n) for n, text in enumerate(ODD)]
    pairs = [PreferencePair("r", 2, "hermes", side, sides[0]) for side in sides[1:]]
    write_pairs(path, pairs)
    assert list(read_pairs(path)) == pairs


def rollout(candidate, **score):
    return encode({**msgspec.structs.asdict(candidate), "components": {"exact": 0.1}, **score})


def test_rollouts_are_candidates_and_scores_in_one_row(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(b"".join(rollout(one, feedback="right") for one in CANDIDATES))
    rollouts = list(read_rollouts(path))
    assert [one.candidate for one in rollouts] == CANDIDATES
    assert [one.score for one in rollouts] == SCORES


@pytest.mark.parametrize(
    "line",
    [b"{oops\n", b"\n", b"[]\n", b'{"record_id": "r"}\n', encode({"nested": {"x": 1}}), b"\xff\n"],
)
@pytest.mark.parametrize("read", [read_candidates, read_scores, read_pairs, read_rollouts])
def test_a_row_that_does_not_fit_is_told_with_file_and_line(tmp_path, read, line):
    good = {
        read_candidates: msgspec.structs.asdict(CANDIDATES[0]),
        read_scores: msgspec.structs.asdict(SCORES[0]),
        read_pairs: msgspec.to_builtins(
            PreferencePair(
                "r", 2, "hermes", Side("a", "turn", "sft", 0, 1.0), Side("b", "turn", "sft", 1, 0.0)
            )
        ),
        read_rollouts: json.loads(rollout(CANDIDATES[0])),
    }[read]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(encode(good) + line)
    with pytest.raises(UserError, match=r"rows\.jsonl:2: not a row of a"):
        list(read(path))
    extra = tmp_path / "extra.jsonl"
    extra.write_bytes(encode(good) + encode({**good, "unknown": 1}))
    with pytest.raises(UserError, match=r"extra\.jsonl:2: .*unknown"):
        list(read(extra))


def test_a_step_whose_arguments_are_not_known_has_no_gold_candidate():
    prompts = [Prompt(RECORD, turn, "hermes", [1], f"answer {turn}", "turn") for turn in (1, 3)]
    assert [(one.model, one.step, one.text) for one in gold_candidates(prompts)] == [
        (GOLD, Step(RECORD.id, 3), "answer 3")
    ]
