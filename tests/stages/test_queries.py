"""`make queries`: scripted teachers, good and bad; copies, leaks and nonsense are dropped and
counted, and a run that is killed asks nothing twice.
"""

import json
import re
from collections import Counter
from functools import partial
from itertools import product

import numpy
import pytest
from support.scripted_server import ScriptedServer
from support.stopped_rows import stops_at

import agentlite
from agentlite.core.records import digest
from agentlite.core.row_files import read_rows, write_rows
from agentlite.data.prompt_records import Prompts
from agentlite.engine import sentence_encoder
from agentlite.retrieval.rankers import words

ASKED = {
    "weather": "What is the weather in {} going to be like next weekend?",
    "flight": "Book me a flight to {} and back, and the cheapest seat there is.",
    "music": "Play some songs by the band {} at a low volume, please.",
}
NAMES = ("Oslo", "Rome", "Kyiv", "Bonn", "Lima")
NEW = [
    f"{how} {what} {who}?"
    for how, what, who in product(
        ("Please tell my uncle about", "I was wondering whether you know", "Kindly look up"),
        ("a ferry from Turku leaving before noon with", "eleven recipes for soup invented by"),
        ("Grandmother Agatha", "the tallest chess master of 1987", "our neighbour's tiny parrot"),
    )
]


def embed(model, texts, advance=lambda done: None):
    """A vector of hashed words: texts of like words are near."""
    rows = numpy.zeros((len(texts), 64), numpy.float32)
    for at, text in enumerate(texts):
        for word in words(text):
            rows[at, int(digest(word), 16) % 64] += 1
    return rows / numpy.maximum(1e-9, numpy.linalg.norm(rows, axis=1, keepdims=True))


@pytest.fixture
def server(scripted, monkeypatch):
    monkeypatch.setattr(sentence_encoder, "load", lambda source, length: None)
    monkeypatch.setattr(sentence_encoder, "embed", embed)
    return scripted


@pytest.fixture
def scripted():
    """`replies`: by the number of the request; any other is two good queries."""
    one = ScriptedServer(lambda body: one.replies.get(number(body), good(body)))
    one.replies = {}
    yield one
    one.close()


def number(body):
    return body["seed"] % 100_000


def good(body):
    at = number(body)
    return json.dumps([NEW[(2 * at + one) % len(NEW)] for one in range(2)])


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    write_rows(path, [{"prompt": text.format(name)} for text in ASKED.values() for name in NAMES])
    return path


def make(folder, server, texts, **options):
    defaults = {
        "queries": str(texts),
        "endpoint": (server.url,),
        "model": "teacher",
        "num_queries": 6,
        "clusters": 3,
        "per_request": 2,
        "requests": {"tries": 1},
    }
    return agentlite.make_queries(run=str(folder), **{**defaults, **options})


def rows(folder, file="queries.jsonl"):
    return [*read_rows(folder / "queries" / file)]


def test_new_queries_are_made_near_those_of_one_cluster_and_counted_by_cluster(
    tmp_path, server, texts
):
    figures = make(tmp_path, server, texts).figures
    assert figures["kept"] == 6 and figures["dropped"] == {} and figures["requests"] == 3
    assert [one["seeds"] for one in figures["clusters"]] == [5, 5, 5]
    assert sum(one["new"] for one in figures["clusters"]) == 6
    shown = [
        re.findall(r"^- (.*)$", body["messages"][0]["content"], re.M)
        for body in sorted(server.bodies, key=number)
    ]
    shapes = [{text.partition(" ")[0] for text in near} for near in shown]
    assert all(len(near) == 4 for near in shown) and all(len(one) == 1 for one in shapes)
    assert len({min(one) for one in shapes}) == 3
    assert [row["prompt"] for row in rows(tmp_path)] == [
        json.loads(good({"seed": at}))[one] for at in range(3) for one in range(2)
    ]
    # each stands beside the seeds that its request has shown, and is counted in their cluster
    assert [row["meta"]["near"] for row in rows(tmp_path)] == [
        near for near in shown for _ in range(2)
    ]
    nearest = Counter(row["meta"]["cluster"] for row in rows(tmp_path))
    assert [one["new"] for one in figures["clusters"]] == [nearest[at] for at in range(3)]
    examples = [one["example"] for one in figures["clusters"]]
    assert {text.partition(" ")[0] for text in examples} == {min(one) for one in shapes}


