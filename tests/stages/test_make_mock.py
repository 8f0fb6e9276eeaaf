"""`make dialogs --env mock:tools.json`: a model stands for the tools, and judges the dialogs."""

import json
import re
from collections import Counter
from itertools import product
from random import Random
from threading import Lock

import pytest
from support.examples import ALL
from support.scripted_roles import agent, is_user, user
from support.scripted_server import ScriptedServer
from support.scripted_tools import TOOLS, is_judge, made_up, result, roles
from support.stopped_rows import stops_at

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.row_files import read_rows
from agentlite.stages.make.quality import distinct, mean_distance
from agentlite.stages.make.show import shown

pytestmark = pytest.mark.long

KINDS = {"single": 2.0, "parallel": 1.0, "several_turns": 2.0, "missing_parameter": 1.0}


@pytest.fixture
def server():
    one = ScriptedServer(roles)
    yield one
    one.close()


def make(folder, server, name="run", tools=TOOLS, **options):
    (folder / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    defaults = {
        "env": f"mock:{folder / 'tools.json'}",
        "endpoint": (server.url,),
        "model": "teacher",
        "hint": "gold",
        "num_dialogs": 6,
        "shares": KINDS,
        "extra_tools": 1,
    }
    return agentlite.make(run=str(folder / name), **{**defaults, **options})


def rows(folder, file="dialogs.jsonl", name="run"):
    return [*read_rows(folder / name / "make" / file)]


def contents(folder, name):
    """The judge's file is left out: it has its replies as they came."""
    files = ("blueprints.jsonl", "dialogs.jsonl", "filtered.jsonl", "stats.json")
    return [(folder / name / "make" / file).read_bytes() for file in files]


def test_a_list_of_tools_becomes_dialogs_and_a_killed_run_asks_nothing_twice(tmp_path, server):
    figures = make(tmp_path, server, "whole").figures
    assert figures["kept"] == 6 and figures["filtered"] == {} == figures["not_found"]
    assert figures["verified"] == {"plan": 6, "judge": 6}
    assert figures["judges"]["judge_1"]["without_fault"] == 6
    whole = Counter(json.dumps(body, sort_keys=True) for body in server.bodies)
    assert max(whole.values()) == 1
    made = rows(tmp_path, name="whole")
    chained = [
        one["blueprint"]["turns"]
        for one in rows(tmp_path, "blueprints.jsonl", "whole")
        if '"sources": {"station_id"' in json.dumps(one)
    ]
    assert chained, "no call takes what another returned"
    for row in made:
        said = [one["content"] for one in row["messages"] if one["role"] == "tool"]
        assert said and all("Error" not in one for one in said)
    server.bodies.clear()
    with stops_at(5, 30, 50):
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                make(tmp_path, server, "again")
        make(tmp_path, server, "again")
    again = Counter(json.dumps(body, sort_keys=True) for body in server.bodies)
    assert again.keys() == whole.keys()
    assert again.total() - len(again) <= 3 * 4  # those that were under way
    assert contents(tmp_path, "again") == contents(tmp_path, "whole")


def test_prep_reads_the_dialogs(tmp_path, server):
    make(tmp_path, server, num_dialogs=3, shares={"single": 1.0})
    read = agentlite.prep(run=str(tmp_path / "run"), trajectories=("make",), model="smollm2-135m")
    assert read.figures["read"] == 3 and not read.figures["rejected"]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("I am sorry, I cannot do that.", "no list of arguments"),
        ('[{"city": 7}, {"station_id": [], "days": "x"}]', "arguments that do not fit"),
        ('[{"city": "Os', "no list of arguments"),
    ],
)
def test_arguments_that_cannot_be_used_are_counted(tmp_path, server, reply, kind):
    server.reply = lambda body: reply if made_up(body) is not None else roles(body)
    with pytest.raises(UserError) as caught:
        make(tmp_path, server, num_dialogs=2, shares={"single": 1.0})
    assert kind in caught.value.problem and caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", "result: it is empty"),
        ('{"station_id": "S-', "result: it is not JSON"),
        ("[7]", "result: it breaks its schema"),
    ],
)
def test_results_that_cannot_be_used_are_counted_and_other_tools_go_on(
    tmp_path, server, reply, kind
):
    def scripted(body):
        bad = result(body) is not None and '"find_station"' in str(body["messages"][0])
        return reply if bad else roles(body)

    server.reply = scripted
    figures = make(tmp_path, server, num_dialogs=8, shares={"single": 1.0}).figures
    assert figures["kept"] + sum(figures["not_found"].values()) == 8
    assert figures["kept"] and figures["tool_faults"][kind]
    called = {
        call["function"]["name"]
        for row in rows(tmp_path)
        for m in row["messages"]
        for call in m.get("tool_calls", ())
    }
    assert "find_station" not in called


