"""Who may ask the board, for what, and what it never gives away."""

import http.client
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.boards import EVIL, TOKEN, asked, evil_runs, serving, trained
from support.generated_run import stage, write_run
from support.processes import environment, waits_until

from agentlite.core.errors import UserError
from agentlite.deploy.board.board_server import ACTS, MOST_VALUES, PAGE, READS, BoardServer
from agentlite.deploy.board.processes import FOLDER
from agentlite.deploy.local_server import LONGEST_BODY

SECRET = "the content of a file that the board has nothing to do with"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    trained(tmp_path / "runs/a/sft")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "runs/a/sft/secret.txt").write_text(SECRET)
    return tmp_path / "runs"


@pytest.fixture
def server(runs):
    with serving([runs]) as made:
        yield made


def read(server: BoardServer, path: str, body: object = None) -> Any:
    status, content, _ = asked(server, path, body)
    assert status == 200, content
    return json.loads(content)


PATHS = ["", "board.css", "main.js", "report?run=x", "api/compare?id=x&id=y", *READS, *ACTS]


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], f"{TOKEN}x", TOKEN.upper(), "%00", "%ff"])
def test_no_path_is_answered_without_the_whole_token(server, token):
    for path in PATHS:
        body = {} if path in ACTS else None
        status, content, _ = asked(server, path, body, token=token)
        assert status == 403 and TOKEN.encode() not in content
        bearer = {"Authorization": f"Bearer {TOKEN}", "Cookie": f"token={TOKEN}"}
        assert asked(server, path, body, token=token, headers=bearer)[0] == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example:1"},
        {"Host": "[::1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "file://"},
        {"Origin": "http://127.0.0.1:1"},  # another program's page on this machine
        {"Origin": "http://localhost"},
    ],
)
def test_a_page_of_another_origin_gets_no_answer(server, headers):
    for path in PATHS:
        body = {} if path in ACTS else None
        assert asked(server, path, body, headers=headers)[0] == 403


def test_what_changes_something_needs_the_name_of_its_page(server):
    for path in ACTS:
        assert asked(server, path, {}, headers={"Origin": ""})[0] == 403
        assert asked(server, path)[0] == 404  # GET


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "/etc/passwd",
        "page/board.html",
        "board_server.py",
        "../board_server.py",
        "api/log?run={run}&id=../sft/secret",
        "api/log?run={run}/../..&id=secret",
        "api/log?run=/etc&id=passwd",
        "api/answers?id={run}/../../secret.txt",
        "api/answers?id={run}/sft/secret.txt",
        "api/curves?id=/etc/passwd",
        "api/page?id={run}/../../secret.txt",
        "api/answer?id=/etc&number=0",
        "api/question?id={run}/sft&record=../secret&turn=0",
        "api/compare?id=/etc&id={run}/../..",
        "report?run={run}/..",
        "report?run=/",
        "report?run=",
        "api/form?stage=../../secret",
    ],
)
def test_a_path_leads_nowhere_else(server, runs, path):
    status, content, _ = asked(server, path.replace("{run}", str(runs / "a")))
    assert SECRET.encode() not in content and b"root:" not in content
    assert status in (403, 404) or json.loads(content) == {"log": ""}


