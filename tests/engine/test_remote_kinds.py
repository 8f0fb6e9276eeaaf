"""eval, pairs and a judge by every kind of faulty server: no answer is lost, doubled or made up."""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from support.examples import every, pairs
from support.faulty_server import KINDS, FaultyServer
from support.samples import ROOT, WEATHER_TOOL

import agentlite
from agentlite.cli.main import main
from agentlite.core import openai_client
from agentlite.core.endpoint_pool import THREAD
from agentlite.core.errors import NETWORK, OTHER_PLAN
from agentlite.core.row_files import read_rows
from agentlite.rendering.template import read_template

pytestmark = pytest.mark.long

BOUND = 20.0  # seconds of a command, on a busy machine; a command takes a fraction of one
# A judge that answers so has said nothing, and is asked again.
NO_VERDICT = ("an empty text", "a thought that was cut, and no text")
READ_TEMPLATE = cache(read_template)
STAGES = {
    "eval": ("eval/prep/*/answers.jsonl", ("record_id", "turn")),
    "pairs": ("pairs/candidates.jsonl", ("record_id", "turn", "sample")),
    "judge": ("eval/prep/*/verdicts.jsonl", ("key",)),
}


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a prep of two records, with three questions."""
    run = tmp_path_factory.mktemp("prepared")
    rows = []
    for city in ("Oslo", "Rome"):
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        call = {"id": "a", "type": "function", "function": function}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"Is it wet in {city}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
        rows.append({"messages": messages, "tools": [WEATHER_TOOL]})
    rows[0]["messages"] += [
        {"role": "tool", "tool_call_id": "a", "content": "4 mm"},
        {"role": "assistant", "content": "Yes, 4 mm."},
    ]
    (run / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shares = {"dev": 0.0, "test": 0.0}
    model = {"model": "smollm2-135m", "protocol": "hermes"}
    agentlite.prep(str(run / "rows.jsonl"), run=str(run), **model, **shares)
    return run


@pytest.fixture
def run(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(openai_client, "_pause", lambda endpoint, trial: 0.002)
    # most of the time of these tests, and no matter of theirs
    monkeypatch.setattr("agentlite.stages.eval.write_report", lambda run: run / "report.md")
    monkeypatch.setattr("agentlite.workspace.model_source.read_template", READ_TEMPLATE)
    monkeypatch.setattr("agentlite.workspace.run_folder.versions", dict)
    shutil.copytree(prepared, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    server = FaultyServer()
    yield server
    server.close()


@pytest.fixture
def command(run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line in this process: within the bound, without a traceback or an escape."""

    def command(*arguments: str) -> Ran:
        begun = time.monotonic()
        with (
            patch("sys.argv", ["agentlite", *arguments, "--run", str(run)]),
            patch("sys.stderr", os.fdopen(os.dup(2), "w", encoding="utf-8")) as err,
            patch("sys.stdout", os.fdopen(os.dup(1), "w", encoding="utf-8")) as out,
        ):
            code: Any = 0
            try:
                main()
            except SystemExit as end:
                code = end.code
            err.close(), out.close()
        shown = capfd.readouterr()
        assert time.monotonic() - begun < BOUND
        # of a command that gave up: the end of a process would end the tries that are under way
        for thread in threading.enumerate():
            if thread.name == THREAD:
                thread.join(BOUND)
        assert "Traceback" not in shown.err and "fault of agentlite" not in shown.err, shown.err
        for text in shown:
            assert text.replace("\n", "").isprintable(), ascii(text)
        return Ran(int(code or 0), shown.out, shown.err)

    return command


def asking(stage: str, server: FaultyServer, seconds: float, *more: str) -> list[str]:
    """The command of a stage; of the judge, an evaluation whose answers are a file's."""
    name = "pairs" if stage == "pairs" else "eval"
    sizes = {"pairs": ["-n", "2", "--limit", "1"], "eval": [], "judge": []}[stage]
    tries = ["--endpoint-tries", "2", "--endpoint-seconds", str(seconds), "--concurrency", "2"]
    asked = (
        ["--judge", server.url, "--judge-model", "theirs", "--predictions", "answers.jsonl"]
        if stage == "judge"
        else ["--endpoint", server.url, "--model", "theirs"]
    )
    return [name, "--split", "train", "--max-new-tokens", "40", *sizes, *tries, *asked, *more]


