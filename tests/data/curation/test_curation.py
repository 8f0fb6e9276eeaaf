"""agentlite.data.curation: what is refused, dropped, kept apart and put together."""

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import every, examples, in_turn

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import SPLITS, Call, Gold, GoldCall, Message, Parsed, Record, Tool
from agentlite.data.curation.decontaminate import leaks
from agentlite.data.curation.dedup import borne, equal_copies
from agentlite.data.curation.distractors import add_distractors
from agentlite.data.curation.join_dialogs import join_dialogs
from agentlite.data.curation.sample import sample
from agentlite.data.curation.split import TIES, Split, assign_splits
from agentlite.data.curation.traits import expected_tools, first_query, normal, traits
from agentlite.data.curation.truncate import cut
from agentlite.data.curation.validate import check_dialog, validate
from agentlite.data.formats import to_record
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


@pytest.mark.parametrize("name", BAD)
def test_a_record_that_cannot_be_learned_from_is_refused(name: str) -> None:
    messages, code = BAD[name]
    with pytest.raises(RowError) as caught:
        validate(replace(GOOD, messages=messages))
    assert caught.value.code == code


GOOD_MESSAGES = {
    "a call and its result": GOOD.messages,
    "a system text": (Message("system", "s"), *GOOD.messages),
    "a last call without a result": (ASK, CALL),
    "an int for a number": (ASK, calling(city="Oslo", days=3)),
    "a whole number for an integer": (ASK, calling(city="Oslo", hours=[3.0, 4])),
    "an empty result": (ASK, CALL, Message("tool", "", call_id="a"), ANSWER),
    "an id used again in another turn": (*GOOD.messages, *GOOD.messages),
}


@pytest.mark.parametrize("name", GOOD_MESSAGES)
def test_a_record_that_can_be_learned_from_passes(name: str) -> None:
    record = replace(GOOD, messages=GOOD_MESSAGES[name])
    validate(record)
    assert all(
        format_compliance(Parsed("", m.calls), Gold(), record.tools) for m in record.messages
    )


def test_an_unknown_tool_is_named_with_the_nearest() -> None:
    with pytest.raises(RowError) as caught:
        validate(replace(GOOD, messages=BAD["unknown tool"][0]))
    assert "weather" in caught.value.reason


def test_two_tools_of_one_name_and_gold_beside_an_assistant_turn_are_refused() -> None:
    for record, code in (
        (replace(GOOD, tools=(WEATHER, WEATHER)), "E212"),
        (replace(GOOD, gold={0: Gold()}), "E201"),
    ):
        with pytest.raises(RowError) as caught:
            validate(record)
        assert caught.value.code == code


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


TAGS = {"type": "array", "items": {"type": "string"}}
SPOT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("declared", "accepted", "reason"),
    [
        (TAGS, ["red", "blue"], '"v": [["red", "blue"]]'),
        (TAGS, ["red", ""], "no value it accepts of v"),  # also where it may be left out
        (TAGS, [["red", "blue"]], ""),
        (TAGS, ["red", ["red"]], ""),  # one that fits is enough
        (TAGS, [""], ""),
        (TAGS, [], "accepts no value of v"),
        (SPOT, [{"x": [1, 2]}], ""),
        (SPOT, [{"x": 1}], ""),
        (SPOT, [{"x": ["one"]}], "no value it accepts of v"),
        (SPOT, [{"y": 1}], "no value it accepts of v"),
        ({"type": "array", "items": SPOT}, [[{"x": [1]}, {"x": 2}]], ""),
        ({"type": "array", "items": SPOT}, [{"x": 1}, {"x": 2}], '"v": [[{"x": 1}, {"x": 2}]]'),
        ({"enum": ["a", "b"]}, ["c"], "no value it accepts of v"),
        ({"type": "integer", "minimum": 1}, [0], "no value it accepts of v"),
        ({"type": "string", "pattern": "^[a-z]+$"}, ["A"], "no value it accepts of v"),
    ],
)
def test_gold_that_accepts_no_value_of_the_declared_schema_is_rejected(
    declared: dict[str, Any], accepted: list[Any], reason: str
) -> None:
    """One accepted value has to fit, or a model would learn to break the schema."""
    tool = {"name": "f", "parameters": {"properties": {"v": declared}}}
    row = {
        "prompt": "Do it.",
        "tools": [tool],
        "gold": [{"name": "f", "arguments": {"v": accepted}}],
    }
    found, code = "", "E210"
    try:
        validate(to_record(row, "prompts"))
    except RowError as error:
        found, code = error.reason, error.code
    assert (code, bool(found)) == ("E210", bool(reason))
    assert reason in found


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


