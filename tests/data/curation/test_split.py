"""agentlite.data.curation.split: sides that hold, and what asks the same on one of them."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import UserError
from agentlite.core.records import SPLITS, Call, Message, Record, Tool
from agentlite.data.curation.duplicates import leaks
from agentlite.data.curation.split import SplitResult, assign_splits
from agentlite.data.curation.traits import expected_tools, first_query, traits

BY = ("query", "near", "parent", "tools")
ANSWER = Message("assistant", "Yes.")
WORDS = ["tide", "ferry", "harbour", "whale", "puffin", "anchor", "dune", "reef", "storm"]


def asking(query: str, tool: str = "", **fields: Any) -> Record:
    """A question; the named tool, if any, is called."""
    if not tool:
        return Record(messages=(Message("user", query), ANSWER), **fields)
    call = Message("assistant", "", (Call(tool, {}, "call_0"),))
    return Record(
        messages=(Message("user", query), call), tools=(Tool(tool, f"Does {tool}."),), **fields
    )


def assorted(count: int, tools: int = 0, seed: int = 0) -> list[Record]:
    """Records of three sources; queries of eight random words, some with a tool due."""
    chance = random.Random(seed)
    called = [
        f"tool_{chance.randrange(tools)}" if tools and chance.random() < 0.7 else ""
        for _ in range(count)
    ]
    queries = [" ".join(chance.choices(WORDS, k=8)) for _ in range(count)]
    return [
        asking(queries[index], called[index], source=f"source_{index % 3}")
        for index in range(count)
    ]


def split(
    records: Sequence[Record],
    by: Sequence[Any] = BY,
    dev: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> SplitResult:
    settings = PrepSettings(dev=dev, test=test, seed=seed, split_by=tuple(by))
    return assign_splits(dict(enumerate(map(traits, records))), settings)


def shared(
    records: Sequence[Record], splits: Sequence[str], by: Sequence[str]
) -> list[tuple[str, int, int]]:
    """Pairs on different sides that share a key; compared one by one, near queries by their exact
    Jaccard index.
    """
    found = []
    for (i, one), (j, other) in combinations(enumerate(records), 2):
        if splits[i] == splits[j]:
            continue
        a, b = first_query(one), first_query(other)
        grams = [{text[k : k + 5] for k in range(max(1, len(text) - 4))} for text in (a, b)]
        ties = {
            "query": a == b,
            "near": len(grams[0] & grams[1]) >= 0.8 * len(grams[0] | grams[1]),
            "parent": bool({one.id, one.parent} & {other.id, other.parent} - {""}),
            "tools": bool(expected_tools(one) & expected_tools(other)),
        }
        found += [(name, i, j) for name in by if ties[name]]
    return found


def staying(records: Sequence[Record], result: SplitResult) -> dict[str, str]:
    """The side of each record that stays, by id."""
    away = {*result.crossing, *(one for one, side in result.splits.items() if not side)}
    return {
        record.id: result.splits[index] for index, record in enumerate(records) if index not in away
    }


def varied(count: int, tools: int, seed: int) -> list[Record]:
    """Records, and for some of them a shouted copy, a longer one, a variant and a second call of
    another tool.
    """
    records, chance = assorted(count, tools, seed), random.Random(seed)
    few = min(3, count)
    records += [
        replace(r, messages=(Message("user", r.messages[0].content.upper() + "?"), *r.messages[1:]))
        for r in chance.sample(records, few)
    ]
    records += [
        asking(f"{r.messages[0].content} {' '.join(chance.choices(WORDS, k=2))}")
        for r in chance.sample(records, few)
    ]
    records += [
        asking(" ".join(chance.choices(WORDS, k=8)), parent=r.id)
        for r in chance.sample(records, few)
    ]
    return records


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 40), st.sampled_from([0, 5, 30]), st.booleans())
def test_no_key_is_shared_between_the_splits(
    seed: int, count: int, tools: int, by_tools: bool
) -> None:
    records, by = varied(count, tools, seed), BY if by_tools else BY[:-1]
    result = split(records, by, seed=seed)
    away = {*result.crossing, *(one for one, side in result.splits.items() if not side)}
    stay = [index for index in range(len(records)) if index not in away]
    assert not shared([records[i] for i in stay], [result.splits[i] for i in stay], by)
    assert {result.splits[i] for i in stay} <= set(SPLITS)
    for index, other in result.crossing.items():
        assert other in stay
        assert result.splits[index] != result.splits[other]


def test_hundreds_of_records_come_and_go_and_none_changes_its_side() -> None:
    pool, chance = varied(600, 60, seed=5), random.Random(5)
    for index in chance.sample(range(len(pool)), 60):
        pool[index] = replace(pool[index], split=chance.choice(SPLITS))
    here = pool[:200]
    sides: dict[str, str] = {}
    for added in chance.sample(pool[200:], 400):
        here.append(added)
        if chance.random() < 0.3:
            here.pop(chance.randrange(len(here)))
        if len(here) % 40 == 0:
            result = split(here)
            for record, side in zip(here, result.splits.values(), strict=True):
                assert sides.setdefault(record.id, side) == side
            assert len(staying(here, result)) > 0.6 * len(here)
    assert len(sides) > 400


def test_of_a_group_on_two_sides_the_larger_part_stays_unless_one_bears_a_split() -> None:
    text = "Which of the ferries to the island leaves from the old harbour on Sunday morning at %s"
    group = [
        asking(text % hour)
        for hour in ("one", "two", "ten", "six", "four", "five", "nine", "three")
    ]
    result = split(group, dev=0.2, test=0.3)
    counts = Counter(result.splits.values())
    assert len(counts) > 1
    assert set(staying(group, result).values()) == {
        max(("test", "dev", "train"), key=lambda side: counts[side])
    }
    borne = [*group, asking((text % "noon"), split="dev")]
    assert set(staying(borne, split(borne, dev=0.2, test=0.3)).values()) == {"dev"}


def test_a_record_keeps_the_split_it_bears() -> None:
    records = [
        *assorted(30),
        asking("Where do whales sleep?", split="test"),
        asking("where do whales sleep"),
        asking("WHERE do whales sleep?!", split="train"),
        asking("What do gulls eat?", split="dev"),
    ]
    result = split(records)
    assert [result.splits[index] for index in (30, 32, 33)] == ["test", "train", "dev"]
    assert {index: result.crossing.get(index) for index in (30, 32, 33)} == {
        30: None,
        32: 30,
        33: None,
    }


def calling_with(value: Any, query: str) -> Record:
    call = Message("assistant", "", (Call("weather", {"city": value}, "a"),))
    return Record(messages=(Message("user", query), call), tools=(Tool("weather"),))


@pytest.mark.parametrize(
    ("value", "tied"),
    [
        ("x" * 15, False),
        ("x" * 16, True),
        ("天" * 5, False),
        ("天" * 5 + "x", True),
        (["x" * 8, {"a": "y" * 8}], True),
        (["x" * 8, {"a" * 9: "y" * 7}], False),
        ([True, None, False] * 9, False),
        (1234567890123456, True),
    ],
)
def test_equal_calls_tie_and_leak_where_their_values_have_16_bytes(value: Any, tied: bool) -> None:
    """Few values are the same by chance: without a like query they say nothing."""
    pair = [calling_with(value, query) for query in ("What is it like there?", "Do I need a coat?")]
    one, other = map(traits, pair)
    assert split(pair, by=["calls"]).groups == 2 - tied
    assert leaks({5: one}, [other]) == ({5: 0} if tied else {})


def alike(shared: int, more: int) -> list[Record]:
    """Two queries with a Jaccard index of shared / (shared + more)."""
    text = "whichferryleavestheoldharbouronsundaymorningatnoon"
    return [asking(text[: shared + 4]), asking(text[: shared + 4 + more])]


@pytest.mark.parametrize(("shared", "more"), [(20, 5), (24, 6), (20, 6), (24, 7)])
def test_queries_are_tied_and_leak_from_an_index_of_eight_tenths_on(shared: int, more: int) -> None:
    one, other = map(traits, alike(shared, more))
    tied = shared >= 0.8 * (shared + more)
    assert split(alike(shared, more), by=["near"]).groups == 2 - tied
    assert leaks({5: one}, [other]) == ({5: 0} if tied else {})
    assert leaks({5: one}, [other], threshold=0.7) == {5: 0}


def test_fractions_of_more_than_a_whole_are_refused() -> None:
    with pytest.raises(UserError):
        split([asking("Wet?")], dev=0.5, test=0.51)
    assert split([asking("Wet?")], dev=0.5, test=0.5).splits != {0: "train"}
