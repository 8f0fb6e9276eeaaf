"""agentlite.core.plain_words: no type of Python or msgspec reaches a reader."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from agentlite.core.plain_words import kind, misfit, misread


class Point(msgspec.Struct):
    x: int
    names: list[str] = []


@pytest.mark.parametrize(
    ("value", "wanted", "words"),
    [
        ("ten", int | None, "a whole number is expected, and this is a text"),
        (5, str, "a text is expected, and this is a whole number"),
        (0, Annotated[int, Meta(ge=1)], "a whole number of at least 1 is expected"),
        (2.0, Annotated[float, Meta(le=1)], "a number of at most 1 is expected"),
        (0.0, Annotated[float, Meta(gt=0)], "a number of more than 0 is expected"),
        (
            [],
            Annotated[list[str], Meta(min_length=1)],
            "a list with at least 1 entry is expected",
        ),
        ("c", Literal["a", "b"], "not one of the known values: 'c'"),
        ({}, Point, "x is missing"),
        (
            {"x": 1, "names": [None]},
            Point,
            "names[0]: a text is expected, and this is null",
        ),
        ({1: 2}, dict[str, int], "a key of it: a text is expected, and this is a whole number"),
    ],
)
def test_a_misfit_in_plain_words(value: Any, wanted: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, wanted)
    assert misfit(caught.value) == words


def test_a_kind_and_a_key_that_is_missing() -> None:
    values = ["", 1, 1.5, True, None, [], (), {}, b""]
    assert [kind(value) for value in values] == [
        "a text",
        "a whole number",
        "a number",
        "true or false",
        "null",
        "a list",
        "a list",
        "an object",
        "something else",
    ]
    assert misread(KeyError("tools")) == "the key 'tools' is missing"
    assert misread(ValueError("no")) == "a value is of another type (no)"
