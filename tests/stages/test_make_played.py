"""`make dialogs --endpoint`: models play the blueprints, and what they do wrong is filtered."""

import json
from collections import Counter

import pytest
from support.lending import lending_library
from support.scripted_roles import agent, is_user, user
from support.scripted_server import ScriptedServer
from support.stopped_rows import stops_at

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.row_files import read_rows

pytestmark = pytest.mark.long

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
    tmp_path, teacher
):
    # of the 26, 8 are blueprints and 8 are the first words of users
    with stops_at(26), pytest.raises(KeyboardInterrupt):
        make(tmp_path, teacher)
    result = make(tmp_path, teacher)
    figures = result.figures
    asked = Counter(json.dumps(body, sort_keys=True) for body in teacher.bodies)
    assert asked.total() - len(asked) <= 4  # those that were under way
    assert figures["kept"] == 8 and figures["filtered"] == {} == figures["not_learned"]
    assert figures["verified"] == {"results": 8, "state": 8}
    replies = result.servers["teacher"]["replies"]
    assert len(asked) <= replies <= asked.total()
    assert result.servers["teacher"]["tokens_read"] == 100 * replies
    assert make(tmp_path, teacher).servers == result.servers  # the same when it is up to date
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
        ("invented result", "invented result"),
        ("nonsense", "nonsense"),
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


@pytest.mark.parametrize(
    ("options", "location"),
    [
        ({"endpoint": ()}, "--model"),
        ({"model": ""}, "--endpoint"),
        ({"model": "gold"}, "--endpoint"),
    ],
)
def test_models_without_a_server_and_servers_without_a_model_are_named(
    tmp_path, teacher, options, location
):
    with pytest.raises(UserError) as caught:
        make(tmp_path, teacher, **options)
    assert caught.value.location == location and caught.value.fix
