"""agentlite.data.rejects: the carets stand under what is wrong, in every row."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agentlite.core.console import ROOM
from agentlite.data.rejects import excerpt

ROW = {
    "tools": [{"name": "get", "parameters": {"city": {}}}],
    "messages": [
        {"role": "user", "content": "get it"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "name": "get", "arguments": '{"city": 1}'}],
        },
        {"role": "tool", "content": "x"},
        {"role": "asistant", "content": ""},
    ],
}


def pointed(content: bytes, at: str | int, reason: str = "") -> str:
    """What stands over the carets."""
    shown = excerpt(content, at, reason)
    if not shown:
        return ""
    line, carets = shown
    assert set(carets) <= {" ", "^"} and "^" in carets
    start, columns = len(carets) - len(carets.lstrip()), 0
    piece = ""
    for sign in line:
        if start <= columns < len(carets):
            piece += sign
        columns += cell_len(sign)
    return piece


@pytest.mark.parametrize(
    ("at", "reason", "piece"),
    [
        ("asistant", "unknown role 'asistant' (message 4)", "asistant"),
        ("", "the assistant message is empty (message 4)", '"role": "asistant"'),
        ("city", "get: city: 1 is not a text", "city"),
        ("nowhere", "", ""),
        ("", "no assistant turn", ""),
        ("", "nothing is there (message 9)", ""),
        (0, "", "{"),
    ],
)
def test_a_piece_is_found(at: str | int, reason: str, piece: str) -> None:
    assert pointed(json.dumps(ROW).encode(), at, reason) == piece


@pytest.mark.parametrize("key", ["messages", "conversations"])
@pytest.mark.parametrize("tools_first", [True, False])
@pytest.mark.parametrize("content", ["odd", "even"])
def test_what_is_wrong_is_pointed_at_in_a_message_before_the_tools(
    content: str, tools_first: bool, key: str
) -> None:
    parts = {"tools": [{"name": "odd"}], key: [{"role": "user", "content": content}]}
    row = dict([*parts.items()][:: 1 if tools_first else -1])
    line, carets = excerpt(json.dumps(row).encode(), "odd", "")
    assert line[: carets.index("^")].endswith('"content": "' if content == "odd" else '"name": "')


def test_an_argument_is_pointed_at_in_the_call_and_not_in_the_schema() -> None:
    line, carets = excerpt(json.dumps(ROW).encode(), "city", "")
    assert line[: carets.index("^")].endswith(r'"arguments": "{\"')


@given(st.text(), st.text(min_size=1), st.text())
def test_a_position_is_pointed_at_whatever_stands_around_it(
    before: str, piece: str, after: str
) -> None:
    content = (before + piece + after).encode("utf-8", "surrogatepass")
    text = content.decode("utf-8", "replace").removeprefix("\ufeff")
    at = min(len(before), len(text) - 1)
    if at < 0:
        return
    line, carets = excerpt(content, at, "")
    assert line.isprintable() and len(line) <= ROOM + 2
    assert "^" in carets