@pytest.mark.parametrize(("schema", "arguments", "code"), WITH_SCHEMA)
def test_arguments_are_held_to_the_schema_and_to_no_more(
    schema: dict[str, Any], arguments: dict[str, Any], code: str | None
) -> None:
    call = Message("assistant", "", (Call("f", arguments, "a"),))
    record = Record(messages=(ASK, call), tools=(Tool("f", "", schema),))
    found = None
    try:
        validate(record)
    except RowError as error:
        found = error.code
    assert found == code


def test_gold_lifts_the_types_and_nothing_else() -> None:
    for message, code in ((calling(days=3), "E210"), (calling(city="Oslo", town=1), "E210")):
        gold = {1: Gold((GoldCall("weather", {}),))}
        with pytest.raises(RowError) as caught:
            validate(Record(messages=(ASK, message), tools=(WEATHER,), gold=gold))
        assert caught.value.code == code


def test_a_nul_is_refused_wherever_it_stands() -> None:
    for record in (
        replace(GOOD, messages=(Message("user", "a\0b"), ANSWER)),
        replace(GOOD, tools=(replace(WEATHER, description="a\0b"),)),
        replace(GOOD, tools=(WEATHER, Tool("f", "", {"properties": {"a\0": {}}}))),
        replace(GOOD, messages=(ASK, calling(city="Oslo", hours=[{"a": ["\0"]}]))),
    ):
        with pytest.raises(RowError) as caught:
            check_dialog(record)
        assert caught.value.code == "E112"
    check_dialog(replace(GOOD, messages=(Message("user", "a\\u0000b"), ANSWER)))


def test_only_a_joined_dialog_asks_on_before_its_results_are_there() -> None:
    asks_on = replace(GOOD, messages=(ASK, CALL, ASK, calling(city="Bergen")))
    validate(replace(asks_on, meta={"joined": ["x", "y"]}))
    with pytest.raises(RowError) as caught:
        validate(asks_on)
    assert caught.value.code == "E204"


def test_a_plain_text_need_not_take_turns() -> None:
    said = (Message("assistant", "Once upon a time."),)
    validate(Record(messages=said, meta={"whole": True}))
    with pytest.raises(RowError) as caught:
        validate(Record(messages=said))
    assert caught.value.code == "E203"


# --- duplicates ---


def unique(records: Sequence[Record]) -> list[Record]:
    copies = equal_copies(
        [traits(record) for record in records], [record.source for record in records]
    )
    return [record for index, record in enumerate(records) if index not in copies]


def test_of_equal_records_one_is_kept_whatever_their_order() -> None:
    one, other = asking("a", source="x"), asking("b", source="z")
    same = [replace(one, source="y"), one, replace(one, task="timing_decision")]
    for order in itertools.permutations([*same, other]):
        assert {record.source for record in unique(order)} == {"x", "z"}
        assert {record.task for record in unique(order)} == {one.task}


def test_a_copy_in_the_test_split_keeps_the_record_out_of_training() -> None:
    for splits in (["train", "test"], ["test", "train"]):
        here = [traits(asking("a", split=split)) for split in splits]
        assert borne(here, equal_copies(here, ["a.jsonl", "b.jsonl"])) == {0: "test"}


# --- split ---

WORDS = [
    "tide",
    "ferry",
    "harbour",
    "whale",
    "puffin",
    "lighthouse",
    "anchor",
    "compass",
    "dune",
    "reef",
    "storm",
    "kelp",
]


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
        [traits(record) for record in records], dev=dev, test=test, seed=seed, by=by
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


