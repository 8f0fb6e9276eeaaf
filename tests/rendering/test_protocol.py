"""Values that cannot be arguments, and the thoughts that a completion begins with."""

from typing import Any

import pytest
from support.samples import TIME

from agentlite.rendering import PROTOCOLS
from agentlite.rendering.protocol import DEEPEST, arguments_problem

CALL = '<tool_call>{"name": "f"}</tool_call>'


@pytest.mark.parametrize("kind", [list, dict])
def test_arguments_are_objects_of_json_down_to_a_depth(kind: type) -> None:
    def nested(depth: int, inner: Any) -> dict[str, Any]:
        for _ in range(depth - 1):
            inner = {"a": inner} if kind is dict else [inner]
        return {"a": inner}

    for inner in ("天", 1, 0.5, True, None):
        assert not arguments_problem(nested(DEEPEST, inner))
        assert arguments_problem(nested(DEEPEST + 1, inner))
    for inner in ({1}, b"a", {1: 2}, 1j, (b"a",)):
        assert arguments_problem(nested(3, inner))
    for other in ([], "a", None, 3):
        assert arguments_problem(other) == "arguments are not an object"


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("<think>So.</think>Yes.", "<think>\nSo.\n</think>\n\nYes.", 0),
        # the prompt may have opened the thought: it is written whole in the record
        ("So.</think>\n\nYes.", "<think>\nSo.\n</think>\n\nYes.", 0),
        (f"So.</think>{CALL}", "<think>\nSo.\n</think>", 1),
        ("<think>So.</think>", "<think>\nSo.\n</think>", 0),
        ("<think> </think>Yes.", "Yes.", 0),
        ("</think>Yes.", "Yes.", 0),
        (f"<think>{CALL}</think>No.", f"<think>\n{CALL}\n</think>\n\nNo.", 0),
        ("<think>a</think> <think>b</think> Yes.", "<think>\na\n\nb\n</think>\n\nYes.", 0),
        ("So <think>a</think> Yes.", "So <think>a</think> Yes.", 0),
    ],
)
def test_thoughts_stay_words_and_nothing_in_them_is_called(text, content, calls):
    read = PROTOCOLS["hermes"].read(text, (TIME,))
    assert (read.content, len(read.calls), read.problem) == (content, calls, "")
