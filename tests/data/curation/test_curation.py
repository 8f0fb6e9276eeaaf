"""agentlite.data.curation: what is refused, dropped, kept apart and put together."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import SPLITS, Call, Gold, GoldCall, Message, Parsed, Record, Tool
from agentlite.data.augment import add_distractors, join_dialogs
from agentlite.data.curation.duplicates import leaks
from agentlite.data.curation.split import Split, assign_splits
from agentlite.data.curation.traits import expected_tools, first_query, traits
from agentlite.data.curation.validate import validate
from agentlite.scoring.metrics.tool_calls import format_compliance

BY = ("query", "near", "parent", "tools")
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "number"},
        "hours": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["city"],
}
WEATHER = Tool("weather", "The weather to come.", CITY)
ASK, ANSWER = Message("user", "Is it wet in Oslo?"), Message("assistant", "Yes.")
CALL = Message("assistant", "", (Call("weather", {"city": "Oslo"}, "a"),))
RESULT = Message("tool", "4 mm", call_id="a")
GOOD = Record(messages=(ASK, CALL, RESULT, ANSWER), tools=(WEATHER,))


def asking(query: str, tool: str = "", **fields: Any) -> Record:
    """A question; the named tool, if any, is called."""
    if not tool:
        return Record(messages=(Message("user", query), ANSWER), **fields)
    call = Message("assistant", "", (Call(tool, {}, "call_0"),))
    return Record(
        messages=(Message("user", query), call), tools=(Tool(tool, f"Does {tool}."),), **fields
    )


def calling(**arguments: Any) -> Message:
    return Message("assistant", "", (Call("weather", arguments, "a"),))


# --- validate ---

BAD = {
    "no messages": ((), "E201"),
    "no assistant": ((ASK,), "E201"),
    "system later": ((ASK, Message("system", "s"), ANSWER), "E203"),
    "two users": ((ASK, ASK, ANSWER), "E203"),
    "assistant first": ((ANSWER,), "E203"),
    "user last": ((ASK, ANSWER, ASK), "E203"),
    "result last": ((ASK, CALL, RESULT), "E203"),
    "user after a result": ((ASK, CALL, RESULT, ASK, ANSWER), "E203"),
    "result without a call": ((ASK, ANSWER, RESULT, ANSWER), "E204"),
    "result of the user": ((ASK, RESULT, ANSWER), "E204"),
    "call without a result": ((ASK, CALL, ASK, ANSWER), "E204"),
    "unmatched id": ((ASK, CALL, Message("tool", "4", call_id="b"), ANSWER), "E205"),
    "two results of a call": ((ASK, CALL, RESULT, RESULT, ANSWER), "E205"),
    "ids twice": ((ASK, Message("assistant", "", CALL.calls * 2), RESULT, RESULT, ANSWER), "E205"),
    "ids twice, and one result": (
        (ASK, Message("assistant", "", CALL.calls * 2), RESULT, ANSWER),
        "E205",
    ),
    "unknown tool": ((ASK, Message("assistant", "", (Call("wether", {}),))), "E209"),
    "missing argument": ((ASK, calling(days=3)), "E210"),
    "unknown argument": ((ASK, calling(city="Oslo", town="Oslo")), "E210"),
    "wrong type": ((ASK, calling(city=3)), "E210"),
    "a bool is not a number": ((ASK, calling(city="Oslo", days=True)), "E210"),
    "an integer that is none": ((ASK, calling(city="Oslo", hours=[2.5])), "E210"),
    "a wrong type inside": ((ASK, calling(city="Oslo", hours=["noon"])), "E210"),
    "two assistant turns": ((ASK, ANSWER, ANSWER), "E203"),
    "says nothing": ((ASK, Message("assistant", " \n")), "E216"),
    "asks nothing": ((Message("user", ""), ANSWER), "E216"),
    "nul": ((ASK, Message("assistant", "a\0b")), "E112"),
    "nul in an argument": ((ASK, calling(city="a\0b")), "E112"),
}


def test_a_record_that_cannot_be_learned_from_is_refused() -> None:
    for name, (messages, code) in BAD.items():
        with pytest.raises(RowError) as caught:
            validate(replace(GOOD, messages=messages))
        assert caught.value.code == code, name


GOOD_MESSAGES = {
    "a call and its result": GOOD.messages,
    "a system text": (Message("system", "s"), *GOOD.messages),
    "a last call without a result": (ASK, CALL),
    "an int for a number": (ASK, calling(city="Oslo", days=3)),
    "a whole number for an integer": (ASK, calling(city="Oslo", hours=[3.0, 4])),
    "an empty result": (ASK, CALL, Message("tool", "", call_id="a"), ANSWER),
    "an id used again in another turn": (*GOOD.messages, *GOOD.messages),
}


def test_a_record_that_can_be_learned_from_passes() -> None:
    for messages in GOOD_MESSAGES.values():
        record = replace(GOOD, messages=messages)
        validate(record)
        assert all(format_compliance(Parsed("", m.calls), Gold(), record.tools) for m in messages)


def test_a_call_that_is_not_learned_is_checked_as_well_unless_it_failed_in_a_rollout() -> None:
    wrong = replace(CALL, calls=(Call("weather", {"city": 3}, "a"),), loss=False)
    record = replace(GOOD, messages=(ASK, wrong, RESULT, ANSWER))
    with pytest.raises(RowError) as caught:
        validate(record)
    assert caught.value.code == "E210"
    validate(replace(record, meta={"rollout": "x"}))


def test_only_the_gold_of_bfcl_may_accept_what_the_schema_does_not() -> None:
    record = Record(
        messages=(ASK, calling(city=3)),
        tools=(WEATHER,),
        gold={1: Gold((GoldCall("weather", {"city": [3]}),))},
    )
    with pytest.raises(RowError) as caught:
        validate(record)
    assert caught.value.code == "E210"
    validate(replace(record, meta={"bfcl_id": "simple_python_0"}))


WITH_SCHEMA = [
    ({"required": ["a"]}, {"a": 1}, None),
    ({"properties": {}}, {"a": 1}, "E210"),
    ({"properties": {}, "additionalProperties": True}, {"a": 1}, None),
    ({"properties": {}, "additionalProperties": False}, {"a": 1}, "E210"),
    ({"properties": {}, "additionalProperties": {"type": "string"}}, {"a": 1}, "E210"),
    ({"properties": {}, "additionalProperties": {"type": "string"}}, {"a": "1"}, None),
    ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": None}, None),
    ({"properties": {"a": {"type": "integer"}}}, {"a": None}, "E210"),
    ({"properties": {"a": {}}}, {"a": None}, None),
    ({"properties": {"a": {}}, "required": ["a"]}, {}, "E210"),
    ({}, {"a": 1}, None),
    ({"properties": {}, "patternProperties": {"^a": {"type": "integer"}}}, {"a": 1}, None),
    ({"properties": {}, "patternProperties": {"^a": {"type": "integer"}}}, {"a": "1"}, "E210"),
    ({"properties": {}, "allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": 1}, None),
    ({"properties": {}, "allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": ""}, "E210"),
    ({"properties": {}, "anyOf": [{}], "additionalProperties": False}, {"a": 1}, "E210"),
]


def test_arguments_are_held_to_the_schema_and_to_no_more() -> None:
    for schema, arguments, code in WITH_SCHEMA:
        call = Message("assistant", "", (Call("f", arguments, "a"),))
        record = Record(messages=(ASK, call), tools=(Tool("f", "", schema),))
        found = None
        try:
            validate(record)
        except RowError as error:
            found = error.code
        assert found == code, (schema, arguments)


# --- split ---

WORDS = ["tide", "ferry", "harbour", "whale", "puffin", "anchor", "dune", "reef", "storm"]


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
    by: Sequence[str] = BY,
    dev: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Split:
    return assign_splits(
        dict(enumerate(map(traits, records))), dev=dev, test=test, seed=seed, by=by
    )


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


def staying(records: Sequence[Record], result: Split) -> dict[str, str]:
    """The side of each record that stays, by id."""
    away = {*result.crossing, *result.torn}
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
    away = {*result.crossing, *result.torn}
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


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_the_split_does_not_depend_on_the_order_of_the_records(seed: int, count: int) -> None:
    records = assorted(count, 20, seed)
    shuffled = random.Random(seed).sample(records, count)
    sides, others = split(records, seed=seed), split(shuffled, seed=seed)
    assert sides.groups == others.groups
    assert staying(records, sides) == staying(shuffled, others)


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
    return Record(messages=(Message("user", query), calling(city=value)), tools=(WEATHER,), gold={})


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
        split([GOOD], dev=0.5, test=0.51)
    assert split([GOOD], dev=0.5, test=0.5).splits != {0: "train"}


# --- joining ---


def tool_records(count: int) -> list[Record]:
    """Single-turn records, one in five with no call due, one in seven with gold of its own."""
    records = []
    for index in range(count):
        record = asking(f"question {index // 8 if index % 4 == 0 else index}", f"tool_{index % 9}")
        if index % 5 == 0:
            record = replace(
                record,
                messages=(record.messages[0], ANSWER),
                gold={1: Gold()},
                task="timing_decision",
            )
        elif index % 7 == 0:
            record = replace(
                record, gold={1: Gold((GoldCall(f"tool_{index % 9}", {"x": ["", index]}),))}
            )
        records.append(record)
    return [*records, GOOD, asking("no tools here")]


def at_most(tools: int) -> Callable[[Sequence[Record]], bool]:
    return lambda slot: sum(len(record.tools) for record in slot) <= tools


def exchanges(records: Sequence[Record]) -> Counter[str]:
    """What is asked, said and due at each turn, apart from the ids of calls."""
    return Counter(
        str(
            (
                r.messages[turn - 1].content,
                [(c.name, c.arguments) for c in r.messages[turn].calls],
                r.expected(turn),
            )
        )
        for r in records
        for turn in r.turns
    )


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_joined_dialogs_ask_and_expect_the_same_and_are_valid(k: int) -> None:
    records = tool_records(60)
    joined = join_dialogs(records, k=k, seed=0, fits=at_most(6))
    assert exchanges(joined) == exchanges(records)
    for record in joined:
        validate(record)
        assert expected_tools(record) <= {tool.name for tool in record.tools}
        if "joined" in record.meta:
            queries = [m.content for m in record.messages if m.role == "user"]
            ids = [call.id for m in record.messages for call in m.calls]
            assert len(record.tools) <= 6
            assert 2 <= len(queries) == len(set(queries)) == len(record.meta["joined"]) <= k
            assert len(set(ids)) == len(ids)
            assert record.parent == record.meta["joined"][0]


def test_foreign_tools_have_other_names_and_answer_no_equal_question() -> None:
    records = tool_records(60)
    changed = add_distractors(records, n=3, seed=0)
    assert len(changed) == len(records)
    for record, new in zip(records, changed, strict=True):
        names = [tool.name for tool in new.tools]
        asked_alike = [r for r in records if first_query(r) == first_query(record)]
        foreign = set(names) - {tool.name for tool in record.tools}
        assert len(set(names)) == len(names) <= 1 + 3
        assert (new.messages, new.gold) == (record.messages, record.gold)
        assert not foreign & {name for r in asked_alike for name in expected_tools(r)}
        assert new.parent == (record.id if foreign else "")
        validate(new)
    assert {len(record.tools) for record in changed} == {0, 1, 2, 3, 4}
    # a single tool may be the right one
    calling = [record for record in changed if expected_tools(record)]
    assert {len(record.tools) for record in calling} == {1, 2, 3, 4}
