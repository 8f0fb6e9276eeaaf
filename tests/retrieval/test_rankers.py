"""Scores by words and by vectors against their formulas; the text of a tool, questions, offers."""

import json
import math
from collections import Counter

import numpy
import pytest
from msgspec.structs import replace

from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Message, Record, Tool
from agentlite.data.formats.sage_tools import OPEN
from agentlite.retrieval import evaluate, index
from agentlite.retrieval.offer_tools import META, ToolOffers, counted
from agentlite.retrieval.queries import queries, questions
from agentlite.retrieval.rankers import BY_WORDS, by_vectors, fused, words
from agentlite.retrieval.tool_pool import ToolPool, group_of, read_pool, text_of

TEXTS = ["wet rain in a town", "train to a town", "rain rain rain"]
ASKED = ["rain in town", "town", "snow", "train rain rain"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("getRainToday", ["get", "rain", "today"]),
        ("HTTPServer2go", ["http", "server", "2", "go"]),
        ("snake_case-name", ["snake", "case", "name"]),
        ("Oslo's 4 mm", ["oslo", "s", "4", "mm"]),
        ("天气", ["天气"]),
        ("天", ["天"]),
        ("今天天气", ["今天", "天天", "天气"]),
        ("カナ한글", ["カナ", "ナ한", "한글"]),
        ("МОСКВА", ["москва"]),
        ("?! _", []),
    ],
)
def test_a_text_has_its_words_in_lower_case(text, found):
    assert words(text) == found


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


def tfidf(query, text):
    """The cosine, with 1 + ln of the counts, and 1 + ln of (1 + texts) / (1 + those with it)."""

    def vector(of):
        rarity = {
            word: 1 + math.log((1 + len(TEXTS)) / (1 + sum(word in one.split() for one in TEXTS)))
            for word in " ".join(TEXTS).split()
        }
        counts = Counter(word for word in of.split() if word in rarity)
        weights = {word: (1 + math.log(n)) * rarity[word] for word, n in counts.items()}
        length = math.sqrt(sum(weight**2 for weight in weights.values())) or 1
        return {word: weight / length for word, weight in weights.items()}

    one, other = vector(query), vector(text)
    return sum(weight * other.get(word, 0) for word, weight in one.items())


def keyword(query, text):
    return len({*query.split()} & {*text.split()}) / len({*query.split()})


@pytest.mark.long
@pytest.mark.parametrize("reference", [keyword, tfidf, bm25], ids=lambda one: one.__name__)
def test_a_ranker_scores_by_its_formula(reference):
    scores = BY_WORDS[reference.__name__](TEXTS)(ASKED)
    assert scores.dtype == numpy.float32
    expected = [[reference(query, text) for text in TEXTS] for query in ASKED]
    assert scores.tolist() == [pytest.approx(row, abs=1e-5) for row in expected]


def test_vectors_are_compared_by_their_cosine_and_ranks_are_fused_as_published():
    vectors = numpy.array([[1.0, 0.0], [0.6, 0.8]])
    ranker = by_vectors(vectors, lambda texts: numpy.array([[0.8, 0.6]] * len(texts)))
    assert ranker(["a", "b"]).tolist() == [pytest.approx([0.8, 0.96])] * 2
    first, other = numpy.array([[3.0, 2.0, 1.0]]), numpy.array([[1.0, 5.0, 5.0]])
    assert fused(first, other)[0].tolist() == pytest.approx(
        [1 / 61 + 1 / 63, 1 / 62 + 1 / 62, 1 / 63 + 1 / 62]
    )


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


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("weather.get", "weather"),
        ("weather/get", "weather"),
        ("weather:get", "weather"),
        ("weather__get", "weather"),
        ("Movies_3_Find", "Movies"),
        ("get_rain", ""),
        ("weather.", ""),
        (".get", ""),
    ],
)
def test_a_tools_group_is_what_its_name_says(name, group):
    assert group_of(name) == group
    pool = ToolPool()
    assert (pool.add(tool(name)), pool.add(tool(name, "x"), "named"), pool.add(tool(name))) == (
        0,
        1,
        0,
    )
    assert [entry.category for entry in pool.entries] == [group, "named"]
    assert (pool.place_of(tool(name, "x")), pool.place_of(tool("z"))) == (1, None)