@pytest.mark.long
@pytest.mark.parametrize("by", every(2, [BY, BY[:-1]]))
def test_a_thousand_records_come_and_go_and_none_changes_its_side(by: Sequence[str]) -> None:
    pool, chance = varied(1200, 60, seed=5), random.Random(5)
    for index in chance.sample(range(len(pool)), 60):
        pool[index] = replace(pool[index], split=chance.choice(SPLITS))
    here = pool[:200]
    sides: dict[str, str] = {}
    for added in chance.sample(pool[200:], 1000):
        here.append(added)
        if chance.random() < 0.3:
            here.pop(chance.randrange(len(here)))
        if len(here) % 40 == 0:
            result = split(here, by)
            for record, side in zip(here, result.splits, strict=True):
                assert sides.setdefault(record.id, side) == side
            assert len(staying(here, result)) > 0.6 * len(here)
    assert len(sides) > 1000


def test_of_a_group_on_two_sides_the_larger_part_stays_unless_one_bears_a_split() -> None:
    text = "Which of the ferries to the island leaves from the old harbour on Sunday morning at %s"
    group = [
        asking(text % hour)
        for hour in ("one", "two", "ten", "six", "four", "five", "nine", "three")
    ]
    result = split(group, dev=0.2, test=0.3)
    counts = Counter(result.splits)
    assert len(counts) > 1
    assert set(staying(group, result).values()) == {
        max(("test", "dev", "train"), key=lambda side: counts[side])
    }
    borne = [*group, asking((text % "noon"), split="dev")]
    assert set(staying(borne, split(borne, dev=0.2, test=0.3)).values()) == {"dev"}


@pytest.mark.parametrize(
    "borne", [("test", "dev"), ("test", "train"), ("dev", "train"), ("test", "dev", "train")]
)
def test_of_the_splits_that_a_group_bears_test_stays_before_dev_and_dev_before_train(
    borne: tuple[str, ...],
) -> None:
    text = "Which of the ferries to the island leaves from the old harbour on Sunday at %s"
    for order in itertools.permutations(borne):
        many = [*order, borne[-1], borne[-1], borne[-1]]  # whatever most of them bear
        group = [asking(text % n, split=side) for n, side in enumerate(many)]
        result = split(group)
        assert set(staying(group, result).values()) == {borne[0]}
        assert set(result.crossing.values()) == {many.index(borne[0])}


def test_near_queries_are_found_in_any_script() -> None:
    chinese = "请帮我查询一下明天上海浦东机场飞往北京首都机场的所有航班以及它们的票价和余票数量"
    twins = [
        (chinese, chinese + "吗"),
        (
            "What will the weather in Oslo be like tomorrow at noon?",
            "What will the weather in Oslo be like tomorrow at noon, then?",
        ),
    ]
    records = [asking(query) for pair in twins for query in pair]
    assert {
        frozenset(pair)
        for pair in TIES["near"]([traits(record) for record in records])
        if len(set(pair)) == 2
    } == {frozenset({0, 1}), frozenset({2, 3})}


def test_queries_that_are_less_alike_are_not_tied() -> None:
    queries = [
        "How tall is the lighthouse of Brest?",
        "How tall is the lighthouse of Oslo, in feet?",
        "How tall is it?",
    ]
    assert all(
        len(set(pair)) == 1 for pair in TIES["near"]([traits(asking(query)) for query in queries])
    )


@pytest.mark.long
@pytest.mark.parametrize("by", [BY[:-1], BY])
def test_sizes_come_near_the_fractions(by: Sequence[str]) -> None:
    """Within four standard deviations of as many draws as there are keys to draw by."""
    records = assorted(2000, tools=500)
    sizes = Counter(split(records, by).splits)
    for side, fraction in {"train": 0.7, "dev": 0.1, "test": 0.2}.items():
        assert abs(sizes[side] / 2000 - fraction) < 4 * (fraction * (1 - fraction) / 500) ** 0.5, (
            sizes
        )


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_the_split_does_not_depend_on_the_order_of_the_records(seed: int, count: int) -> None:
    records = assorted(count, 20, seed)
    shuffled = random.Random(seed).sample(records, count)
    sides, others = split(records, seed=seed), split(shuffled, seed=seed)
    assert sides.groups == others.groups
    assert staying(records, sides) == staying(shuffled, others)