def test_two_judges_must_both_find_a_dialog_good_and_their_agreement_is_counted(tmp_path, server):
    def scripted(body):
        strict = is_judge(body) and body["model"] == "strict"
        if strict and '"book_bike"' in str(body["messages"]).rpartition("<dialog")[2]:
            return '{"reason": "bikes", "faults": ["contradiction", "odd"]}'
        return roles(body)

    server.reply = scripted
    figures = make(tmp_path, server, shares={"single": 1.0}, judge_model=("kind", "strict")).figures
    dropped = figures["filtered"]["judge: contradiction"]
    assert dropped == figures["filtered"]["judge: other"] and figures["kept"] == 6 - dropped > 0
    assert figures["judges"]["judge_1"]["without_fault"] == 6
    assert figures["judges"]["judge_2"]["without_fault"] == 6 - dropped
    assert figures["judges_agree"]["share"] == pytest.approx((6 - dropped) / 6)
    assert len(rows(tmp_path, "filtered.jsonl")) == dropped


def test_the_server_that_writes_the_dialogs_judges_them_by_its_own_key(
    tmp_path, server, monkeypatch
):
    options = {"num_dialogs": 2, "shares": {"single": 1.0}}
    options |= {"endpoint_key": "WRITER_KEY", "judge_key": "JUDGE_KEY"}
    monkeypatch.setenv("WRITER_KEY", "w")
    monkeypatch.setenv("JUDGE_KEY", "j")
    make(tmp_path, server, "alone", **options)
    assert any(map(is_judge, server.bodies)) and server.keys == {"Bearer w"}
    make(tmp_path, server, "named", judge_model=("judge",), **options)
    assert server.keys == {"Bearer w", "Bearer j"}


def test_of_several_verdicts_in_a_reply_the_last_one_counts(tmp_path, server):
    draft = json.dumps({"reason": "odd words", "faults": ["nonsense"]})
    last = json.dumps({"reason": "but people write so", "faults": []})
    reply = f"{draft}\nI look again.\n{last}"
    server.reply = lambda body: reply if is_judge(body) else roles(body)
    figures = make(tmp_path, server, num_dialogs=2, shares={"single": 1.0}).figures
    assert figures["kept"] == 2 and figures["judges"]["judge_1"]["without_fault"] == 2


def test_a_judge_that_writes_no_verdict_filters_and_one_that_is_silent_ends_the_run(
    tmp_path, server
):
    said = {"reply": "It looks fine to me."}
    server.reply = lambda body: said["reply"] if is_judge(body) else roles(body)
    with pytest.raises(UserError) as caught:
        make(tmp_path, server, num_dialogs=2, shares={"single": 1.0})
    assert "judge: no verdict 2" in caught.value.problem
    said["reply"] = "REFUSES"
    with pytest.raises(UserError) as caught:
        make(tmp_path, server, "other", num_dialogs=2, shares={"single": 1.0})
    assert caught.value.exit_code == 8 and caught.value.location == "--endpoint"
    asked = len(server.bodies)
    server.reply = roles
    assert make(tmp_path, server, "other", num_dialogs=2, shares={"single": 1.0}).figures["kept"]
    assert all(map(is_judge, server.bodies[asked:])), "the same command asks the judge alone"


