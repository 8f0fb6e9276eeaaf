"""Pools, rankings, hard negatives, and the tools that a record is offered: without a model."""

import random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from agentlite.core.records import Call, Gold, Message, Record, Tool
from agentlite.retrieval import training_pairs
from agentlite.retrieval.rankers import bm25
from agentlite.retrieval.tool_pool import ToolPool, queries, read_pool
from agentlite.scoring.metrics.summarize import RETRIEVED
from agentlite.stages import retriever as evaluate
from agentlite.stages.tool_retrieval import ToolOffers

TOWNS = ("Oslo", "Lima", "Rome", "Graz", "Bern", "Cork", "Bonn", "Riga", "Kyiv", "Gent")


def tool(name: str, description: str = "", *parameters: str) -> Tool:
    return Tool(
        name,
        description,
        {"type": "object", "properties": {one: {"type": "string"} for one in parameters}},
    )


RAIN = tool("get_rain", "Millimetres of rain in a town", "town")
TRAIN = tool("find_train", "Departures of trains between two towns", "origin", "destination")
MAIL = tool("mail.send", "Sends a letter to somebody", "recipient", "text")
COIN = tool("toss_coin", "Heads or tails")
FOUR = (RAIN, TRAIN, MAIL, COIN)


def record(text: str, *expected: str, tools: tuple[Tool, ...] = FOUR) -> Record:
    calls = tuple(Call(name, {}, f"call_{number}") for number, name in enumerate(expected))
    answer = Message("assistant", "" if calls else "I cannot.", calls)
    return Record(
        messages=(Message("user", text), answer), tools=tools, gold={} if calls else {1: Gold()}
    )


# --- metrics ---


def asked_of(count: int) -> tuple[ToolPool, list]:
    tools = tuple(tool(f"tool_{number}", f"does {number}") for number in range(count))
    records = [
        record(f"please do number {number}", f"tool_{number}", tools=tools)
        for number in range(0, count, 3)
    ]
    pool = read_pool(records, []).pool
    return pool, queries(records, pool)


def test_among_fewer_tools_a_right_one_stands_no_lower_and_all_sizes_ask_the_same():
    pool, asked = asked_of(40)
    scores = numpy.random.default_rng(0).random((len(asked), len(pool.names)))
    found = evaluate.ranks(asked, pool, {"any": scores}, (10, 20, 90), 0)
    assert [*found] == [10, 20, 40]
    by_size = [[ranked[0] for ranked in methods["any"]] for methods in found.values()]
    assert all(few <= more <= most for few, more, most in zip(*by_size, strict=True))
    right = [scores[number, pool.names[query.names[0]]] for number, query in enumerate(asked)]
    whole = [int((row >= own).sum()) for row, own in zip(scores, right, strict=True)]
    assert by_size[-1] == whole


def test_another_seed_draws_other_tools_for_a_small_size_and_none_for_the_whole_pool():
    pool, asked = asked_of(40)
    chance = numpy.random.default_rng(0)
    scores = {name: chance.random((len(asked), 40)) for name in ("words", "vectors")}
    sizes = [evaluate.ranks(asked, pool, scores, (5,), seed) for seed in (0, 1, 2, 3, 0)]
    assert [[*of_seed] for of_seed in sizes] == [[5, 40]] * 5
    assert len({str(of_seed[5]) for of_seed in sizes}) == 4
    assert len({str(of_seed[40]) for of_seed in sizes}) == 1


def test_a_tool_that_no_pool_has_is_missed_and_still_due():
    one = record("do what nobody can", "get_rain", "unheard_of")
    pool = read_pool([one], []).pool
    asked = queries([one], pool)
    scores = numpy.array([[9.0, 1.0, 1.0, 1.0]])
    found = evaluate.ranks(asked, pool, {"a": scores}, (), 0)
    assert (found, len(asked[0].names)) == ({4: {"a": [(1,)]}}, 2)


@pytest.mark.long
def test_new_tools_have_figures_of_their_own():
    pool, asked = asked_of(30)
    found = evaluate.ranks(asked, pool, {"a": numpy.zeros((len(asked), 30))}, (10,), 0)
    values = evaluate.metric_values(asked, found, 5)
    figures = evaluate.metric_table(asked, values, {"tool_0", "tool_3"}, 0)
    counts = {view: methods["a"]["mrr of 30"]["count"] for view, methods in figures.items()}
    assert counts == {"all": 10, "new tools": 8}


