"""Candidates -> scores, and how many failed functions a run allows."""

import pytest
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, Gold
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.scoring.preference_pairs import gold_candidates
from agentlite.scoring.rewards import (
    WEIGHTS,
    WITHOUT_GOLD,
    ComponentError,
    refuse_without_gold,
    settle_weights,
)
from agentlite.scoring.rewards.scorer import Scorer, Tally

RIGHT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
REACT = 'Action: get_weather\nAction Input: {"city": "Oslo"}\nObservation:'


def test_a_candidate_is_read_in_its_protocol_and_scored_at_its_turn(dialog):
    def length(attempt):
        return len(attempt.text) / 100

    def fails(attempt):
        raise ComponentError("fails raised ValueError")

    said = [
        ("hermes", 2, RIGHT, "turn"),
        ("hermes", 2, RIGHT, "cut"),
        ("react", 2, REACT, "stop"),
        ("hermes", 4, RIGHT, "turn"),
        ("hermes", 4, "Yes.", "turn"),
    ]
    candidates = [
        Candidate(dialog.id, turn, protocol, "sft", n, text, ended, 5)
        for n, (protocol, turn, text, ended) in enumerate(said)
    ]
    scorer = Scorer({dialog.id: dialog}, PROTOCOLS, {"length": length, "fails": fails})
    found = list(scorer(candidates))
    assert [one.key for one in found] == [one.key for one in candidates]
    components = [one.components for one in found]
    assert [one["exact"] for one in components] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert [one["timeout"] for one in components] == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert [one["wrong_tool"] for one in components] == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert [one["length"] for one in components] == [len(text) / 100 for _, _, text, _ in said]
    assert {one.error for one in found} == {"fails raised ValueError"}
    assert "fails" not in components[0]


def test_without_gold_no_score_says_what_only_gold_can_say(dialog):
    open_turn = len(dialog.messages) - 1
    unanswered = replace(dialog, gold={open_turn: Gold(known=False)}, meta={"extra": {"a": 1}})
    seen = []

    def own(attempt):
        seen.append((attempt.gold.known, attempt.reference, attempt.meta))
        return 0.5

    scorer = Scorer({unanswered.id: unanswered}, PROTOCOLS, {"own": own})
    turns = [2, open_turn]
    said = [Candidate(unanswered.id, turn, "hermes", "m", 0, "x", "turn", 1) for turn in turns]
    scores = list(scorer(said))
    assert all(one.components.keys() == WITHOUT_GOLD | {"own"} for one in scores)
    assert scores[1].feedback == "not compared: the prompt has no gold"
    assert seen[1] == (False, "", {"extra": {"a": 1}})
    assert [one.model for one in gold_candidates(asked_at(unanswered, open_turn))] == []
    assert [one.model for one in gold_candidates(asked_at(dialog, open_turn))] == [GOLD]


def asked_at(record, turn):
    return [Prompt(record, turn, "hermes", [], "x", "turn")]


def test_weights_that_need_gold_are_refused_where_a_prompt_has_none(dialog):
    unanswered = replace(dialog, gold={4: Gold(known=False)})
    own = dict.fromkeys(WEIGHTS.keys() - WITHOUT_GOLD, 0.0)
    refuse_without_gold([dialog, unanswered], settle_weights(own, ["own"]), "rows.jsonl")
    refuse_without_gold([dialog], WEIGHTS, "rows.jsonl")
    for name in own:
        weight = -1.0 if WEIGHTS[name] < 0 else 1.0
        with pytest.raises(UserError, match="1 of 2 prompts have no gold") as refused:
            refuse_without_gold(
                [dialog, unanswered], settle_weights({**own, name: weight}), "rows.jsonl"
            )
        assert refused.value.problem.endswith(f": {name}.")
        assert "recipes/no-gold.yaml" in refused.value.fix
    for command in ("pairs", "grpo"):
        given = resolve.UserSettings(files=("recipes/no-gold.yaml",))
        assert resolve.resolve(command, given).settings.weights == own


@pytest.mark.parametrize(
    ("limit", "scored", "failed", "expected", "refused"),
    [
        (0.1, 100, 10, 0, False),
        (0.1, 100, 11, 0, True),
        (0.0, 100, 1, 0, False),  # one may always fail
        (0.0, 100, 2, 0, True),
        (0.1, 20, 3, 0, True),
        (0.1, 20, 3, 100, False),  # more are to come
        (0.1, 20, 11, 100, True),
    ],
)
def test_a_share_of_the_candidates_may_fail(limit, scored, failed, expected, refused, tmp_path):
    tally = Tally(limit, tmp_path, "Repair it.")
    for n in range(scored):
        tally.count(f"error {n}" if n >= scored - failed else "")
    assert (tally.scored, tally.failed) == (scored, failed)
    assert tally.first_error == f"error {scored - failed}"
    if not refused:
        tally.refuse(expected)
        return
    with pytest.raises(UserError, match=f"failed for {failed} candidates") as caught:
        tally.refuse(expected)
    assert (caught.value.exit_code, caught.value.fix) == (4, "Repair it.")
    assert f"{limit:.0%} of {expected or scored} may: error {scored - failed}." in str(caught.value)
