"""agentlite.data.formats.inline_text: tools, calls and results that stand in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damaged_rows import refused

from agentlite.core.records import Call, Message, Tool
from agentlite.data.formats.inline_text import end_of, result_of, split_at, tools_at


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("[] x", 2),
        ("[a(b){c}] ]", 9),
        ("['] \\' [', 1] ]", 13),
        ('["]"] x', 5),
        ('{"a": "it\'s"} }', 13),
    ],
)
def test_a_bracket_ends_where_its_own_is_closed_and_not_in_quotes(text: str, end: int) -> None:
    assert end_of(text, 0, "E206") == end
    assert end_of(f"] {text}", 2, "E206") == end + 2


PARTS = st.sampled_from(["a", "f(x, y)", "'a, b'", '"(,"', "[1, {2: 3}]", " ", "'it\\'s, '", ""])


@given(st.lists(PARTS, min_size=1))
def test_a_text_is_cut_at_each_separator_outside_of_brackets_and_quotes(parts: list[str]) -> None:
    assert split_at(",", ",".join(parts)) == parts


def test_tools_are_one_list_or_objects_one_after_another() -> None:
    f, g = '{"name": "f"}', "{'name': 'g'}"
    expected = (Tool("f"), Tool("g"))
    for text in (f"[{f}, {g}]", f"{f}\n{g}", f" , {f},\n {g}"):
        assert tools_at(f"x{text} and more", 1) == (expected, 1 + len(text))
    assert tools_at(f"[{f}] [{g}]", 0) == ((Tool("f"),), len(f) + 2)
    assert tools_at("none", 0) == ((), 0)
    assert refused(lambda: tools_at("[{'name'", 0)) == "E124"


def test_a_result_answers_the_first_waiting_call_of_its_name_else_the_first_of_all() -> None:
    def answered(value: object, text: str = "as it is") -> tuple[Message, list[str]]:
        waiting = [Call("f", {}, "1"), Call("g", {}, "2"), Call("g", {}, "3")]
        message = result_of(value, text, "results", waiting)
        return message, [call.id for call in waiting]

    named = {"name": "g", "results": {"km": 4}}
    assert answered(named) == (Message("tool", '{"km": 4}', call_id="2"), ["1", "3"])
    assert answered({**named, "more": None})[0].call_id == "2"
    for other in ({**named, "more": 1}, {"name": "h", "results": 1}, {"results": 1}, 4, "text"):
        assert answered(other) == (Message("tool", "as it is", call_id="1"), ["2", "3"])
    assert result_of(named, "as it is", "results", []) == Message("tool", "as it is")