def asking(*texts, calls=(), tools=(), gold=None, task="general"):
    messages = tuple(Message("user", text) for text in texts)
    made = tuple(Call(name, {}, f"c{n}") for n, name in enumerate(calls))
    return Record(
        messages=(*messages, Message("assistant", "", made)),
        tools=tools,
        gold=gold or {},
        task=task,
    )


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["Yes, please do.", "a" * 16], ["Yes, please do.", "a" * 16]),
        (
            ["How wet is it now?", "a" * 15],
            ["How wet is it now?", f"How wet is it now?\n{'a' * 15}"],
        ),
        (["How wet is it now?", "天" * 6], ["How wet is it now?", "天" * 6]),
        (
            ["How wet is it now?", "天" * 5],
            ["How wet is it now?", f"How wet is it now?\n{'天' * 5}"],
        ),
        ([" ", " Hi there, is it wet? ", ""], ["Hi there, is it wet?"]),
        (["aaaa", "b", "c"], ["aaaa", "aaaa\nb", "aaaa\nb\nc"]),
    ],
)
def test_a_question_of_fewer_than_16_bytes_comes_with_the_one_before_it(texts, found):
    assert questions(asking(*texts)) == found


RAIN, TRAIN, MAIL = tool("rain", "Is it wet?"), tool("train"), tool("mail")


def test_a_query_has_each_expected_name_once_and_the_entries_that_its_record_offers():
    other = tool("rain", "another one")
    record = asking(
        "x", calls=("rain", "gone", "rain", "mail"), tools=(other, MAIL), task="general"
    )
    pool = ToolPool()
    for one in (RAIN, MAIL, other):
        pool.add(one)
    (found,) = queries([record], pool)
    assert found == ((record.id, 1), "x", ("rain", "gone", "mail"), (2, 1), "general")
    anything = asking("x", tools=(RAIN,), gold={1: Gold((GoldCall(ANY_TOOL, {}),))})
    assert queries([anything, asking("x", tools=(RAIN,))], pool) == []


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


def test_the_likeliest_tools_are_offered_in_an_order_that_says_nothing():
    own = tool("t1", "word1")
    orders = set()
    for n in range(30):
        asked = asking(f"a question, number {n}", calls=("t1",), tools=(own,))
        found = offers(3).offer(asked)
        assert names(found) == {"t0", "t1", "t2"} and found.parent == asked.id
        orders.add(tuple(one.name for one in found.tools))
    assert len(orders) == 6


@pytest.mark.parametrize(
    ("expected", "offered"),
    [
        (("t9",), {"t0", "t1", "t9"}),
        (("t9", "t8"), {"t0", "t8", "t9"}),
        (("t9", "t1"), {"t0", "t1", "t9"}),
        (("t9", "t2"), {"t0", "t2", "t9"}),
        (("t9", "t8", "t7", "t6"), {"t6", "t7", "t8", "t9"}),
        (("t1", "unknown"), {"t0", "t1", "t2"}),
    ],
)
def test_expected_tools_take_the_places_of_the_least_likely_that_are_not_expected(
    expected, offered
):
    own = tuple(tool(name, f"word{name[1:]}") for name in expected if name != "unknown")
    asked = asking("a question of some length", calls=expected, tools=own)
    found = offers(3, "added").offer(asked)
    assert names(found) == offered
    missing = sorted({*expected} - {"t0", "t1", "t2"})
    assert found.meta[META] == {
        "k": 3,
        "by": "bm25",
        "expected": len(expected),
        "missing": missing,
        "other_schema": [],
    }
    assert names(offers(3).offer(asked)) == {"t0", "t1", "t2"}
    assert counted(found) == {
        "records": 1,
        "without_call": 0,
        "missing": int(bool(missing)),
        "other_schema": 0,
    }


@pytest.mark.parametrize(("k", "declared", "count"), [(3, 1, 3), (3, 5, 5), (1, 1, 1)])
def test_where_no_call_is_expected_the_rest_are_of_the_less_likely_half(k, declared, count):
    own = tuple(tool(f"own{n}") for n in range(declared))
    asked = asking("what do you think of it", tools=own)
    found = offers(k).offer(asked)
    assert names(found) >= {one.name for one in own} and len(found.tools) == count
    assert {int(name[1:]) for name in names(found) if name[0] == "t"} <= {*range(10, 20)}
    assert found.meta[META] == {"k": k, "by": "bm25", "expected": 0}
    assert counted(found)["without_call"] == 1 and offers(k).offer(asked) == found
    assert not counted(asked)


def test_unlikely_tools_differ_by_record_and_stay_for_each():
    pool = offers(3).pool
    scores = numpy.array([[-float(n) for n in range(20)]])
    found = {seed: index.unlikely(scores, pool, 4, seed) for seed in "abcdef"}
    assert all(len({*one}) == 4 and min(one) >= 10 for one in found.values())
    assert len({tuple(one) for one in found.values()}) > 1
    assert (
        index.unlikely(scores, pool, 99, "a") and len(index.unlikely(scores, pool, 99, "a")) == 10
    )
    top = numpy.array([[float(n) for n in range(20)], [19.0 - n for n in range(20)]])
    assert {*index.unlikely(top, pool, 10, "a")} == {*range(5, 15)}  # likely for no question


# --- evaluation ---


