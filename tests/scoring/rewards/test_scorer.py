"""Candidates -> scores, and how many failed functions a run allows."""

import pytest

from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, Score
from agentlite.rendering import PROTOCOLS
from agentlite.scoring.rewards import ComponentError
from agentlite.scoring.rewards.scorer import Scorer, Tally, reading

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


@pytest.mark.parametrize(("record_id", "turn"), [("nobody", 2), (None, 3), (None, 99)])
def test_a_candidate_of_no_step_is_refused(record_id, turn, dialog):
    stray = Candidate(record_id or dialog.id, turn, "hermes", "sft", 0, "x", "turn", 5)
    with pytest.raises(UserError, match=f"turn {turn}, which does not exist"):
        list(Scorer({dialog.id: dialog}, PROTOCOLS, {})([stray]))


def test_only_a_native_protocol_needs_the_template_of_the_model():
    assert reading("hermes=2,react", "no-such-model") == {
        name: PROTOCOLS[name] for name in ("hermes", "react")
    }


def score(error=""):
    return Score("r", 2, "hermes", "sft", 0, {}, "", error)


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
        tally.count(score(f"error {n}" if n >= scored - failed else ""))
    assert (tally.scored, tally.failed, tally.first) == (scored, failed, f"error {scored - failed}")
    if not refused:
        tally.refuse(expected)
        return
    with pytest.raises(UserError, match=f"failed for {failed} candidates") as caught:
        tally.refuse(expected)
    assert (caught.value.exit_code, caught.value.fix) == (4, "Repair it.")
    assert f"{limit:.0%} of {expected or scored} may: error {scored - failed}." in str(caught.value)
