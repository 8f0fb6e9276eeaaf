"""`make dialogs --endpoint`: models play the blueprints, and what they do wrong is filtered."""

import json
import re
from collections import Counter
from random import Random
from zlib import crc32

import pytest
from support.lending import lending_library
from support.scripted_roles import agent, is_user, user
from support.scripted_server import ScriptedServer

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.row_files import Appender, read_rows

PLAYED = {
    "single": 2.0,
    "several_turns": 2.0,
    "missing_parameter": 2.0,
    "error": 1.0,
    "no_tool": 1.0,
}


@pytest.fixture
def teacher():
    """A server whose models are good, until `fault` says otherwise."""
    server = ScriptedServer(lambda body: reply(server, body))
    server.fault = lambda body: ""
    yield server
    server.close()


def reply(server, body):
    fault = server.fault(body)
    return user(body, fault) if is_user(body) else agent(body, fault)


def make(folder, server, name="run", **options):
    defaults = {
        "env": lending_library(folder),
        "endpoint": (server.url,),
        "model": "teacher",
        "hint": "gold",
        "num_dialogs": 8,
        "shares": PLAYED,
        "call_seconds": 60.0,
        "extra_tools": 2,
    }
    return agentlite.make(run=str(folder / name), **{**defaults, **options})


def rows(folder, file="dialogs.jsonl", name="run"):
    return [*read_rows(folder / name / "make" / file)]


def test_good_models_make_dialogs_that_prep_reads_and_a_killed_run_asks_nothing_twice(
    tmp_path, teacher, monkeypatch
):
    append, count = Appender.append, []

    def stops(self, row):
        append(self, row)
        count.append(row)
        if len(count) == 26:  # of these 8 are blueprints and 8 are the first words of users
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", stops)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path, teacher)
    figures = make(tmp_path, teacher).figures
    asked = Counter(json.dumps(body, sort_keys=True) for body in teacher.bodies)
    assert asked.total() - len(asked) <= 4  # those that were under way
    assert figures["kept"] == 8 and figures["filtered"] == {} == figures["not_learned"]
    assert figures["verified"] == {"results": 8, "state": 8}
    made = rows(tmp_path)
    assert "A note that the user does not see" not in json.dumps(made)
    asks = [row for row in made if row["meta"]["kind"] == "missing_parameter"]
    assert asks and all("tool_calls" not in row["messages"][1] for row in asks)
    read = agentlite.prep(
        run=str(tmp_path / "run"), trajectories=("make",), model="smollm2-135m", out="read"
    )
    assert read.figures["read"] == 8 and not read.figures["rejected"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("wrong call", "wrong call"),
        ("no call", "wrong call"),
        ("invented result", "invented result"),
        ("nonsense", "nonsense"),
        ("leaked goal", "leaked goal"),
        ("contradiction", "user: contradiction"),
    ],
)
def test_each_planted_fault_is_filtered_and_named(tmp_path, teacher, fault, kind):
    teacher.fault = lambda body: fault
    shares = {"single": 1.0, "several_turns": 1.0}
    with pytest.raises(UserError) as caught:
        make(tmp_path, teacher, num_dialogs=4, shares=shares)
    assert f"every dialog was filtered: {kind} 4" in caught.value.problem
    assert "--hint gold" in caught.value.fix
    assert len(rows(tmp_path, "filtered.jsonl")) == 4


def test_a_turn_that_is_not_needed_stays_and_is_not_learned(tmp_path, teacher):
    def more(body):
        said = agent(body)
        if not any(one["role"] == "tool" for one in body["messages"]):
            function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"x": 1}'}
            call = {"id": "c0", "type": "function", "function": function}
            said = {"content": None, "tool_calls": [call]}
        return said

    teacher.reply = lambda body: user(body) if is_user(body) else more(body)
    figures = make(tmp_path, teacher, num_dialogs=2, shares={"single": 1.0}).figures
    assert figures["kept"] == 2 and figures["not_learned"]["wrong call"] == 2
    for row in rows(tmp_path):
        losses = [one.get("loss", True) for one in row["messages"] if one["role"] == "assistant"]
        assert losses[0] is False and all(losses[1:])