def test_views_hold_the_questions_that_they_name():
    pool = read_pool([asking("x", tools=(RAIN, TRAIN, MAIL))], []).pool
    records = [
        asking("the first question of all", calls=("rain",), tools=(RAIN,)),
        asking("the second question of all", calls=("mail", "rain"), tools=(RAIN, MAIL)),
        asking(
            "the third question of all", calls=("train",), tools=(TRAIN,), task="tool_retrieval"
        ),
    ]
    asked = queries(records, pool)
    scores = {
        "a": numpy.array([[3.0, 2.0, 1.0]] * 3),
        "b": numpy.array([[1.0, 2.0, 3.0]] * 3),
    }
    found = list(evaluate.ranks(asked, pool, scores, (2, 2, 9), 0, ("a", "b")))
    assert [one.size for one in found] == [2, 3]
    assert [one.ranks for one in found[1].by_method["a"]] == [(1,), (1, 3), (2,)]
    assert [one.ranks for one in found[1].by_method["b"]] == [(3,), (1, 3), (2,)]
    figures = evaluate.figures(asked, found, (1,), {"rain"}, 0)
    counts = {view: sizes["3"]["b"]["mrr"]["count"] for view, sizes in figures.items()}
    assert counts == {"all": 3, "new tools": 1, "known tools": 2, "tool_retrieval": 1}
    assert figures["all"]["3"]["a"]["hit@1"]["mean"] == pytest.approx(2 / 3)
    assert {*figures["all"]["2"]} == {"a", "b", "hybrid"}
    rows = evaluate.differences(asked, found, "mrr", "a", {"rain"}, 0)
    gained = {(one["view"], one["tools"], one["first"]): one for one in rows}
    assert {one["second"] for one in rows} == {"a"} and {one["metric"] for one in rows} == {"mrr"}
    assert {first for *_, first in gained} == {"b", "hybrid"}
    assert gained["all", 3, "b"]["mean"] == pytest.approx((1 - 1 / 3) / 3)
    assert gained["all", 3, "b"]["count"] == 3 and len(gained) == 2 * 2 * 4
    unknown = evaluate.differences(asked, found, "mrr", "a", set(), 0)
    assert {one["view"] for one in unknown} == {"all", "new tools", "tool_retrieval"}


def test_at_a_small_size_each_question_is_asked_among_its_own_tools_and_the_same_others():
    """A likelier wrong tool counts only where it is among the others."""
    tools = tuple(tool(f"t{n}") for n in range(6))
    pool = read_pool([asking("x", tools=tools)], []).pool
    asked = queries(
        [asking(f"question number {n}, please", calls=(f"t{n}",), tools=tools) for n in range(6)],
        pool,
    )
    scores = numpy.array([[1.0 if n == m else 2.0 for m in range(6)] for n in range(6)])
    found = list(evaluate.ranks(asked, pool, {"a": scores}, (1, 4), 0, ("a", "a")))
    by_size = {one.size: {r.ranks for r in one.by_method["a"]} for one in found}
    assert by_size == {1: {(1,)}, 4: {(4,)}, 6: {(6,)}}
    again = list(evaluate.ranks(asked, pool, {"a": scores}, (1, 4), 0, ("a", "a")))
    assert again == found


def test_an_index_names_the_files_that_it_wrote(tmp_path):
    pool = offers(3).pool
    assert index.write(index.ToolIndex(pool, numpy.eye(20)), tmp_path) == [
        "index/tools.jsonl",
        "index/vectors.npy",
    ]
    back = index.read(tmp_path)
    assert back.pool.names == pool.names and back.vectors.dtype == numpy.float32


def test_an_index_is_written_whole(tmp_path, disk_calls):
    index.write(index.ToolIndex(offers(3).pool, numpy.eye(20)), tmp_path)
    renamed = [call.split()[-1] for call in disk_calls if call.startswith("rename")]
    assert renamed == ["tools.jsonl", "vectors.npy"]


# --- files of tools ---


def pool_file(tmp_path, *rows):
    path = tmp_path / "tools.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path, read_pool([], [str(path)])


def test_a_row_of_a_file_may_be_one_tool_or_several_and_name_their_category(tmp_path):
    rain, train = RAIN.schema, tool("train", "To where?").schema
    mail, coin = tool("mail", "To whom?").schema, tool("a.coin", "Which?").schema
    _, read = pool_file(tmp_path, {**rain, "category": "wet"}, {"tools": [train, mail]}, coin)
    assert [(one.tool.name, one.category) for one in read.pool.entries] == [
        ("rain", "wet"),
        ("train", ""),
        ("mail", ""),
        ("a.coin", "a"),
    ]
    assert read.problems == [] and read.examples == []


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
    assert mute == {
        "location": f"{path}:1",
        "code": "no description",
        "problem": "mute has no description: it is found only by its name and parameters",
    }
    assert {*broken} == {"location", "code", "problem"} and broken["location"] == f"{path}:2"
    assert broken["code"] == "E201" and broken["problem"].startswith("an example of it: ")
    assert [one.messages[0].content for one in read.examples] == ["Wet?", "Is it wet?"]