def rows_of(run: Path, stage: str) -> list[tuple[Any, ...]]:
    """What names each answer on disk, but for the gold."""
    pattern, names = STAGES[stage]
    return [
        tuple(row[name] for name in names)
        for path in run.glob(pattern)
        for row in read_rows(path)
        if row.get("model") != "(gold)"
    ]


@pytest.fixture
def answers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """answers.jsonl in the current folder, for the judge."""
    monkeypatch.chdir(run)
    records = read_rows(run / "prep/train.jsonl")
    turns = [
        (row["id"], turn)
        for row in records
        for turn, message in enumerate(row["messages"])
        if message["role"] == "assistant"
    ]
    rows = [
        {"record_id": name, "turn": turn, "text": f"It rains in {name}, {turn}."}
        for name, turn in turns
    ]
    (run / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize(("kind", "stage"), pairs(6, every(2, [*KINDS]), [*STAGES]))
def test_every_question_is_answered_once_or_open_until_the_same_command_has_its_answer(
    kind: str, stage: str, run: Path, server: FaultyServer, command: Any
) -> None:
    outcome, seconds = KINDS[kind].outcome, KINDS[kind].seconds
    if stage == "judge" and kind in NO_VERDICT:
        outcome = "open"
    server.kind = kind
    url = server.url
    first = command(*asking(stage, server, seconds))
    asked = len(server.asked)
    server.kind = "it answers"
    kept = rows_of(run, stage)
    listed = " ".join(command("runs").out.split())
    if outcome == "answered":
        assert first.code == 0 and asked == len(kept), first.err
        assert "half done" not in listed
    else:
        assert first.code == NETWORK, first.err
        assert bool(kept) == (outcome == "some open")
        assert "half done" in listed and " open" in listed
    server.asked.clear()
    if url == server.url:  # the stage stays with the address it was begun with
        second = command(*asking(stage, server, 20.0))
        assert second.code == 0, second.err
        count = len(rows_of(run, stage))
        assert len(server.asked) == count - len(kept) and count in (2, 3, 4)
        assert all(times == 1 for times in server.asked.values())
        assert f"{count - len(kept)} open" in listed or outcome == "answered", listed
        server.asked.clear()
        third = command(*asking(stage, server, 20.0))
        assert third.code == 0 and "up to date" in third.out, third.out
    assert not server.asked
    assert len({*rows_of(run, stage)}) == len(rows_of(run, stage))
    assert {*kept} <= {*rows_of(run, stage)}


def test_the_page_on_endpoints_says_what_happens_with_every_kind() -> None:
    rows = (ROOT / "docs/endpoints.md").read_text(encoding="utf-8").splitlines()
    kinds = [
        re.sub(r" \(.*\)", "", kind.strip())
        for row in rows[rows.index("| the server | a question |") + 2 :]
        for kind in row.split("|")[1].split(";")
    ]
    assert sorted(kinds) == sorted(KINDS)


@pytest.mark.parametrize("kind", ["500 for one prompt", "400 for one prompt"])
@pytest.mark.parametrize("stage", ["eval", "pairs"])
def test_a_question_that_is_never_answered_is_finished_without_on_request(
    kind: str, stage: str, run: Path, server: FaultyServer, command: Any
) -> None:
    server.kind = kind
    assert command(*asking(stage, server, 20.0)).code == NETWORK
    kept = rows_of(run, stage)
    server.asked.clear()
    wrong = [*asking(stage, server, 20.0), "--unanswered", "wrong", "--json"]
    found = json.loads(command(*wrong).out)
    assert found["status"] == "done" and len(server.asked) == 1
    figures = found["figures"] if stage == "pairs" else next(iter(found["figures"].values()))
    assert figures["unanswered"] == 1
    if stage == "pairs":
        assert sorted(rows_of(run, stage)) == sorted(kept) and figures["candidates"] == len(kept)
    else:
        assert figures["problems"]["no answer from the server"] == 1
        assert {*kept} < {*rows_of(run, stage)}
    server.asked.clear()
    assert json.loads(command(*wrong).out)["status"] == "up to date" and not server.asked
    if stage == "eval":
        for policy, missing in (("ask", 1), ("wrong", 0)):
            dry = ["--unanswered", policy, "--dry-run", "--json"]
            planned = json.loads(command(*asking(stage, server, 20.0), *dry).out)["figures"]
            assert next(iter(planned.values()))["missing"] == missing
    server.kind = "it answers"
    found = json.loads(command(*asking(stage, server, 20.0), "--json").out)
    assert found["status"] == "done" and len(server.asked) == 1
    assert len({*rows_of(run, stage)}) == len(rows_of(run, stage)) == len(kept) + 1


@pytest.mark.parametrize("stage", ["eval", "pairs"])
def test_a_server_that_is_down_makes_nothing_wrong(
    stage: str, run: Path, server: FaultyServer, command: Any
) -> None:
    server.kind = "dies after two answers"
    wrong = [*asking(stage, server, 20.0), "--unanswered", "wrong"]
    for _ in range(2):
        assert command(*wrong).code == NETWORK
        assert len(rows_of(run, stage)) == 2
        server.kind = "closed without a byte"


@pytest.mark.parametrize("stage", ["eval", "pairs"])
def test_the_work_of_a_server_that_dies_is_done_by_the_other_one(
    stage: str, run: Path, server: FaultyServer, command: Any
) -> None:
    other = FaultyServer()
    try:
        server.kind = "dies after two answers"
        both = [*asking(stage, server, 20.0), "--endpoint", other.url]
        ran = command(*both)
        assert ran.code == 0, ran.err
        rows = rows_of(run, stage)
        assert len({*rows}) == len(rows) in (3, 4)
        assert len(other.asked) >= len(rows) - 2
        server.asked.clear(), other.asked.clear()
        # the stage is the same whichever of the two is named, and another one by a third
        for one in (server, other):
            server.kind = "it answers"
            again = command(*asking(stage, one, 20.0))
            assert again.code == 0 and "up to date" in again.out, again.err
        assert not server.asked and not other.asked
        third = FaultyServer()
        elsewhere = command(*asking(stage, third, 20.0))
        third.close()
        assert bool(third.asked) == (stage == "eval")
        assert elsewhere.code == (0 if stage == "eval" else OTHER_PLAN)
    finally:
        other.close()


def test_pairs_of_a_server_are_scored_again_without_it(
    run: Path, server: FaultyServer, command: Any
) -> None:
    (run / "mine.py").write_text("def short(attempt):\n    return 0.5\n")
    assert command(*asking("pairs", server, 20.0)).code == 0
    server.asked.clear()
    reward = f"{run / 'mine.py'}:short"
    found = command("pairs", "--from", "pairs", "--rewards", reward, "--out", "short", "--json")
    assert found.code == 0, found.err
    scores = list(read_rows(run / "short/scores.jsonl"))
    assert len(scores) >= 2 and all(row["components"]["short"] == 0.5 for row in scores)
    assert json.loads(found.out)["figures"]["failed_rewards"] == 0 and not server.asked


def test_pairs_do_not_depend_on_the_order_in_which_servers_answer(
    run: Path, server: FaultyServer, command: Any
) -> None:
    files = []
    for kind in ("it answers", "500 for one prompt"):
        server.kind = kind
        command(*asking("pairs", server, 20.0))
        server.kind = "it answers"
        assert command(*asking("pairs", server, 20.0)).code == 0
        files.append((run / "pairs/candidates.jsonl").read_bytes())
        shutil.rmtree(run / "pairs")
    assert files[0] == files[1]