@pytest.mark.parametrize(
    ("options", "location"),
    [
        ({"endpoint": (), "model": "", "hint": "none"}, "--env"),
        ({"judge_endpoint": ("http://127.0.0.1:9/v1",) * 2}, "--judge-model"),
        (
            {"judge_model": ("a", "b", "c"), "judge_endpoint": ("http://a/v1", "http://b/v1")},
            "--judge-endpoint",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path, server, options, location):
    with pytest.raises(UserError) as caught:
        make(tmp_path, server, **options)
    assert str(caught.value.location).startswith(location) and caught.value.fix


BY_USER = ("leaked goal", "contradiction", "copy")
PLANTED = ("", *BY_USER, "wrong call", "invented result")


class MixedTeacher:
    """Good in some dialogs, and with one fault in each of the others. `openings`: by the prompt of
    its user, the first words of each dialog, and its fault.
    """

    def __init__(self):
        self.openings = {}
        self.lock = Lock()

    def __call__(self, body):
        first = body["messages"][0]["content"]
        if is_judge(body):
            return arguments_judge(first)
        if made_up(body) is not None or result(body) is not None:
            return roles(body)
        if not is_user(body):
            asked = next(one["content"] for one in body["messages"] if one["role"] == "user")
            faults = [f for words, f in self.openings.values() if asked.startswith(words)]
            return agent(body, faults[0] if faults else "")
        with self.lock:
            if first in self.openings:
                return user(body, self.openings[first][1])
            fault = PLANTED[len(self.openings) % len(PLANTED)]
            words = self._other(first) if fault == "copy" else user(body, fault)
            self.openings[first] = words, fault
            return words

    def _other(self, prompt):
        """The opening of a good dialog that is about nothing of which this user knows."""
        for words, fault in self.openings.values():
            values = re.findall(r": ([^,:)]+)", words)
            if not fault and not any(f": {value}\n" in prompt for value in values):
                return words
        raise AssertionError("no dialog to copy")


def arguments_judge(text):
    """Knows one thing: each argument of a call was named before it."""
    dialog = re.findall(r"<dialog \w+>\n(.*?)\n</dialog", text, re.DOTALL)[-1]
    before, found = "", set()
    for message in map(json.loads, dialog.splitlines()):
        for call in message.get("tool_calls", ()):
            for value in json.loads(call["function"]["arguments"]).values():
                if str(value) not in before:
                    found.add("wrong call")
        before += str(message["content"])
    return json.dumps({"reason": "looked for the arguments", "faults": sorted(found)})


def test_of_planted_faults_95_percent_are_filtered_and_of_good_dialogs_at_most_5(tmp_path, server):
    """Wrong call, invented result, leaked goal, contradiction and copy, each in some dialogs. Only
    the judge sees that a user asks for something else than what is called."""
    mixed = MixedTeacher()
    server.reply = mixed
    figures = make(
        tmp_path,
        server,
        num_dialogs=18,
        concurrency=1,  # which dialog has which fault is the same each time
        shares={"single": 1.0, "several_turns": 1.0},
    ).figures
    good = Counter(words for words, fault in mixed.openings.values() if not fault)
    planted = Counter(fault for _, fault in mixed.openings.values() if fault)
    assert len(mixed.openings) == 18 and planted.keys() == {*PLANTED} - {""}
    kept = Counter(row["messages"][0]["content"] for row in rows(tmp_path))
    through = (kept - good).total()
    assert through <= 0.05 * planted.total(), (kept - good, figures["filtered"])
    assert (good - kept).total() <= 0.05 * good.total(), (good - kept, figures["filtered"])
    assert figures["kept"] + len(rows(tmp_path, "filtered.jsonl")) == 18


BAD = {
    "nonsense": "qwx ] { zzz zzz zzz",
    "half JSON": '{"name": "find_book", "arguments": {"tit',
    "a refusal": "I am sorry, but as an AI I cannot help with that.",
    "another language": "请告诉我您想借哪一本书。",
    "nothing": "",
    "cut off": {"content": "I will look for", "finish_reason": "length"},
    "a server that refuses": "REFUSES",
    "a server that dies": "DIES",
}


@pytest.mark.parametrize("seed", range(12 if ALL else 3))
def test_whatever_a_teacher_answers_nothing_is_lost_and_the_same_command_carries_on(
    tmp_path, server, seed
):
    """A third of the replies of every role is bad, in all the ways that there are."""
    rng = Random(seed)
    ways = {}

    def scripted(body):
        text = json.dumps(body, sort_keys=True)
        ways.setdefault(text, rng.choice([*BAD]) if rng.random() < 0.3 else "")
        if ways[text]:
            bad = BAD[ways[text]]
            return {**bad} if isinstance(bad, dict) else bad
        return roles(body)

    server.reply = scripted
    options = {
        "num_dialogs": 12,
        "endpoint_tries": 1,
        "max_turns": 3,
        "user_turns": 4,
        "max_failures": 1.0,
    }
    problem = None
    try:
        figures = make(tmp_path, server, **options).figures
    except UserError as error:
        problem = error
    if problem:
        assert problem.exit_code in (4, 8) and problem.fix
        ways.update(dict.fromkeys(ways, ""))
        rng.random = lambda: 1.0  # the server is well again, and the teacher good
        figures = make(tmp_path, server, **options, force=problem.exit_code == 4).figures
    left = rows(tmp_path, "filtered.jsonl")
    assert len(rows(tmp_path)) == figures["kept"]
    assert figures["kept"] + len(left) + sum(figures["not_found"].values()) == 12
    counted = Counter(
        kind
        for row in left
        for kind in {one["kind"] for one in row["faults"] if one["message"] is None}
    )
    assert figures["filtered"] == counted and all(row["faults"] for row in left)
    read = [*read_rows(tmp_path / "run" / "make" / "dialogs.jsonl")]
    assert all(row["messages"][-1]["role"] == "assistant" for row in read)


WORDS = ["".join(letters) for letters in product("bdfgklm", "aeiou", "nprst")]


def many(count, describe=lambda number: f"{WORDS[number % 175]}o {WORDS[number // 12]}a."):
    return [
        {"type": "function", "function": {"name": f"gauge_{n}", "description": describe(n)}}
        for n in range(count)
    ]


def test_two_thousand_tools_are_no_trouble(tmp_path, server):
    server.reply = lambda body: (
        '{"level": 4}' if "You stand in for the tools" in str(body["messages"][0]) else roles(body)
    )
    figures = make(
        tmp_path, server, tools=many(2000), num_dialogs=4, shares={"single": 1.0}
    ).figures
    assert figures["kept"] == 4 and {len(row["tools"]) for row in rows(tmp_path)} == {2}


@pytest.mark.parametrize(
    ("tools", "problem", "fix"),
    [
        ([*TOOLS, TOOLS[0]], "two tools are named find_station", "Leave one of them out"),
        (many(3, lambda number: ""), "none of its 3 tools has a description", "Describe each tool"),
        ([], "is not a list of tools", "Write ["),
    ],
    ids=["doubles", "no descriptions", "no tools"],
)
def test_a_list_that_nothing_can_be_made_from_is_named_before_a_model_is_asked(
    tmp_path, server, tools, problem, fix
):
    with pytest.raises(UserError) as caught:
        make(tmp_path, server, tools=tools)
    assert problem in caught.value.problem and fix in caught.value.fix
    assert not server.bodies


def test_the_quality_is_that_of_the_dialogs_and_show_prints_them(tmp_path, server):
    figures = make(tmp_path, server, num_dialogs=4, shares={"single": 1.0, "several_turns": 1.0})
    quality, made = figures.figures["quality"], rows(tmp_path)
    assert quality == json.loads((tmp_path / "run/make/stats.json").read_text())["quality"]
    assert quality["verified_by_execution"] == 0.0 and quality["personal_data"] == {}
    turns = [sum(one["role"] == "user" for one in row["messages"]) for row in made]
    assert quality["difficulty"]["user_turns"] == pytest.approx(sum(turns) / 4)
    text = "\n".join(shown(tmp_path / "run/make", 2))
    assert text.count("── ") == 2 and made[0]["messages"][0]["content"] in text
    assert made[2]["id"] not in text


def test_figures_of_diversity_by_hand():
    assert distinct([["a b a"], ["A b"]], 1) == pytest.approx(2 / 5)
    assert distinct([["a b a"], ["a b"]], 2) == pytest.approx(2 / 3)
    assert distinct([["a"]], 2) is None
    numpy = pytest.importorskip("numpy")
    east, north = [1.0, 0.0], [0.0, 1.0]
    assert mean_distance(numpy.array([east, east])) == pytest.approx(0)
    assert mean_distance(numpy.array([east, east, north])) == pytest.approx(2 / 3)