def test_a_side_is_a_share_of_all_hashes_and_of_the_tests_nothing_moves_with_a_larger_dev() -> None:
    records = assorted(300)
    shares = [
        int(hashlib.sha256(f"5 {first_query(record)}".encode()).hexdigest()[:16], 16) / 2**64
        for record in records
    ]
    for dev in (0.1, 0.3, 0.0):
        assert split(records, ("query",), dev=dev, test=0.2, seed=5).splits == [
            "test" if share < 0.2 else "dev" if share < 0.2 + dev else "train" for share in shares
        ]


def test_another_seed_gives_another_split() -> None:
    records = assorted(50)
    assert split(records, seed=1).splits != split(records, seed=2).splits


def test_an_empty_side_is_named_with_a_seed_that_leaves_none_empty() -> None:
    records = assorted(8)
    seed = next(
        seed for seed in range(100) if "dev" not in split(records, BY[:-1], seed=seed).splits
    )
    (note,) = split(records, BY[:-1], seed=seed).notes
    assert "no record fell on dev" in note
    other = int(note.rpartition("--seed ")[2].rstrip(")"))
    assert set(split(records, BY[:-1], seed=other).splits) == set(SPLITS)
    assert not split(records, BY[:-1], seed=seed, dev=0.0, test=0.0).notes


def test_one_tool_falls_on_one_side_where_tools_decide() -> None:
    records = [asking(" ".join(random.Random(i).choices(WORDS, k=8)), "search") for i in range(40)]
    assert len(set(split(records, BY[:-1]).splits)) == 3
    result = split(records, BY)
    assert len(set(result.splits)) == 1
    assert "own tools, and 40 records have the same one" in result.notes[0]
    assert "--seed" not in result.notes[0]


