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
from agentlite.config.settings import QueriesSettings
from agentlite.core.errors import NETWORK, OTHER_PLAN, REJECTS, UserError
from agentlite.core.records import Tool, digest
from agentlite.core.row_files import read_rows, write_rows
from agentlite.data.prompt_records import Prompts
from agentlite.engine import sentence_encoder
from agentlite.environments.simulators import SimulatorReply
from agentlite.retrieval.rankers import words
from agentlite.stages.queries.requests import NearQueries, near_queries, read_reply, request
from agentlite.stages.queries.seeds import SeedQuery, find_seeds

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
    write_rows(path, [{"text": text.format(name)} for text in ASKED.values() for name in NAMES])
    return path


def make(folder, server, texts, **options):
    defaults = {
        "queries": str(texts),
        "endpoint": (server.url,),
        "model": "teacher",
        "num_queries": 6,
        "clusters": 3,
        "per_request": 2,
        "endpoint_tries": 1,
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
    # each stands beside the seeds that its request has shown, and is counted where it is nearest
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


SEEDS = [SeedQuery("Wet in Oslo?"), SeedQuery("明天下雨吗？")]


def fault_of(text, seed=0):
    near = NearQueries(0, (seed,))
    said = json.dumps([text], ensure_ascii=False)
    (one,) = read_reply(SimulatorReply("", said), near, SEEDS)
    assert (one.text, one.near) == (text.strip(), near)
    return one.fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Is it ok", ""),  # eight bytes
        ("Is it o", "nonsense"),
        ("12345678?", "nonsense"),
        ("wet " + "abcdefghijklmnopqrstuvwxyz " * 73, ""),
        ("wet " + "abcdefghijklmnopqrstuvwxyz " * 74, "nonsense"),  # 2002 characters
        *((f"Fly me to {place} now", "nonsense") for place in ("<city>", "[your name]", "{date}")),
        *((f"Fly me to {place} now", "") for place in ("<5>", "[1]", "{}", "a...", "<x>")),
        ("...", "nonsense"),
        ("“...”", "nonsense"),
        ("It is wet " + "!" * 7, ""),
        ("It is wet " + "!" * 8, "nonsense"),
        ("Go: " + "turn left, " * 8, "nonsense"),
        ("明天下雨吗", "other language"),
    ],
)
def test_a_query_is_nonsense_from_certain_bounds_on(text, fault):
    assert fault_of(text) == fault


def test_a_query_is_in_the_script_of_any_query_near_it():
    assert fault_of("明天下雨吗", seed=1) == "" and fault_of("Wet in Rome?", seed=1)
    both = NearQueries(0, (0, 1))
    said = 'Here: [1] is one. ["Wet in Rome?", "奥斯陆下雨吗", 7, {"q": "雨"}]'
    assert [one.fault for one in read_reply(SimulatorReply("", said[17:]), both, SEEDS)] == [
        *("", "", "not a text", "not a text")
    ]
    (first,) = read_reply(SimulatorReply("", said), both, SEEDS)
    assert (first.text, first.fault) == ("1", "not a text")  # the first list is the answer
    (broken,) = read_reply(SimulatorReply("", "[so"), both, SEEDS)
    assert (broken.text, broken.fault) == ("[so", "not a list")


def test_clusters_take_turns_and_the_nearest_of_the_anchor_are_shown():
    angles = numpy.array([0.0, 0.1, 0.3, 0.6, 1.0, 1.5])
    vectors = numpy.stack([numpy.cos(angles), numpy.sin(angles)], 1)
    labels = [0, 0, 1, 0, 1, 0]
    settings = QueriesSettings(near=3)
    anchors = {0: set(), 1: set()}
    for turn in range(60):
        near = near_queries(settings, labels, vectors, turn)
        assert near == near_queries(settings, labels, vectors, turn)
        assert near.cluster == turn % 2
        members = [at for at, label in enumerate(labels) if label == near.cluster]
        first, *others = near.seeds
        far = sorted({*members} - {first}, key=lambda at: abs(angles[at] - angles[first]))
        assert others == far[:2]
        anchors[near.cluster].add(first)
    assert anchors == {0: {0, 1, 3, 5}, 1: {2, 4}}
    other = [near_queries(QueriesSettings(near=3, seed=1), labels, vectors, at) for at in range(9)]
    assert other != [near_queries(settings, labels, vectors, at) for at in range(9)]


def test_a_request_shows_queries_and_tools_on_a_line_each_and_no_more_than_is_read():
    tools = tuple(Tool(f"tool_{n}", "Does\n" + "a" * 600) for n in range(14))
    seeds = [SeedQuery("Wet\n in  Oslo?" + "b" * 600, tools), SeedQuery("And now?")]
    settings = QueriesSettings(per_request=7, seed=3)
    text = request(settings, NearQueries(0, (0, 1)), seeds, 5).messages[0]["content"]
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert lines[0] == "- Wet in Oslo?" + "b" * 488 and lines[1] == "- And now?"
    assert lines[2:] == [f"- tool_{n}: Does " + "a" * 495 for n in range(12)]
    assert "Write 7 new requests" in text and "list of 7 strings" in text
    sampling = request(settings, NearQueries(0, (0,)), seeds, 5).parameters
    assert sampling["temperature"] == settings.temperature
    assert (sampling["max_tokens"], sampling["seed"]) == (settings.max_new_tokens, 300_005)
    bare = request(settings, NearQueries(0, (1,)), seeds, 5).messages[0]["content"]
    assert "The tools:" not in bare


