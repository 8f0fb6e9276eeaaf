"""Pairs keep their margin and never say the same; every step without one has a reason."""

from dataclasses import dataclass
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.unknown_arguments import RECORD

from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, Score, Step
from agentlite.rendering import Prompt
from agentlite.scoring.preference_pairs import (
    PairRule,
    Reason,
    build_pairs,
    constant_components,
    gold_candidates,
    group_by_step,
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


def sampled(*steps):
    """Candidates of the steps r0, r1, ..., numbered as they come, and their scores."""
    candidates, scores = [], {}
    for index, step in enumerate(steps):
        for sample, one in enumerate(step):
            candidate = Candidate(f"r{index}", 2, "hermes", one.model, sample, one.text, "turn", 5)
            candidates.append(candidate)
            scores[candidate.key] = Score(*candidate.key, one.components)
    return candidates, scores


def grouped(*steps):
    return group_by_step(*sampled(*steps))


def paired(steps, weights, rule):
    return build_pairs(grouped(*steps), weights, rule)


def only_pair(step, weights=WEIGHTS, rule=PairRule()):  # noqa: B008  (a tuple)
    [[pair], _] = paired([step], weights, rule)
    return pair.chosen.text, pair.rejected.text


def reason(step, weights=WEIGHTS, rule=PairRule()):  # noqa: B008
    pairs, reasons = paired([step], weights, rule)
    assert not pairs and set(reasons) == set(get_args(Reason))
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
rules = st.builds(PairRule, st.sampled_from([0.0, 0.05, 0.3]), st.booleans())


@given(steps_of, weights_of, rules)
def test_a_pair_never_says_the_same_twice_keeps_the_margin_and_chooses_somebody_who_speaks(
    steps, weights, rule
):
    for pair in paired(steps, weights, rule)[0]:
        assert pair.chosen.text.strip() and pair.chosen.text.strip() != pair.rejected.text.strip()
        assert round(pair.margin, 9) >= rule.margin and round(pair.margin, 9) > 0
        assert pair.rejected.model != GOLD


@given(steps_of, weights_of, rules)
def test_no_pair_is_missed_and_none_is_narrower_than_need_be(steps, weights, rule):
    pairs, _ = paired(steps, weights, rule)
    found = {pair.step: pair.margin for pair in pairs}
    for index, scored in enumerate(steps):
        step = Step(f"r{index}", 2)
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
            if one.text.strip() not in ("", other.text.strip())
            and GOLD not in (one.model, other.model)
        ]
        if any(margin > 0 and margin >= rule.margin for margin in margins):
            assert rule.gold or found[step] == pytest.approx(max(margins))
            assert step in found
        elif not rule.gold:
            assert step not in found


@given(steps_of, weights_of, rules, st.randoms(use_true_random=False))
def test_the_order_of_candidates_and_steps_is_without_effect(steps, weights, rule, generator):
    candidates, scores = sampled(*steps)
    pairs, reasons = build_pairs(group_by_step(candidates, scores), weights, rule)
    generator.shuffle(candidates)
    others, other_reasons = build_pairs(group_by_step(candidates, scores), weights, rule)
    assert reasons == other_reasons
    assert {pair.step: pair for pair in pairs} == {pair.step: pair for pair in others}


def test_the_best_stands_against_the_worst_and_the_first_of_equals_is_taken():
    step = [
        said("b", efficiency=0.5),
        said("a", exact=1),
        said("a too", exact=1),
        said("c"),
        said("c too"),
    ]
    assert only_pair(step) == ("a", "c")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ([said("a", exact=1)], "fewer than two scored"),
        ([said("a", exact=1), said("b", model=GOLD)], "fewer than two scored"),
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


FAILING = [said("a", efficiency=0.5), said("b")]
RIGHT = said("gold", GOLD, exact=1, efficiency=1)
WITH_GOLD = PairRule(gold=True)


def test_the_gold_is_chosen_against_the_worst_where_every_candidate_fails():
    assert only_pair([*FAILING, RIGHT], rule=WITH_GOLD) == ("gold", "b")
    assert only_pair([said("b"), RIGHT], rule=WITH_GOLD) == ("gold", "b")


@pytest.mark.parametrize(("weights", "rule"), [({"made": 1.0}, WITH_GOLD), ({"exact": 1.0}, None)])
def test_the_gold_and_what_compares_with_it_need_gold_at_every_step(weights, rule):
    without = Said("c", {"made": 1.0})
    with pytest.raises(UserError):
        paired([[said("a", made=0.0), said("b", made=0.0)], [without]], weights, rule or PairRule())


def test_a_step_whose_arguments_are_not_known_has_no_gold_candidate():
    prompts = [Prompt(RECORD, turn, "hermes", [1], f"answer {turn}", "turn") for turn in (1, 3)]
    assert [(one.model, one.step, one.text) for one in gold_candidates(prompts)] == [
        (GOLD, Step(RECORD.id, 3), "answer 3")
    ]


def test_a_component_that_is_the_same_within_every_step_decides_nothing():
    steps = [
        [said("a", exact=1.0), said("b"), said("gold", GOLD, wrong_tool=1.0)],
        [said("c", exact=0.5)],  # alone: it cannot differ
    ]
    weights = {"exact": 0.5, "wrong_tool": -1.0, "missed_call": 0.0}
    assert constant_components(grouped(*steps), weights) == ["wrong_tool"]


def test_a_pair_names_both_sides_with_their_totals():
    groups = grouped([said("a", exact=0.25), said("b", exact=1.0, wrong_tool=1.0)])
    [[pair], _] = build_pairs(groups, {"exact": 1.0, "wrong_tool": -0.25}, PairRule())
    assert (pair.record_id, pair.turn, pair.protocol) == ("r0", 2, "hermes")
    chosen, rejected = pair.chosen, pair.rejected
    assert (chosen.text, chosen.ended, chosen.model, chosen.sample) == ("b", "turn", "sft", 1)
    assert (chosen.total, rejected.total, pair.margin) == (0.75, 0.25, 0.5)
