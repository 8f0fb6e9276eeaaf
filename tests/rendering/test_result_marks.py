"""A line marks a result behind an action; before it, it is the assistant's own."""

import pytest

from agentlite.rendering.result_marks import result_mark

OBSERVATION = "Observation: the last value was 3."
ACTION = "Action: weather\nAction Input: {}"


@pytest.mark.parametrize(
    ("text", "is_result"),
    [
        (f"{ACTION}\n{OBSERVATION}", True),
        (f"{OBSERVATION}\n{ACTION}", False),
        (f"{OBSERVATION}\n{ACTION}\n{OBSERVATION}", True),
        (OBSERVATION, False),
        (ACTION, False),
    ],
)
def test_a_line_of_a_result_counts_behind_an_action_only(text, is_result):
    assert bool(result_mark(text, {"weather"})) is is_result