def test_a_query_that_was_made_before_is_a_copy(tmp_path, server, texts):
    server.replies = {1: good({"seed": 0})}
    figures = make(tmp_path, server, texts).figures
    assert figures["dropped"] == {"copy": 2} and figures["kept"] == 6


def test_a_teacher_that_only_repeats_itself_ends(tmp_path, server, texts):
    server.replies = dict.fromkeys(range(99), good({"seed": 0}))
    figures = make(tmp_path, server, texts).figures
    assert figures["kept"] == 2 and figures["wanted"] == 6
    assert figures["requests"] == 3 + 3 * 2 and figures["dropped"] == {"copy": 2 * 9 - 2}
    server.replies = dict.fromkeys(range(99), "No.")
    with pytest.raises(UserError, match="not a list") as refused:
        make(tmp_path, server, texts, out="none")
    assert refused.value.exit_code == REJECTS


@pytest.mark.parametrize("count", [1, 3])
def test_a_killed_run_asks_nothing_again_that_was_answered(tmp_path, server, texts, count):
    run = partial(make, server=server, texts=texts, num_queries=10, concurrency=1)
    with stops_at(count), pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed")
    run(tmp_path / "killed")
    asked = Counter(json.dumps(body, sort_keys=True) for body in server.bodies)
    assert asked.total() - len(asked) <= 1  # the one that was under way
    run(tmp_path / "whole")
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    before = len(server.bodies)
    assert run(tmp_path / "killed").status == "up to date" and len(server.bodies) == before


def test_a_server_that_stops_ends_the_run_and_the_same_command_carries_on(tmp_path, server, texts):
    server.replies = {1: "REFUSES"}
    with pytest.raises(UserError) as refused:
        make(tmp_path, server, texts)
    assert refused.value.exit_code == NETWORK
    server.replies, before = {}, len(server.bodies)
    assert make(tmp_path, server, texts).figures["kept"] == 6
    assert len(server.bodies) == before + 1


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


def test_of_queries_that_differ_in_case_and_marks_alone_the_first_is_a_seed(tmp_path):
    path = tmp_path / "texts.jsonl"
    write_rows(path, ["Wet in Oslo?", {"query": "Dry in Rome?"}, "wet in OSLO!", "dry in rome"])
    found = find_seeds(QueriesSettings(queries=str(path)), tmp_path)
    assert found.queries == [SeedQuery("Wet in Oslo?"), SeedQuery("Dry in Rome?")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no rows in it"),
        (b'{"a": 1}\n', "not a query"),
        (b"oops\n", "not a query"),
        (b'["a text"]\n', "not a query"),
        (b'" "\n', "not a query"),
        (b'"a text', "not a query"),
    ],
)
def test_a_file_without_queries_is_refused(tmp_path, server, content, problem):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=problem):
        make(tmp_path, server, path)
    assert server.bodies == []


@pytest.mark.torch
@pytest.mark.long
def test_the_embedded_encoder_groups_queries_by_what_they_are_about(tmp_path, scripted, texts):
    figures = make(tmp_path, scripted, texts).figures
    sizes = [one["seeds"] for one in figures["clusters"]]
    assert len(sizes) == 3 and min(sizes) >= 4  # of five weathers, flights and songs


@pytest.mark.parametrize(("clusters", "found"), [(None, 2), (1, 1), (99, 15)])
def test_seeds_are_grouped_by_their_number_where_nobody_says_how(
    tmp_path, server, texts, clusters, found
):
    """As many clusters as the root of half of them; never more than there are seeds."""
    figures = make(tmp_path, server, texts, clusters=clusters).figures
    assert len(figures["clusters"]) == found and figures["seeds"] == 15
    dry = make(tmp_path, server, texts, out="never", dry_run=True).figures
    assert dry == {"folder": "new", "seeds": 15, "wanted": 6}


def test_no_more_queries_are_kept_than_are_wanted(tmp_path, server, texts):
    figures = make(tmp_path, server, texts, num_queries=5).figures
    assert (figures["kept"], figures["requests"], len(rows(tmp_path))) == (5, 3, 5)


@pytest.mark.parametrize("name", ["texts.jsonl", "held.jsonl"])
def test_other_seeds_or_other_rows_held_out_are_another_plan(tmp_path, server, texts, name):
    held = tmp_path / "held.jsonl"
    write_rows(held, [{"text": HELD}])
    assert make(tmp_path, server, texts, holdout=(str(held),)).status == "done"
    (tmp_path / name).write_text('{"text": "Is it wet in Turin?"}\n', encoding="utf-8")
    with pytest.raises(UserError) as refused:
        make(tmp_path, server, texts, holdout=(str(held),))
    assert refused.value.exit_code == OTHER_PLAN and name in str(refused.value)