@pytest.mark.long
def test_every_page_says_what_it_may_do(server, runs):
    for path in ("", "main.js", "board.css", "api/rows", f"report?run={runs / 'a'}"):
        status, _, headers = asked(server, path)
        assert status == 200
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"  # the address has the token
        assert headers["Cache-Control"] == "no-store"
    policy = asked(server, "")[2]["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    sandbox = asked(server, f"report?run={runs / 'a'}")[2]["Content-Security-Policy"]
    assert "sandbox" in sandbox and "allow-same-origin" not in sandbox


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_only_known_methods_are_taken(server, method):
    for token, status in ((TOKEN, 405), ("x", 403)):
        connection = http.client.HTTPConnection(*server.server_address, timeout=20)
        connection.request(method, f"/{token}/")
        answer = connection.getresponse()
        assert answer.status == status and "error" in json.loads(answer.read())
        assert answer.headers["Allow"] == ("GET, HEAD, POST" if status == 405 else None)
        connection.close()


def test_the_page_is_small_and_names_no_other_host():
    texts = [path.read_text(encoding="utf-8") for path in PAGE.iterdir()]
    assert sum(len(text.encode()) for text in texts) <= 300_000
    addresses = {found for text in texts for found in re.findall(r"https?://[^\s\"'`)]+", text)}
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name space, which nothing loads
    assert not [
        text for text in texts if re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(", text)
    ]


def test_rows_come_whole_once_and_then_as_they_change(server, runs):
    first = read(server, "api/rows")
    assert [row["id"] for row in first["rows"]] == [f"{runs}/a/sft"] and first["waiting"] == 0
    trained(runs / "b/sft")
    second = read(server, f"api/rows?since={first['version']}")
    assert [row["id"] for row in second["rows"]] == [f"{runs}/b/sft"]
    assert read(server, f"api/rows?since={second['version']}")["rows"] == []
    assert read(server, "api/rows?since=x")["rows"]
    name = f"{runs}/a/sft"
    curves = read(server, f"api/curves?id={name}")
    assert set(curves["curves"]) == {"loss", "kl", "reward/exact"}
    assert "curves" not in read(server, f"api/curves?id={name}&version={curves['version']}")


@pytest.mark.long
def test_a_link_leads_to_a_workspace_that_no_look_has_come_to(server, runs):
    trained(runs / "later/sft")
    assert read(server, f"api/curves?id={runs}/later/sft")["curves"]
    trained(runs / "last/sft")
    assert asked(server, f"report?run={runs}/last")[0] == 200


def test_texts_of_a_stranger_are_sent_as_json(tmp_path):
    evil_runs(tmp_path)
    with serving([tmp_path]) as server:
        text = json.dumps(read(server, "api/rows"))
        assert "window.hacked" in text


@pytest.mark.long
def test_the_command_that_is_shown_is_the_one_that_is_run(server, runs, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    filled = {"stage": "sft", "run": str(runs / "new"), "values": {"data": "none", "lora_r": "4"}}
    shown = read(server, "api/preview", filled)["command"]
    assert shown == f"agentlite sft --run {runs}/new --data=none --lora-r=4"
    started = read(server, "api/start", filled)["started"]
    assert waits_until(lambda: not read(server, "api/commands")["commands"][0]["running"], 60)
    [one] = read(server, "api/commands")["commands"]
    assert (one["command"], one["code"]) == (shown, 2)  # there is no such prep
    log = read(server, f"api/log?run={runs}/new&id={started['id']}")["log"]
    assert "none" in log and "Error:" in log


@pytest.mark.parametrize(
    "name",
    [
        *("..", ".", "", "{runs}/..", "{runs}/a/b", "/tmp/x", "{runs}/.x"),
        *("{runs}//new", "{runs}/./new", "{runs}/new/"),  # of a folder that has another name
    ],
)
def test_a_stage_is_started_in_a_workspace_of_the_board_alone(server, runs, name):
    run = name.replace("{runs}", str(runs))
    filled = {"stage": "sft", "run": run, "values": {}}
    for path in ("api/preview", "api/start"):
        assert asked(server, path, filled)[0] == 404
    assert not list(runs.parent.rglob(".board"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        {"stage": "sft"},
        {"stage": "sft", "run": 1, "values": {}},
        {"stage": "sft", "run": "a", "values": {"model": 3}},
        {"stage": "sft", "run": "a", "values": {}, "argv": ["rm"]},
    ],
)
def test_a_body_that_is_no_form_is_refused(server, body):
    for path in ACTS:
        assert asked(server, path, body)[0] == 400


def test_a_body_that_is_too_long_is_refused(server):
    headers = {"Content-Length": str(LONGEST_BODY + 1)}
    assert asked(server, "api/start", b"", headers=headers)[0] == 413


def test_a_mistake_in_the_form_is_told_in_the_words_of_the_command(server, runs):
    filled = {"stage": "sft", "run": str(runs / "a"), "values": {"lora_r": "many"}}
    status, content, _ = asked(server, "api/preview", filled)
    assert status == 400 and "does not fit INT" in json.loads(content)["error"]["message"]


def test_a_board_that_only_reads_starts_and_stops_nothing(runs):
    with serving([runs], read_only=True) as server:
        filled = {"stage": "sft", "run": str(runs / "a"), "values": {}}
        assert asked(server, "api/start", filled)[0] == 403
        assert asked(server, "api/stop", {"run": str(runs / "a"), "id": "x"})[0] == 403
        assert read(server, "api/facts")["read_only"] and read(server, "api/rows")["rows"]
    assert not (runs / "a/.board").exists()


@pytest.mark.long
def test_the_report_is_that_of_the_workspace(tmp_path):
    run = write_run(tmp_path / "weather", ["base", "sft"], 6)
    with serving([tmp_path]) as server:
        status, content, _ = asked(server, f"report?run={run}")
        assert status == 200 and b"<h1" in content
        _, alone, _ = asked(server, f"report?run={run}&model=sft&model=none")
        assert b'id="models-1"' in alone and b'id="differences-1"' not in alone
        assert b'id="differences-1"' in content
        assert not (run / "report.html").exists()  # looking writes nothing
        (run / "eval/prep/compare.json").write_text("{")
        status, content, headers = asked(server, f"report?run={run}")
        assert status == 409 and b"compare.json" in content
        assert headers["Content-Type"].startswith("text/plain")


def test_the_log_names_what_went_wrong_and_never_the_token(server, capsys):
    asked(server, "api/rows")
    asked(server, f"api/nothing?{EVIL}".replace(" ", ""))
    assert waits_until(lambda: "/TOKEN/api/nothing" in (text := capsys.readouterr().err) or text)
    asked(server, f"api/nothing/{TOKEN}")
    asked(server, "", token=f"{TOKEN}x")
    told = capsys.readouterr().err
    assert TOKEN not in told and "api/rows" not in told


def test_a_body_that_is_refused_is_in_the_log(server, capsys):
    asked(server, "api/stop", b"{")
    assert waits_until(lambda: " 400 " in (text := capsys.readouterr().err) or text)


def test_a_form_with_too_many_fields_is_refused(server, runs):
    values = {f"field{number}": "" for number in range(MOST_VALUES)}
    filled = {"stage": "sft", "run": str(runs / "a"), "values": values}
    assert asked(server, "api/preview", filled)[0] == 200  # empty ones are not looked at
    filled["values"] = {**values, "one more": ""}
    status, content, _ = asked(server, "api/preview", filled)
    assert status == 400 and "too many fields" in json.loads(content)["error"]["message"]


def test_commands_of_all_workspaces_stand_in_one_list_the_newest_first(server, runs):
    for run, at in (("a", 2.0), ("b", 3.0), ("c", 1.0)):
        (runs / run / FOLDER).mkdir(parents=True)
        one = {"id": run, "run": run, "words": ["sft"], "pid": 2, "start_time": "1", "at": at}
        (runs / run / FOLDER / f"{run}.json").write_text(json.dumps(one))
    found = read(server, "api/commands")["commands"]
    assert [(one["id"], one["run"]) for one in found] == [
        (run, str(runs / run)) for run in ("b", "a", "c")
    ]
    assert {one["command"] for one in found} == {"agentlite sft"}


def test_a_port_in_use_is_told(server, runs):
    with pytest.raises(UserError, match="cannot listen"):
        BoardServer([runs], server.server_address[1], token=TOKEN)


@pytest.mark.long
def test_a_report_that_fails_in_no_foreseen_way_says_so_without_a_traceback(tmp_path):
    run = write_run(tmp_path / "weather", ["base"], 4)
    plan = {"command": "ablate", "settings": {}, "inputs": {}}
    stage(run / "ablate", plan, {"table.json": [{"cells": []}]}, {})  # whole, of no version of ours
    with serving([tmp_path]) as server:
        status, content, _ = asked(server, f"report?run={run}")
    text = content.decode()
    assert status == 409 and text.startswith("The report could not be made (")
    assert f"agentlite report --run {run} --debug" in text and "Traceback" not in text