# --- what is learned from ---


@st.composite
def crowds(draw):
    """Questions, some equal, over tools of which some have twins and versions."""
    count = draw(st.integers(12, 30))
    chance = random.Random(draw(st.integers(0, 99)))
    tools = [
        tool(f"group{number % 3}.name_{number}", f"does {number - number % 2}", "x")
        for number in range(count)
    ]
    tools += [tool(one.name, one.description, "x", "y") for one in tools[:4]]
    records = [
        record(
            f"question about {chance.choice(TOWNS)}",
            *{chance.choice(tools).name for _ in range(2)},
            tools=tuple(tools[:count]),
        )
        for _ in range(draw(st.integers(8, 30)))
    ]
    pool = read_pool([*records, record("x", tools=tuple(tools[count:]))], []).pool
    return pool, queries(records, pool)


@given(crowds(), st.integers(0, 4))
@settings(max_examples=examples(30))
def test_a_wrong_tool_is_never_one_that_is_due_nor_the_same_under_another_name(crowd, count):
    pool, asked = crowd
    expected = {
        text: {name for query in asked if query.text == text for name in query.names}
        for text in {query.text for query in asked}
    }
    found = training_pairs.find_pairs(asked, pool, [bm25(pool.texts)], count, seed=1)
    assert len(found) == sum(len(query.tool_indices) for query in asked)
    for pair in found:
        right = pool.tools[pair.tool_indices[0]]
        wrong = [pool.tools[place] for place in pair.tool_indices[1:]]
        same = {
            one.name
            for one in pool.tools
            if (one.description, one.parameters) == (right.description, right.parameters)
        }
        free = len(pool.names) - len(
            expected[pair.query] | same
        )  # of a small pool nearly every tool may be right
        assert len({one.name for one in wrong}) == len(wrong) >= min(count, free)
        assert len(training_pairs.with_wrong_tools(pair, count).negatives) == min(count, free)
        assert not {one.name for one in wrong} & expected[pair.query]
        assert all(
            (one.description, one.parameters) != (right.description, right.parameters)
            for one in wrong
        )


def test_in_a_batch_no_rows_right_tool_stands_among_anothers():
    pool, asked = asked_of(90)
    found = training_pairs.find_pairs(asked, pool, [bm25(pool.texts)], 2, seed=0)
    rows = training_pairs.make_batches(found, 8, 20, 2, seed=0)
    assert len(rows) == 160
    for start in range(0, 160, 8):
        batch = rows[start : start + 8]
        names = [{pair.tool, *pair.negatives} for pair in batch]
        assert all(len(pair.negatives) == 2 for pair in batch)
        assert not any(
            names[other] & {*one.right}
            for number, one in enumerate(batch)
            for other in range(8)
            if number != other
        )
    seen = [sum(pair.tool == one.tool for pair in rows) for one in found]
    assert (min(seen), max(seen)) in ((4, 6), (5, 6))  # 160 rows for 30 pairs, epoch after epoch


# --- what is retrieved ---


def offers(k: int, missing: str = "left out") -> ToolOffers:
    pool = read_pool([record("x", "get_rain")], []).pool
    return ToolOffers(pool, bm25(pool.texts), k, "bm25", missing)


@pytest.mark.parametrize("k", [2, 3])
def test_to_be_learned_the_tools_that_are_due_at_any_turn_are_offered(k):
    due = ("find_train", "toss_coin")
    calls = [Message("assistant", calls=(Call(name, {}, f"c{name}"),)) for name in due]
    asked = "how much rain is in town"
    said = (Message("user", asked), calls[0], Message("tool", "9:00", call_id="cfind_train"))
    long = Record(messages=(*said, Message("user", asked), calls[1]), tools=FOUR)
    found = offers(k, "added").offer(long)
    assert len(found.tools) == k and {*due} <= {one.name for one in found.tools}
    assert found.meta[RETRIEVED]["expected"] == 2
    assert offers(1).offer(long).meta[RETRIEVED]["missing"] == [*due]