HELD = "Remind the twins to water the cactus on Thursday at noon"
FAULTS = {
    "not a list": "I'm sorry, I can't help with that.",
    "half JSON": '["Where is the next ferry to Turku leaving from',
    "cut off": {"content": '["Where is the", "next ferry', "finish_reason": "length"},
    "copy": [ASKED["music"].format("Oslo")],
    "near copy": [ASKED["music"].format("Oslo").replace("please", "pleases")],
    "leak": [HELD],
    "near leak": [HELD + " sharp"],
    "not a text": [{"query": "Where is the next ferry?"}],
    "nonsense": ["Book a flight to <city> for [number] people"],
    "letters": ["12345 67890 ?!"],
    "again and again": ["tell me " * 40],
    "other language": ["请问明天奥斯陆的天气怎么样,会下雨吗?"],
}
KIND = {
    "half JSON": "not a list",
    "near copy": "copy",
    "near leak": "leak",
    "letters": "nonsense",
    "again and again": "nonsense",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_dropped_counted_and_asked_for_again(tmp_path, server, texts, fault):
    held = tmp_path / "held.jsonl"
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answered = [
        {"role": "user", "content": HELD},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    tool = {"type": "function", "function": {"name": "f", "description": "F."}}
    write_rows(held, [{"messages": answered, "tools": [tool]}])
    said = FAULTS[fault]
    server.replies = {1: json.dumps(said, ensure_ascii=False) if isinstance(said, list) else said}
    figures = make(tmp_path, server, texts, holdout=(str(held),)).figures
    assert figures["dropped"] == {KIND.get(fault, fault): 1}
    assert figures["kept"] == 6 and figures["requests"] == 4
    (dropped,) = rows(tmp_path, "dropped.jsonl")
    assert dropped["fault"] == KIND.get(fault, fault)
    assert len({row["prompt"] for row in rows(tmp_path)}) == 6


@pytest.mark.parametrize("count", [1, 3])
def test_a_killed_run_asks_nothing_again_that_was_answered(tmp_path, server, texts, count):
    run = partial(make, server=server, texts=texts, num_queries=10, requests={"concurrency": 1})
    with stops_at(count), pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed")
    run(tmp_path / "killed")
    asked = Counter(json.dumps(body, sort_keys=True) for body in server.bodies)
    assert asked.total() - len(asked) <= 1  # the one that was under way
    run(tmp_path / "whole")
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    before = len(server.bodies)
    assert run(tmp_path / "killed").status == "up to date" and len(server.bodies) == before


def test_queries_of_a_prep_keep_the_tools_and_are_prompts_for_pairs(tmp_path, server):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"name": "get_weather", "description": "Weather of a city.", "parameters": parameters}
    dialogs = []
    for name in NAMES:
        function = {"name": "get_weather", "arguments": json.dumps({"city": name})}
        call = {"id": "c0", "type": "function", "function": function}
        messages = [
            {"role": "user", "content": ASKED["weather"].format(name)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        dialogs.append({"messages": messages, "tools": [{"type": "function", "function": tool}]})
    write_rows(tmp_path / "rows.jsonl", dialogs)
    run = {"run": str(tmp_path), "model": "smollm2-135m"}
    agentlite.prep(str(tmp_path / "rows.jsonl"), **run, dev=0.0, test=0.0)
    done = make(tmp_path, server, texts="", clusters=None)
    assert "get_weather: Weather of a city." in server.bodies[0]["messages"][0]["content"]
    found = Prompts(str(tmp_path / "queries/queries.jsonl"), "", "hermes", False)
    records = [*found.records()]
    assert [one.messages[0].content for one in records] == [row["prompt"] for row in rows(tmp_path)]
    assert all([tool.name for tool in one.tools] == ["get_weather"] for one in records)
    assert "agentlite pairs --data" in done.next
