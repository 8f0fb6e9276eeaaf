"""A dialog that was recorded with its results is a trace: which calls failed, and which hung."""

import pytest

from agentlite.core.records import Call, Candidate
from agentlite.data.formats import to_record
from agentlite.rendering import PROTOCOLS
from agentlite.scoring.rewards import TraceStep
from agentlite.scoring.rewards.attempt import trace_step
from agentlite.scoring.rewards.scorer import Scorer

ASK, TELL = Call("ask", {"x": 1}, "a"), Call("tell", {}, "b")


@pytest.mark.parametrize(
    ("result", "failed", "timed_out"),
    [
        ("Error: TimeoutError", True, True),
        ("Error: ReadTimeout: 10 s", True, True),
        ("Error: TimeoutExpired: x", True, True),
        ("Error: the request timed out", True, True),
        ("Error: time-out", True, True),
        ("Error: no time", True, False),
        ("Error: sometimes out", True, False),
        ("the time out is 3", False, False),
        ("Error: " + "x" * 300 + "timeout", True, False),  # a page that was returned
    ],
)
def test_only_a_call_that_failed_ran_out_of_time(result, failed, timed_out):
    assert trace_step(ASK, result, failed) == TraceStep(ASK, not failed, timed_out, result)


WEATHER = {
    "name": "weather",
    "description": "",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def test_at_a_recorded_step_a_function_sees_what_was_done_before_it_and_failed():
    """As Anthropic's rows mark it."""

    def use(name, city):
        block = {"type": "tool_use", "id": name, "name": "weather", "input": {"city": city}}
        return {"role": "assistant", "content": [block]}

    def result(name, text, **fields):
        block = {"type": "tool_result", "tool_use_id": name, "content": text, **fields}
        return {"role": "user", "content": [block]}

    row = {
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "Rain?"},
            use("t1", "Osl"),
            result("t1", "unknown", is_error=True),
            use("t2", "Oslo"),
            result("t2", "4 mm"),
            {"role": "assistant", "content": "Yes."},
        ],
    }
    record = to_record(row, "anthropic", split=False)
    assert len(record.turns) == 3
    seen = []

    def steps(attempt):
        seen.append(attempt.history)
        assert attempt.trace is None and attempt.scores == {} == attempt.row
        return float(all(step.ok for step in attempt.history))

    scorer = Scorer({record.id: record}, PROTOCOLS, {"steps": steps})
    candidates = [
        Candidate(record.id, turn, "hermes", "sft", n, "Yes.", "turn", 1)
        for turn in record.turns
        for n in range(2)
    ]
    found = [score.components["steps"] for score in scorer(candidates)]
    assert found == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert [len(history) for history in seen] == [0, 0, 1, 1, 2, 2]
    assert [(step.call.arguments["city"], step.ok, step.result) for step in seen[-1]] == [
        ("Osl", False, "unknown"),
        ("Oslo", True, "4 mm"),
    ]
