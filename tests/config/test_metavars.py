"""agentlite.config.metavars: how a type and a value are written, and read back."""

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.config.metavars import File, Folder, as_typed, choices, metavar, without_marks

LOSS = Literal["sigmoid", "hinge", ""]


@pytest.mark.parametrize(
    ("kind", "plain", "word", "repeated", "words"),
    [
        (int, int, "INT", "INT", ()),
        (float | None, float, "FLOAT", "FLOAT", ()),
        (None | str, str, "TEXT", "TEXT", ()),
        (bool, bool, "[true|false]", "[true|false]", ("true", "false")),
        (LOSS, LOSS, "[sigmoid|hinge]", "[sigmoid|hinge]", ("sigmoid", "hinge")),
        (LOSS | None, LOSS, "[sigmoid|hinge]", "[sigmoid|hinge]", ("sigmoid", "hinge")),
        (File, str, "FILE", "FILE", ()),
        (Folder | None, str, "TEXT", "TEXT", ()),
        (Annotated[int, "a note"], int, "INT", "INT", ()),
        (Annotated[int, "a note"] | None, int, "INT", "INT", ()),
        (tuple[int, ...], tuple[int, ...], "INT,...", "INT", ()),
        (tuple[File, ...], tuple[File, ...], "FILE,...", "FILE", ()),
        (
            tuple[LOSS, ...] | None,
            tuple[LOSS, ...],
            "[sigmoid|hinge],...",
            "[sigmoid|hinge]",
            ("sigmoid", "hinge"),
        ),
        (dict[str, float], dict[str, float], "NAME=FLOAT,...", "NAME=FLOAT,...", ()),
        (dict[str, Any], dict[str, Any], "MAPPING", "MAPPING", ()),
    ],
)
def test_a_type_has_one_word_and_the_choices_that_it_leaves(kind, plain, word, repeated, words):
    assert without_marks(kind) == plain
    assert (metavar(kind), metavar(kind, repeat=True)) == (word, repeated)
    assert choices(kind) == words


numbers = st.integers() | st.floats(allow_nan=False)


@given(numbers)
def test_a_number_is_written_so_that_the_same_number_is_read(value):
    typed = as_typed(value)
    assert type(value)(typed) == value
    assert len(typed) <= len(repr(value)) or "e" in typed


@given(st.lists(numbers | st.booleans() | st.sampled_from(["a", "b c"]), max_size=4))
def test_values_of_a_list_and_of_a_mapping_stand_between_commas(values):
    one_by_one = [as_typed(value) for value in values]
    assert as_typed(values) == as_typed(tuple(values)) == ",".join(one_by_one)
    named = {f"k{n}": value for n, value in enumerate(values)}
    assert as_typed(named) == ",".join(f"k{n}={text}" for n, text in enumerate(one_by_one))


@pytest.mark.parametrize(
    ("value", "typed"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (0.5, "0.5"),
        (2.0, "2"),
        (1e-5, "1e-05"),
        (0.1234567, "0.1234567"),
        (("a", None), "a,"),
    ],
)
def test_a_value_is_written_as_on_the_command_line(value, typed):
    assert as_typed(value) == typed