def test_the_tools_of_records_come_before_those_of_files(tmp_path):
    path, _ = pool_file(tmp_path, MAIL.schema, RAIN.schema)
    record = asking("x", tools=(TRAIN, RAIN))
    read = read_pool([record], [str(path)])
    assert [*read.pool.names] == ["train", "rain", "mail"]
    assert [problem["location"] for problem in read.problems] == [
        f"record {record.id}",
        f"{path}:1",
    ]


def test_a_record_made_from_another_keeps_its_parent_and_its_meta():
    asked = asking("a question of some length", calls=("t1",), tools=(tool("t1", "word1"),))
    child = replace(asked, parent="first", meta={"level": "hard"})
    found = offers(3).offer(child)
    assert found.parent == "first" and {*found.meta} == {"level", META}
    assert offers(3).offer(asked).parent == asked.id


def test_only_an_expected_tool_has_the_schema_that_its_record_declares():
    own = (tool("t0", "another t0"), tool("t1", "another t1"))
    asked = asking("a question of some length", calls=("t1",), tools=own)
    found = offers(3, "added").offer(asked)
    assert by_name(found) == [tool("t0", "word0"), own[1], tool("t2", "word2")]
    assert found.meta[META]["other_schema"] == ["t1"] and counted(found)["other_schema"] == 1
    assert by_name(offers(3).offer(asked)) == [tool(f"t{n}", f"word{n}") for n in range(3)]


def by_name(record):
    return sorted(record.tools, key=lambda one: one.name)


def test_a_pool_can_be_made_of_entries():
    first = offers(3, count=3).pool
    first.add(tool("t0", "another"), "named")
    again = ToolPool(first.entries)
    assert again.entries == first.entries and again.versions == first.versions == {"t0": 2}
    assert again.texts == [text_of(entry.tool) for entry in first.entries]


ID_ALONE = Tool("rain", "", OPEN)


def test_a_tool_that_is_an_id_alone_is_no_entry_beside_the_one_that_describes_it(tmp_path):
    path = tmp_path / "tools.jsonl"
    path.write_text(json.dumps(RAIN.schema) + "\n")
    tide = Tool("tide", "", OPEN)
    asked = asking("Is it wet in Oslo today?", calls=("rain",), tools=(ID_ALONE, tide))
    for read in (
        read_pool([asked], [str(path)]),
        read_pool([asked, asking("x", tools=(RAIN,))], []),
        read_pool([asking("x", tools=(RAIN,)), asked], []),
    ):
        assert [entry.tool for entry in read.pool.entries] == [RAIN, tide]
        assert not read.pool.versions
        assert [one["problem"].split()[0] for one in read.problems] == ["tide"]
        (query,) = queries([asked], read.pool)
        assert query.tool_indices == (0,)


@pytest.mark.parametrize("missing", ["added", "left out"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_tool_that_is_an_id_alone_is_offered_as_the_pool_describes_it(missing, place):
    own = Tool(f"t{place}", "", OPEN)
    asked = asking("a question of some length", calls=(own.name,), tools=(own,))
    for k in (3, 1):
        tools = offers(k, missing).offer(asked).tools
        assert all(one.description == one.name.replace("t", "word") for one in tools)
        assert own.name in {one.name for one in tools} or missing == "left out"


@pytest.mark.parametrize("missing", ["added", "left out"])
def test_an_expected_tool_is_not_the_only_one_without_a_description(missing):
    own = Tool("t1", "", OPEN)
    asked = asking("a question of some length", calls=("t1",), tools=(own,))
    found = offers(3, missing).offer(asked)
    assert {one.name: one.description for one in found.tools} == {
        f"t{n}": f"word{n}" for n in range(3)
    }
    assert found.meta[META]["other_schema"] == []
    unasked = offers(3, missing).offer(asking("what do you think of it", tools=(own,)))
    assert "" not in {one.description for one in unasked.tools}


def test_an_id_alone_that_no_pool_describes_is_found_nowhere_and_stays_as_it_is():
    unknown = Tool("unheard_of", "", OPEN)
    asked = asking("a question of some length", calls=("unheard_of",), tools=(unknown,))
    pool = offers(3, "added").pool
    assert pool.place_of(unknown) is None and pool.place_of(Tool("t1", "", OPEN)) is not None
    (query,) = queries([asked], pool)
    assert (query.names, query.tool_indices) == (("unheard_of",), ())
    found = offers(3, "added").offer(asked)
    assert unknown in found.tools and found.meta[META]["missing"] == ["unheard_of"]