def grouped(sizes: Sequence[int], named: dict[str, int], seed: int) -> list[Record]:
    """Groups of records that ask the same and answer differently; then some with a split."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=9)) for _ in range(len(sizes) + sum(named.values()))]
    records = [
        Record(messages=(Message("user", text), Message("assistant", f"Number {number}.")))
        for text, size in zip(texts, sizes, strict=False)
        for number in range(size)
    ]
    sides = [side for side, count in named.items() for _ in range(count)]
    return records + [
        asking(text, split=side) for text, side in zip(texts[len(sizes) :], sides, strict=True)
    ]


SHAPES: dict[str, tuple[list[int], dict[str, int], str]] = {
    "all different": ([1] * 300, {}, ""),
    "few": ([1] * 12, {}, "there are 12 records"),
    "one large group": (
        [200, *[1] * 100],
        {},
        "300 records have 101 different ones, one of them 200 times",
    ),
    "a few large groups": ([60] * 5, {}, "300 records have 5 different ones, one of them 60 times"),
    "many small groups": ([5] * 80, {}, ""),
    "a named test": ([1] * 200, {"test": 200}, "200 records name a split of their own"),
    "all named": ([], {"train": 90, "test": 10}, "all records name a split of their own"),
}


@pytest.mark.parametrize("shape", in_turn(2, [*SHAPES]))
@pytest.mark.parametrize(
    ("dev", "test"), [(0.1, 0.2), (0.05, 0.05), (0.0, 0.1), (0.3, 0.4), (0, 0)]
)
def test_a_share_that_is_missed_by_half_is_named_with_the_cause_and_what_helps(
    shape: str, dev: float, test: float
) -> None:
    sizes, named, why = SHAPES[shape]
    for seed in range(4):
        records = grouped(sizes, named, seed)
        result = split(records, ("query",), dev=dev, test=test, seed=seed)
        asked = {"train": 1 - dev - test, "dev": dev, "test": test}
        counts = Counter(staying(records, result).values())
        total = counts.total()
        missed = {
            side: (round(share * total), counts[side])
            for side, share in asked.items()
            if share > 0
            # of a binomial count, two standard deviations are chance
            and (counts[side] - share * total) ** 2 > 4 * share * (1 - share) * total
            and not share * total * 0.5 <= counts[side] <= share * total * 1.5
        }
        assert {side: (*one,) for side, one in result.missed.items()} == missed
        empty = [side for side, share in asked.items() if share > 0 and not counts[side]]
        assert bool(result.notes) == bool(missed or empty)
        if shape == "all different" and min(dev or 1, test or 1) >= 0.1:
            assert not result.notes
        for note in result.notes:
            assert why in note
            for side, (wanted, got) in missed.items():
                if got:
                    assert f"{side} has {got} of {total} records, and {wanted} were asked" in note
            if "--seed" in note:
                other = int(note.rpartition("--seed ")[2].split(";")[0].rstrip(")"))
                better = split(records, ("query",), dev=dev, test=test, seed=other)
                assert not better.missed and not better.notes


@pytest.mark.parametrize(
    ("free", "advice"),
    [(0, "naming the dialogs beside --from gives dev"), (200, "larger --dev and --test move more")],
)
def test_rows_of_a_stage_keep_their_split_and_something_else_helps(free: int, advice: str) -> None:
    records = [traits(record) for record in grouped([1] * free, {"train": 900}, 0)]
    of_stages = [index for index, record in enumerate(records) if record.split]
    for indices, words in ((of_stages, advice), ([], "take `split` out of")):
        result = assign_splits(records, dev=0.2, test=0.3, seed=0, by=["query"], of_stages=indices)
        assert words in result.notes[0]


def test_groups_whose_smaller_part_is_left_out_are_the_cause_where_they_are() -> None:
    chance = random.Random(0)
    stem = " ".join(chance.choices(WORDS, k=60))
    # nearly the same question with another last word: each has a hash of its own, and all are tied
    near = [asking(f"{stem} {number}") for number in range(60)]
    records = [*near, *grouped([1] * 20, {}, 0)]
    result = split(records, BY[:-1], dev=0.2, test=0.3)
    assert len(result.crossing) > 20 and result.missed
    (note,) = result.notes
    assert f"{len(result.crossing)} records were left out" in note and "F332" in note


def test_a_record_with_tools_of_two_sides_goes_where_tools_decide() -> None:
    tools = [Call(f"tool_{number}", {}, f"call_{number}") for number in range(12)]
    alone = [
        asking(" ".join(random.Random(i).choices(WORDS, k=8)), one.name)
        for i, one in enumerate(tools)
    ]
    sides = dict(zip([one.name for one in tools], split(alone, BY).splits, strict=True))
    one, other = next(
        pair for pair in combinations(tools, 2) if sides[pair[0].name] != sides[pair[1].name]
    )
    both = Record(
        messages=(
            Message("user", "both of them, please"),
            Message("assistant", "", calls=(one, other)),
        )
    )
    result = split([*alone, both], BY)
    assert result.torn == [len(alone)]
    assert not result.crossing
    assert not split([*alone, both], BY[:-1]).torn


def test_a_record_keeps_the_split_it_bears() -> None:
    records = [
        *assorted(30),
        asking("Where do whales sleep?", split="test"),
        asking("where do whales sleep"),
        asking("WHERE do whales sleep?!", split="train"),
        asking("What do gulls eat?", split="dev"),
    ]
    result = split(records)
    assert (result.splits[30], *result.splits[32:]) == ("test", "train", "dev")
    assert {index: result.crossing.get(index) for index in (30, 32, 33)} == {
        30: None,
        32: 30,
        33: None,
    }


def test_short_follow_ups_tie_nothing_but_long_ones_do() -> None:
    def dialog(first: str, second: str) -> Record:
        return Record(messages=(Message("user", first), ANSWER, Message("user", second), ANSWER))

    apart = [
        dialog("tide tables for Brest", "Yes, please."),
        dialog("puffins of Iceland", "yes please"),
    ]
    tied = [
        dialog("one", "And which ferry leaves next?"),
        dialog("two", "and which ferry leaves next"),
    ]
    assert (split(apart).groups, split(tied).groups) == (2, 1)


@pytest.mark.parametrize(
    ("one", "tied"),
    [
        ("Fifteen letters", False),
        ("Sixteen letters!!", False),
        ("天气怎么样", False),
        ("天气怎么样呢", True),
        ("Fifteenletters12", True),
    ],
)
def test_a_follow_up_ties_from_16_bytes_of_letters_and_digits_on(one: str, tied: bool) -> None:
    pair = [
        Record(messages=(Message("user", first), ANSWER, Message("user", one), ANSWER))
        for first in ("tide tables for Brest", "puffins of Iceland")
    ]
    assert split(pair).groups == (1 if tied else 2)


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
    pair = [traits(calling_with(value, q)) for q in ("What is it like there?", "Do I need a coat?")]
    assert assign_splits(pair, dev=0.1, test=0.1, seed=0, by=["calls"]).groups == 2 - tied
    assert leaks(pair[:1], pair[1:]) == ({0: ("calls", 0)} if tied else {})


def alike(shared: int, more: int) -> list[Record]:
    """Two queries with a Jaccard index of shared / (shared + more)."""
    text = "whichferryleavestheoldharbouronsundaymorningatnoon"
    return [asking(text[: shared + 4]), asking(text[: shared + 4 + more])]


@pytest.mark.parametrize(("shared", "more"), [(20, 5), (24, 6), (20, 6), (24, 7)])
def test_queries_are_tied_and_leak_from_an_index_of_eight_tenths_on(shared: int, more: int) -> None:
    pair = [traits(record) for record in alike(shared, more)]
    tied = shared >= 0.8 * (shared + more)
    assert assign_splits(pair, dev=0.1, test=0.1, seed=0, by=["near"]).groups == 2 - tied
    assert leaks(pair[:1], pair[1:]) == ({0: ("near", 0)} if tied else {})
    assert leaks(pair[:1], pair[1:], threshold=0.7) == {0: ("near", 0)}


def test_fractions_and_keys_that_cannot_be_are_refused() -> None:
    for dev, test in ((0.5, 0.51), (-0.1, 0.2), (0.2, -0.1)):
        with pytest.raises(UserError):
            split([GOOD], dev=dev, test=test)
    assert split([GOOD], dev=0.5, test=0.5).splits != ["train"]
    with pytest.raises(UserError):
        split([GOOD], dev=0.6, test=0.6)
    with pytest.raises(UserError, match="querry"):
        split([GOOD], by=("querry",))


@given(st.text())
def test_a_query_keeps_something_to_be_compared_by(text: str) -> None:
    assert bool(normal(text)) == bool(text)
    assert normal(normal(text)) == normal(text)


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


def test_every_record_is_joined_once_or_kept_as_it_is() -> None:
    records = unique(tool_records(60))
    joined = join_dialogs(records, k=3, seed=0, fits=at_most(12))
    parts = [part for record in joined for part in record.meta.get("joined", [record.id])]
    assert sorted(parts) == sorted(record.id for record in records)
    assert len(joined) < len(records)


def test_joined_dialogs_name_records_that_were_read_whatever_was_made_of_these_before() -> None:
    """A variant with foreign tools that is joined has no row of its own: its id names nothing."""
    records = unique(tool_records(60))
    wider = add_distractors(records, n=3, seed=0)
    assert any(record.parent for record in wider)
    joined = join_dialogs(wider, k=3, seed=0, fits=at_most(12))
    parts = [part for record in joined for part in record.meta.get("joined", [])]
    assert parts
    assert {*parts, *(record.parent for record in joined if record.parent)} <= {
        record.id for record in records
    }


def test_records_where_no_call_is_due_are_neither_joined_nor_given_tools() -> None:
    records = tool_records(60)
    still = [r for r in records if r.task == "timing_decision"]
    assert still
    for changed in (
        join_dialogs(records, k=3, seed=0, fits=at_most(9)),
        add_distractors(records, n=3, seed=0),
    ):
        assert all(r in changed for r in still)


def test_system_texts_and_splits_are_not_mixed_in_a_dialog() -> None:
    records = [
        replace(
            asking(f"q{i}", f"t{i}", split=SPLITS[i % 2]),
            messages=(Message("system", "ab"[i // 2 % 2]), *asking(f"q{i}", f"t{i}").messages),
        )
        for i in range(16)
    ]
    joined = join_dialogs(records, k=4, seed=0, fits=at_most(9))
    assert [[m.role for m in record.messages].count("system") for record in joined] == [1] * 4
    assert exchanges(joined) == exchanges(records)
    homes = {record.id: (record.messages[0].content, record.split) for record in records}
    for record in joined:
        assert {homes[part] for part in record.meta["joined"]} == {
            (record.messages[0].content, record.split)
        }


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


def test_joining_and_foreign_tools_do_not_depend_on_the_order_but_on_the_seed() -> None:
    records = unique(tool_records(60))
    shuffled = random.Random(1).sample(records, len(records))
    assert join_dialogs(records, k=3, seed=0, fits=at_most(9)) == join_dialogs(
        shuffled, k=3, seed=0, fits=at_most(9)
    )
    assert join_dialogs(records, k=3, seed=0, fits=at_most(9)) != join_dialogs(
        records, k=3, seed=1, fits=at_most(9)
    )
    ids = [
        {record.id for record in add_distractors(given_order, n=3, seed=0)}
        for given_order in (records, shuffled)
    ]
    assert ids[0] == ids[1]
    assert ids[0] != {record.id for record in add_distractors(records, n=3, seed=1)}


# --- samples, cut dialogs, leaks ---


def test_a_limit_is_spread_evenly_over_the_sources() -> None:
    records = [
        asking(f"Question {number} of {source}?", source=source)
        for source, count in (("large", 30), ("middle", 5), ("small", 2))
        for number in range(count)
    ]
    sources = Counter(records[index].source for index in sample(records, 12, 1))
    assert sources == {"large": 5, "middle": 5, "small": 2}


def test_a_dialog_may_be_cut_after_a_turn_that_is_not_learned() -> None:
    unlearned = replace(ANSWER, loss=False)
    record = Record(messages=(ASK, ANSWER, ASK, unlearned, ASK, ANSWER))
    shorter = cut(record, lambda part: len(part.messages) <= 4)
    assert shorter and shorter.messages == record.messages[:4]
    first = Record(messages=(ASK, unlearned, ASK, ANSWER))
    assert cut(first, lambda part: len(part.messages) <= 2) is None


@pytest.mark.parametrize("parent", ["", "the record that this one was made from"])
def test_what_is_cut_stays_tied_to_all_that_was_made_from_the_same_record(parent: str) -> None:
    whole = Record(messages=(ASK, ANSWER, ASK, ANSWER), parent=parent, meta={"row": 1})
    shorter = cut(whole, lambda part: len(part.messages) <= 2)
    assert shorter and shorter.parent == (parent or whole.id)
    assert shorter.meta == {"row": 1, "cut_from": 4}


@pytest.mark.parametrize("left", [1, 2, 3])
def test_the_turns_that_a_cut_leaves_keep_their_gold_and_no_other_has_any(left: int) -> None:
    gold = {turn: Gold(optimal_steps=turn) for turn in (1, 3, 5, 7)}
    whole = Record(messages=(ASK, ANSWER) * 4, gold=gold)
    shorter = cut(whole, lambda part: len(part.messages) <= 2 * left)
    assert shorter and shorter.messages == whole.messages[: 2 * left]
    assert shorter.gold == {turn: gold[turn] for turn in shorter.turns}


def test_a_record_leaks_by_a_later_question_of_its_dialog() -> None:
    held_out = traits(asking("How much rain will there be in Oslo?"))
    later = Record(
        messages=(
            Message("user", "Which trains leave from Bergen today?"),
            ANSWER,
            Message("user", "How much rain will there be in Oslo?"),
            ANSWER,
        )
    )
    assert leaks([traits(later)], [held_out])[0].kind == "query"


def test_a_few_that_are_left_out_are_not_the_cause_where_another_one_stays() -> None:
    chance = random.Random(0)
    stem = " ".join(chance.choices(WORDS, k=60))
    near = [asking(f"{stem} {number}") for number in range(6)]
    result = split([*near, *grouped([200, *[1] * 100], {}, 0)], BY[:-1], dev=0.2, test=0.3)
    assert result.crossing and result.missed
    (note,) = result.notes
    assert "F332" not in note and "306 records have 107 different ones" in note
