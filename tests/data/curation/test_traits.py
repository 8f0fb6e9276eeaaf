"""agentlite.data.curation.traits: what a record asks, calls, and was made from; its hashes."""

import pytest

from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Message, Record, Tool, digest
from agentlite.data.curation.traits import (
    SHORTEST_QUERY,
    always_expects_calls,
    comparable_value,
    expected_tools,
    traits,
)

SHORT, LONG, LATER = "x" * (SHORTEST_QUERY - 1), "y" * SHORTEST_QUERY, "z" * 40


def asking(*queries: str, **fields: object) -> Record:
    turns = [(Message("user", query), Message("assistant", "a")) for query in queries]
    return Record(messages=tuple(m for turn in turns for m in turn), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queries", "first", "all_of_them"),
    [
        ((LONG,), LONG, [LONG]),
        ((SHORT, LONG, LATER), LONG, [LONG, LATER]),
        ((LATER, SHORT, LONG), LATER, [LATER, LONG]),
        ((SHORT, "hi"), SHORT, [SHORT]),
        (("天气怎么样", LONG), LONG, [LONG]),
        (("天气怎么样吗", LONG), "天气怎么样吗", ["天气怎么样吗", LONG]),
        ((f"  {LONG.upper()}!",), LONG, [LONG]),
        ((LONG.upper().translate({ord("Y"): "ｙ"}),), LONG, [LONG]),
        (("",), "", []),
    ],
)
def test_a_record_asks_what_is_long_enough_in_bytes_and_else_what_is_said_first(
    queries: tuple[str, ...], first: str, all_of_them: list[str]
) -> None:
    found = traits(asking(*queries))
    assert found.query == first
    assert found.queries == tuple(bytes.fromhex(digest(query)) for query in all_of_them)
    assert {len(query) for query in found.queries} <= {8}


CALLS = {"b": GoldCall("b", {}), "a": GoldCall("a", {}), "any": GoldCall(ANY_TOOL, {})}


@pytest.mark.parametrize(
    ("turns", "tools", "always"),
    [
        ([["b"], ["a", "b"]], ("a", "b"), True),
        ([["b"], []], ("b",), False),
        ([[], []], (), False),
        ([["any"]], (), False),
        ([["any"], ["a"]], ("a",), True),
    ],
)
def test_the_tools_of_a_record_are_those_that_its_gold_expects_by_name(
    turns: list[list[str]], tools: tuple[str, ...], always: bool
) -> None:
    gold = {2 * n + 1: Gold(tuple(CALLS[name] for name in names)) for n, names in enumerate(turns)}
    record = asking(*map(str, range(len(turns))), gold=gold)
    assert (traits(record).tools, expected_tools(record)) == (tools, {*tools})
    assert always_expects_calls(record) is always


# --- hashes ---


def calling(*calls: Call, loss: bool = True) -> Message:
    return Message("assistant", "", calls, loss=loss)


def record(*messages: Message, **fields: object) -> Record:
    fields = {"tools": (Tool("f"), Tool("g")), **fields}
    return Record(messages=(Message("user", "Is it wet in Oslo?"), *messages), **fields)  # type: ignore[arg-type]


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
        assert comparable_value(one) == comparable_value(two)
    for one, two in other:
        ones, twos = (record(calling(Call("f", {"x": value}))) for value in (one, two))
        assert traits(ones).calls != traits(twos).calls
