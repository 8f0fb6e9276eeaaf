"""agentlite.data.curation: fingerprints, traits and sketches of records, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.minhash import band_size, jaccard, shingles
from agentlite.data.curation.traits import comparable, keys

ASKED = Message("user", "Is it wet in Oslo?")


def calling(*calls: Call, loss: bool = True) -> Message:
    return Message("assistant", "", calls, loss=loss)


def record(*messages: Message, **fields: object) -> Record:
    fields = {"tools": (Tool("f"), Tool("g")), **fields}
    return Record(messages=(ASKED, *messages), **fields)  # type: ignore[arg-type]


def test_values_that_are_meant_to_be_the_same_are_equal() -> None:
    same = [
        ("Oslo", " oslo "),
        ("New  York", "new\tyork"),
        ("ｎｙｃ", "NYC"),
        (3.0, 3),
        ({"a": [1.0, " X"]}, {"a": [1, "x"]}),
    ]
    other = [(True, 1), (3.5, 3), ("3", 3), (None, ""), ([1, 2], [2, 1]), ({"a": 1}, {"A": 1})]
    for one, two in same:
        assert comparable(one) == comparable(two)
    for one, two in other:
        ones, twos = (record(calling(Call("f", {"x": value}))) for value in (one, two))
        assert keys(ones).calls != keys(twos).calls


def test_the_bytes_of_values_are_those_of_texts_and_numbers_at_any_depth() -> None:
    calls = [
        Call("f", {"a": "天x", "b": [12, True, None], "c": {"long_name": -1.5}}),
        Call("g", {"d": "y"}),
    ]
    assert keys(record(calling(*calls), calling(calls[1]))).value_bytes == 4 + 2 + 4 + 1 + 1


# --- sketches ---


@pytest.mark.parametrize(
    ("threshold", "size"), [(0.8, 5), (0.5, 2), (0.95, 12), (1.0, 16), (0.01, 1)]
)
def test_bands_are_as_wide_as_they_can_be_and_still_meet(threshold: float, size: int) -> None:
    """Of 128 slots: at .8, 25 bands of 5 slots all differ once in 20,000 times, 21 of 6 in 600."""
    assert band_size(threshold) == size


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_the_index_is_that_of_the_sets_of_character_5_grams(one: str, other: str) -> None:
    def grams(text: str) -> set[str]:
        return {text[start : start + 5] for start in range(max(1, len(text) - 4))}

    a, b = grams(one), grams(other)
    assert len(shingles(one)) == len(a)
    if min(len(one), len(other)) >= 5:
        index = len(a & b) / len(a | b)
        assert jaccard(shingles(one), shingles(other)) == pytest.approx(index)
