"""What the board starts outlives it, is stopped as Ctrl-C does, and is never another process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes import environment, is_running, waits_until

from agentlite.core.errors import UserError
from agentlite.deploy.board import processes
from agentlite.deploy.board.processes import FOLDER, Processes


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


def start(run: Path, *, of: str = "runs") -> tuple[Processes, str, int]:
    """A command that runs until it is stopped."""
    run.mkdir(exist_ok=True)
    made = Processes()
    one = made.start(run, [of, str(run), "--watch"])
    return made, one.id, one.pid


def test_it_outlives_the_board_and_another_board_stops_it_as_ctrl_c_does(tmp_path):
    _, name, pid = start(tmp_path / "run")
    assert os.getsid(pid) == pid  # no signal to the board's terminal reaches it
    other = Processes()
    [one] = other.listed(tmp_path / "run")
    assert (one.id, one.running, one.code) == (name, True, None)
    signal_was = signal.getsignal(signal.SIGINT)
    assert waits_until(lambda: b"watch" in Path(f"/proc/{pid}/cmdline").read_bytes())
    assert waits_until(lambda: _handles_interrupt(pid), 60)
    other.stop(tmp_path / "run", name)
    os.waitpid(pid, 0)
    assert not is_running(pid) and signal.getsignal(signal.SIGINT) is signal_was
    assert not other.listed(tmp_path / "run")[0].running
    with pytest.raises(UserError, match="no such command runs"):
        other.stop(tmp_path / "run", name)


def _handles_interrupt(pid: int) -> bool:
    """Whether Python has begun: before that, SIGINT ends it as well, but with another code."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(
        next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16
    )
    return bool(caught & 1 << (signal.SIGINT - 1))


@pytest.mark.parametrize("code", [0, 1, 2, -9])
def test_each_command_that_ended_leaves_its_code_and_no_other_does(tmp_path, code):
    made = Processes()
    for name, found in (("ended", code), ("running", None)):
        made._children[tmp_path, name] = SimpleNamespace(poll=lambda found=found: found)
    made._reap()
    assert made._codes == {(tmp_path, "ended"): code}
    assert [*made._children] == [(tmp_path, "running")]


@pytest.mark.long
def test_a_command_that_fails_leaves_its_code_and_its_words(tmp_path):
    made = Processes()
    one = made.start(tmp_path, ["sft", "--run", str(tmp_path), "--data=none"])
    assert waits_until(lambda: not made.listed(tmp_path)[0].running, 60)
    assert made.listed(tmp_path)[0].code == 2
    log = made.log(tmp_path, one.id)
    assert "Error:" in log and "\x1b" not in log


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"start_time": "1"},
        {"start_time": ""},
        {"words": ["other"]},
        {"id": "another"},
        {"pid": 1},
        {"pid": -1},
    ],
)
def test_a_file_of_a_stranger_ends_no_other_process(tmp_path, changed, monkeypatch):
    """The bystander even looks like the command: `python -m agentlite sft`."""
    killed: list[object] = []
    monkeypatch.setattr(os, "killpg", lambda *given: killed.append(given))
    (tmp_path / "agentlite").mkdir()
    (tmp_path / "agentlite/__init__.py").touch()
    (tmp_path / "agentlite/__main__.py").write_text("print(flush=True)\ninput()\n")
    command = [sys.executable, "-m", "agentlite", "sft"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, env=variables, cwd=tmp_path, **streams) as bystander:  # type: ignore[call-overload]
        bystander.stdout.readline()
        start_time = processes._start_time(bystander.pid)
        one = {"id": "a", "run": "r", "words": ["sft"], "at": 1.0}
        one |= {"pid": bystander.pid, "start_time": start_time, **changed}
        (tmp_path / FOLDER).mkdir()
        (tmp_path / FOLDER / "a.json").write_text(json.dumps(one))
        made = Processes()
        if changed:
            for name in ("a", "another"):
                with pytest.raises(UserError):
                    made.stop(tmp_path, name)
        else:
            made.stop(tmp_path, "a")
        assert any(each.running for each in made.listed(tmp_path)) != bool(changed)
        bystander.communicate(b"\n")
    assert bool(killed) != bool(changed)


@pytest.mark.parametrize("text", ["{", "[]", '{"id": 1}', "[" * 100_000, "\udcff"])
def test_files_that_were_harmed_are_passed_over(tmp_path, text):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert Processes().listed(tmp_path) == []


def test_a_log_is_read_by_the_name_of_a_command_alone(tmp_path):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / "secret.log").write_text("secret")
    (tmp_path / FOLDER / "b.log").write_text("b")
    for name in ("../secret", "b", "", "../../etc/passwd"):
        assert Processes().log(tmp_path, name) == ""


def left_behind(run: Path, count: int) -> None:
    """The files of commands that have ended long ago."""
    (run / FOLDER).mkdir()
    for number in range(count):
        name = f"20260101-0000{number:02}-000000-sft"
        one = {"id": name, "run": "r", "words": ["sft"], "pid": 2, "start_time": "1", "at": 1.0}
        (run / FOLDER / f"{name}.json").write_text(json.dumps(one), encoding="utf-8")


def test_the_newest_commands_are_listed_the_newest_first(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "MOST", 3)
    left_behind(tmp_path, 5)
    assert [one.id[13:15] for one in Processes().listed(tmp_path)] == ["04", "03", "02"]


def test_a_log_is_shown_from_its_end_with_a_line_for_each_look_of_a_bar(tmp_path, monkeypatch):
    left_behind(tmp_path, 1)
    [one] = Processes().listed(tmp_path)
    log = tmp_path / FOLDER / f"{one.id}.log"
    log.write_bytes(b"begun\r\n 1%\r 2%\r\x1b[31mred\x1b[0m\x07\tend\n")
    assert Processes().log(tmp_path, one.id) == "begun\n 1%\n 2%\nred\tend\n"
    monkeypatch.setattr(processes, "TAIL", 4)
    assert Processes().log(tmp_path, one.id) == "end\n"
