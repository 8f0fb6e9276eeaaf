"""Scores by words and by vectors against their formulas; the text of a tool, questions, offers."""

import json
import math

import numpy
import pytest

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.formats.sage import ANY_PARAMETERS
from agentlite.retrieval import rankers
from agentlite.retrieval.tool_pool import read_pool, text_of
from agentlite.scoring.metrics.summarize import RETRIEVED
from agentlite.stages.tool_retrieval import ToolOffers, count_record


def test_a_word_ends_at_a_change_of_case_and_at_no_accent():
    asked = "getWeatherInfo_v2 HTTPServer année Größe Đà_Nẵng погода 天气预报"
    parts = "get weather info v 2 http server année größe đà nẵng погода 天气 气预 预报"
    assert rankers.words(asked) == parts.split()


TEXTS = ["wet rain in a town", "train to a town", "rain rain rain"]
ASKED = ["rain in town", "town", "snow", "train rain rain"]


def bm25(query, text):
    """Lucene's, with k1 1.5 and b .75."""
    documents = [text.split() for text in TEXTS]
    average = sum(map(len, documents)) / len(documents)
    score = 0.0
    for word in query.split():
        having = sum(word in document for document in documents)
        times = text.split().count(word)
        rarity = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        length = 1 - 0.75 + 0.75 * len(text.split()) / average
        score += rarity * times / (times + 1.5 * length)
    return score


@pytest.mark.long
def test_bm25_scores_by_its_formula():
    scores = rankers.bm25(TEXTS)(ASKED)
    assert scores.dtype == numpy.float32
    expected = [[bm25(query, text) for text in TEXTS] for query in ASKED]
    assert scores.tolist() == [pytest.approx(row, abs=1e-5) for row in expected]


def tool(name, description="", **parameters):
    return Tool(name, description, {"type": "object", "properties": parameters})


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (tool("rain"), "rain:"),
        (tool("rain", " Is it wet? "), "rain: Is it wet?"),
        (
            tool("rain", "Wet?", town={"description": "where"}, day={}, hour={"description": 3}),
            "rain: Wet? town (where); day; hour",
        ),
        (Tool("rain", "Wet?", {"type": "object", "properties": 3}), "rain: Wet?"),
        (Tool("rain", "Wet?", {}), "rain: Wet?"),
    ],
)
def test_a_tool_is_found_by_its_name_description_and_parameters(one, text):
    assert text_of(one) == text


def asking(*texts, calls=(), tools=(), gold=None, task="general"):
    messages = tuple(Message("user", text) for text in texts)
    made = tuple(Call(name, {}, f"c{n}") for n, name in enumerate(calls))
    return Record(
        messages=(*messages, Message("assistant", "", made)),
        tools=tools,
        gold=gold or {},
        task=task,
    )


RAIN, TRAIN, MAIL = tool("rain", "Is it wet?"), tool("train"), tool("mail")


# --- offers ---


def offers(k, missing="left out", count=20):
    pool = read_pool(
        [asking("x", tools=tuple(tool(f"t{n}", f"word{n}") for n in range(count)))], []
    )

    def ranker(texts):
        return numpy.array([[-n for n in range(count)] for _ in texts], numpy.float32)

    return ToolOffers(pool.pool, ranker, k, "bm25", missing)


def names(record):
    return {one.name for one in record.tools}


@pytest.mark.parametrize(("k", "declared", "count"), [(3, 1, 3), (3, 5, 5), (1, 1, 1)])
def test_where_no_call_is_expected_the_rest_are_of_the_less_likely_half(k, declared, count):
    own = tuple(tool(f"own{n}") for n in range(declared))
    asked = asking("what do you think of it", tools=own)
    found = offers(k).offer(asked)
    assert names(found) >= {one.name for one in own} and len(found.tools) == count
    assert {int(name[1:]) for name in names(found) if name[0] == "t"} <= {*range(10, 20)}
    assert found.meta[RETRIEVED] == {"k": k, "by": "bm25", "expected": 0}
    assert count_record(found)["without_call"] == 1 and offers(k).offer(asked) == found
    assert not count_record(asked)


# --- files of tools ---


def pool_file(tmp_path, *rows):
    path = tmp_path / "tools.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path, read_pool([], [str(path)])


def test_a_tool_without_a_description_and_a_broken_example_are_problems_with_their_place(tmp_path):
    example = {"instruction": "Wet?", "arguments": {"city": "Oslo"}}
    sage = {
        "tool_id": "rain_1",
        "name": "Rain",
        "category": "weather",
        "capabilities": ["rain of today"],
        "inputs": [{"name": "city", "type": "string", "required": True, "description": "a town"}],
        "outputs": [],
        "invoke_examples": [example, 3, {**example, "instruction": "Is it wet?"}],
    }
    path, read = pool_file(tmp_path, tool("mute", " ").schema, sage, tool("mute", " ").schema)
    mute, broken = read.problems
    assert (mute["location"], mute["code"]) == (f"{path}:1", "no description")
    assert {*broken} == {"location", "code", "problem"} and broken["location"] == f"{path}:2"
    assert broken["code"] == "E201" and broken["problem"].startswith("an example of it: ")
    assert [one.messages[0].content for one in read.examples] == ["Wet?", "Is it wet?"]


@pytest.mark.parametrize("missing", ["added", "left out"])
def test_an_expected_tool_is_not_the_only_one_without_a_description(missing):
    own = Tool("t1", "", ANY_PARAMETERS)
    asked = asking("a question of some length", calls=("t1",), tools=(own,))
    found = offers(3, missing).offer(asked)
    assert {one.name: one.description for one in found.tools} == {
        f"t{n}": f"word{n}" for n in range(3)
    }
    assert found.meta[RETRIEVED]["other_schema"] == []
    unasked = offers(3, missing).offer(asking("what do you think of it", tools=(own,)))
    assert "" not in {one.description for one in unasked.tools}
