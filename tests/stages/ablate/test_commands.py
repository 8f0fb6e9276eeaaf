"""The process of a cell's command: how it ended, that a signal reaches it once, and that it never
outlives the one that began it.
"""

import json
import signal
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from support import processes

from agentlite.core.errors import DISK, GATE, LOCKED, OTHER_PLAN, UserError
from agentlite.core.row_files import read_rows
from agentlite.engine.watch import Stopped
from agentlite.stages.ablate import commands
from agentlite.stages.ablate.commands import (
    CellCommand,
    CommandJournal,
    CommandRun,
    EndedCommand,
    run_command,
)


def program(tmp_path: Path, script: str) -> Path:
    """Stands in for Python, and so for agentlite."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.long
def test_an_error_is_that_of_the_command(tmp_path: Path) -> None:
    ended = run_command(["runs", str(tmp_path / "none")], [])
    assert ended.exit_code == 2 and ended.problem.endswith("none: no such workspace.")
    assert ended.seconds > 0


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("kill -9 $$", "killed by SIGKILL: out of memory?"),
        ("exit 1", "ended with exit code 1"),
        ("echo 'no JSON'; exit 3", "ended with exit code 3"),
        ("echo '{}'", ""),
    ],
)
def test_what_ends_without_a_word_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    monkeypatch.setattr(sys, "executable", str(program(tmp_path, script)))
    assert run_command(["sft"], []).problem == problem


@pytest.mark.long
def test_a_signal_is_passed_on_once_and_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    script = (
        f"trap 'echo x >> {told}' TERM\ntouch {tmp_path}/up\n"
        f"while [ ! -s {told} ]; do sleep .02; done\nsleep .3"
    )
    monkeypatch.setattr(sys, "executable", str(program(tmp_path, script)))
    caught: list[int] = []

    def note() -> None:
        processes.waits_until((tmp_path / "up").exists)
        caught.append(signal.SIGTERM)

    threading.Thread(target=note).start()
    with pytest.raises(Stopped) as stopped:
        run_command(["sft"], caught)
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert told.read_text(encoding="utf-8") == "x\n"
    with pytest.raises(Stopped):  # nothing more is begun
        run_command(["sft"], caught)


DPO = CellCommand(["dpo"], "cells/a/dpo")


def test_a_torn_line_of_the_journal_is_left_out(tmp_path: Path) -> None:
    failed = EndedCommand(folder=DPO.folder, command=DPO.typed, exit_code=7, seconds=2.0)
    row, path = json.dumps(msgspec.to_builtins(failed)), tmp_path / "commands.jsonl"
    path.write_text(f"{row}\n{row[:40]}", encoding="utf-8")
    journal = CommandJournal(tmp_path, [], retry=False)
    assert journal.costs({"a": "cells/a", "b": "cells/b"}) == {"a": {"seconds": 2.0, "gib": 0}}
    assert journal.results([DPO]) == journal.rows == [failed]
    assert journal.results([DPO._replace(words=["dpo", "--set", "dpo.beta=1"])]) == []
    assert CommandJournal(tmp_path, [], retry=True).results([DPO]) == []
    path.write_text(row.replace("7", "0") + "\n", encoding="utf-8")
    assert CommandJournal(tmp_path, [], retry=False).results([DPO]) == []  # its folder is gone


ERROR = {"error": {"location": "rows.jsonl:3", "problem": "is broken.", "fix": "Correct it."}}


def journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *runs: CommandRun
) -> tuple[CommandJournal, list[list[str]]]:
    """One whose commands end so, one after the other; and the words of each."""
    ran: list[list[str]] = []
    ended = iter(runs)

    def running(words: list[str], caught: list[int]) -> CommandRun:
        ran.append([*words])
        return next(ended)

    monkeypatch.setattr(commands, "run_command", running)
    return CommandJournal(folder, [], retry=False), ran


def test_a_stage_of_other_settings_is_started_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, whole = CommandRun(OTHER_PLAN, ERROR, 1.0), CommandRun(0, {}, 2.0)
    found, ran = journal(tmp_path, monkeypatch, other, whole)
    row = found.run(DPO._replace(words=["dpo", "--run", "x"]))
    assert ran == [["dpo", "--run", "x"], ["dpo", "--run", "x", "--force"]]
    assert (row.exit_code, row.seconds, row.command) == (0, 2.0, "agentlite dpo --run x")
    assert CommandJournal(tmp_path, [], retry=False).rows == found.rows == [row]


@pytest.mark.parametrize("code", [DISK, LOCKED])
def test_what_the_next_cell_would_meet_as_well_ends_the_run_and_is_no_row(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = journal(tmp_path, monkeypatch, CommandRun(code, ERROR, 1.0))
    with pytest.raises(UserError, match="is broken") as caught:
        found.run(DPO)
    assert (caught.value.exit_code, caught.value.location) == (code, "rows.jsonl:3")
    assert found.rows == [] and not (tmp_path / "commands.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("code", "noted", "problem"), [(GATE, 0, ""), (7, 7, "rows.jsonl:3: is broken."), (0, 0, "")]
)
def test_a_gate_that_is_missed_is_no_failure_and_memory_is_that_of_the_gpu(
    code: int, noted: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"figures": {"gpu_gib": 9.5}, **(ERROR if code else {})}
    found, _ = journal(tmp_path, monkeypatch, CommandRun(code, answer, 2.0))
    found.run(DPO)
    [row] = read_rows(tmp_path / "commands.jsonl")
    assert (row["exit_code"], row["problem"], row["gib"]) == (noted, problem, 9.5)
