"""The process of a cell's command: how it ended, that a signal reaches it once, and that it never
outlives the one that began it.
"""

import signal
import sys
import threading
from pathlib import Path

import pytest
from support import processes

from agentlite.core.errors import GATE
from agentlite.engine.watch import Stopped
from agentlite.stages.ablate import run_command


def program(tmp_path: Path, script: str) -> Path:
    """Stands in for Python, and so for agentlite."""
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.long
def test_an_error_is_that_of_the_command(tmp_path: Path) -> None:
    error = run_command(["runs", str(tmp_path / "none")], [])
    assert error and error.exit_code == 2
    assert error.problem.endswith("none: no such workspace.")


ERROR = '{"error": {"location": "rows.jsonl:3", "problem": "is broken.", "fix": "Correct it."}}'


@pytest.mark.parametrize(
    ("script", "problem", "code"),
    [
        ("kill -9 $$", "killed by SIGKILL: out of memory?", 1),
        ("exit 1", "ended with exit code 1", 1),
        ("echo 'no JSON'; exit 3", "ended with exit code 3", 3),
        (f"echo '{ERROR}'; exit 7", "rows.jsonl:3: is broken.", 7),
        (f"echo '{ERROR}'; exit {GATE}", "", 0),
        ("echo '{}'", "", 0),
    ],
)
def test_what_fails_is_named_and_a_gate_that_is_missed_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str, code: int
) -> None:
    monkeypatch.setattr(sys, "executable", str(program(tmp_path, script)))
    error = run_command(["sft"], [])
    assert (error.problem, error.exit_code) == (problem, code) if error else not problem


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