@pytest.mark.parametrize(
    ("options", "location"),
    [
        ({"endpoint": ()}, "--model"),
        ({"model": ""}, "--endpoint"),
    ],
)
def test_models_without_a_server_and_servers_without_a_model_are_named(
    tmp_path, teacher, options, location
):
    with pytest.raises(UserError) as caught:
        make(tmp_path, teacher, **options)
    assert caught.value.location == location and caught.value.fix


BY_USER = ("leaked goal", "contradiction", "copy")
PLANTED = ("", *BY_USER, "wrong call", "invented result")


class MixedTeacher:
    """Good in some dialogs, and with one fault in each of the others. `openings`: the first words
    of each dialog, with its fault.
    """

    def __init__(self):
        self.openings = {}

    def __call__(self, body):
        first = body["messages"][0]["content"]
        if first.startswith("You check a dialog"):
            return arguments_judge(first)
        if not is_user(body):
            asked = next(one["content"] for one in body["messages"] if one["role"] == "user")
            faults = [f for words, f in self.openings.values() if asked.startswith(words)]
            return agent(body, faults[0] if faults else "")
        fault = PLANTED[crc32(first.encode()) % len(PLANTED)]
        if '{"you"' in body["messages"][1]["content"]:
            return user(body, fault)
        words = user(body, fault)
        good = [words for words, fault in self.openings.values() if not fault]
        if fault == "copy" and good:
            words = good[0]
        self.openings[first] = words, (fault if fault != "copy" or good else "")
        return words


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


def test_of_planted_faults_95_percent_are_filtered_and_of_good_dialogs_at_most_5(tmp_path, teacher):
    """Wrong call, invented result, leaked goal, contradiction and copy, each in some dialogs. Only
    the judge sees that a user asks for something else than what is called."""
    mixed = MixedTeacher()
    teacher.reply = mixed
    figures = make(
        tmp_path,
        teacher,
        num_dialogs=24,
        shares={"single": 2.0, "several_turns": 1.0},
        judge_endpoint=(teacher.url,),
        judge_model=("judge",),
    ).figures
    good = Counter(words for words, fault in mixed.openings.values() if not fault)
    planted = Counter(fault for _, fault in mixed.openings.values() if fault)
    assert len(mixed.openings) == 24 and planted.keys() == {*PLANTED} - {""}
    kept = Counter(row["messages"][0]["content"] for row in rows(tmp_path))
    through = (kept - good).total()
    assert through <= 0.05 * planted.total(), (kept - good, figures["filtered"])
    assert (good - kept).total() <= 0.05 * good.total(), (good - kept, figures["filtered"])
    assert figures["kept"] + len(rows(tmp_path, "filtered.jsonl")) == 24


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


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_teacher_answers_nothing_is_lost_and_the_same_command_carries_on(
    tmp_path, teacher, seed
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
        if body["messages"][0]["content"].startswith("You check a dialog"):
            return '{"reason": "fine", "faults": []}'
        return user(body) if is_user(body) else agent(body)

    teacher.reply = scripted
    options = {
        "num_dialogs": 12,
        "judge_model": ("judge",),
        "judge_endpoint": (teacher.url,),
        "endpoint_tries": 1,
        "max_turns": 3,
        "user_turns": 4,
        "max_failures": 1.0,
    }
    problem = None
    try:
        figures = make(tmp_path, teacher, **options).figures
    except UserError as error:
        problem = error
    if problem:
        assert problem.exit_code in (4, 8) and problem.fix
        ways.update(dict.fromkeys(ways, ""))
        rng.random = lambda: 1.0  # the server is well again, and the teacher good
        figures = make(tmp_path, teacher, **options, force=problem.exit_code == 4).figures
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
