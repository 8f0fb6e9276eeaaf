"""agentlite.data.formats.prompts: a question and, in `gold`, the calls that answer it."""

import pytest

from agentlite.data.formats import to_record


@pytest.mark.parametrize("accepted_answer", ["least", "full"])
def test_what_may_be_left_out_is_written_in_a_full_answer_alone(accepted_answer: str) -> None:
    parameters = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    gold = [{"name": "weather", "arguments": {"city": ["Oslo"], "days": ["", 3]}}]
    row = {"prompt": "Wet?", "tools": [{"name": "weather", "parameters": parameters}], "gold": gold}
    options = {"prompts": {"accepted_answer": accepted_answer}}
    (call,) = to_record(row, options=options).messages[1].calls
    expected = {"city": "Oslo", "days": 3} if accepted_answer == "full" else {"city": "Oslo"}
    assert call.arguments == expected
