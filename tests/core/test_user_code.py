"""What the user's functions have started ends with them, however the parent ends."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support import processes
from support.processes import is_running, waits_until

from agentlite.core import user_code
from agentlite.core.user_code import UserCode, UserFunction

STARTS = """
import os, subprocess, sys, time

def starts(folder):
    sleeper = subprocess.Popen(["sleep", "600"])
    open(folder + "/pids.partial", "w").write(f"{os.getpid()} {sleeper.pid}")
    os.rename(folder + "/pids.partial", folder + "/pids")
    time.sleep(600)
"""
PARENT = """
import sys
from agentlite.core.user_code import UserFunction, UserCode
def called(function, payload): return function(payload), ""

if __name__ == "__main__":
    UserCode([UserFunction("starts.py", "starts")], called, 600.0).ask("starts", ".")
"""
FILE = """
import os, subprocess, time

def doubled(number): return 2 * number
def slow(seconds): time.sleep(seconds); return "slept"
def dies(code): os._exit(code)
def pid(_): return os.getpid()
"""


def called(function: Callable[[Any], Any], payload: Any) -> tuple[Any, str]:
    return function(payload), ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_function_has_started_does_not_outlive_a_parent_that_is_killed(tmp_path, number):
    (tmp_path / "starts.py").write_text(STARTS, encoding="utf-8")
    (tmp_path / "parent.py").write_text(PARENT, encoding="utf-8")
    parent = processes.start(
        [sys.executable, str(tmp_path / "parent.py")], cwd=tmp_path, env=processes.environment()
    )
    pids: list[int] = []
    try:
        assert waits_until((tmp_path / "pids").exists)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(is_running, pids))
        parent.send_signal(number)
        parent.wait(timeout=20)
        assert waits_until(lambda: not any(map(is_running, pids)), 5)
    finally:
        parent.kill()
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    file = tmp_path_factory.mktemp("code") / "mine.py"
    file.write_text(FILE, encoding="utf-8")
    names = [line[4:].partition("(")[0] for line in FILE.splitlines() if line.startswith("def ")]
    made = UserCode([UserFunction(str(file), name) for name in names], called, 0.6)
    yield made
    made.stop()


@pytest.mark.long
def test_one_child_answers_until_it_is_lost_and_another_takes_its_place(code):
    first, problem = code.ask("pid", None)
    assert problem == "" and code.ask("pid", None)[0] == first != os.getpid()
    assert code.ask("slow", 0.05) == ("slept", "")
    for function, payload, problem in (
        ("slow", 60, "took longer than 0.6 s"),
        ("dies", 7, "ended with exit code 7"),
    ):
        before, _ = code.ask("pid", None)
        assert code.ask(function, payload) == (None, problem)
        assert not is_running(before)
        assert code.ask("doubled", 4) == (8, "")
        assert code.ask("pid", None)[0] != before


ODD = """
import os, signal
def raises(_): raise ValueError("no")
def exits(_): raise SystemExit(4)
def ends(_): os._exit(4)
def kills_its_group(_): os.kill(0, signal.SIGKILL)
def recursion(_): return recursion(_)
def takes_memory(_): return len(bytearray(8 << 30))
def half_a_character(_): return "a\\ud800b"
def half_an_error(_): raise ValueError("\\ud83d and \\udcff")
def returns_nan(_): return float("nan")
def an_object(_): return object()
async def awaits(_): return "ok"
count = 0
def counts(_):
    global count
    count += 1
    return count
counts_on = counts
"""
OUTCOMES = {
    "raises": "raised ValueError: no",
    "exits": "raised SystemExit: 4",
    "ends": "ended with exit code 4",
    "kills_its_group": f"ended with exit code -{signal.SIGKILL:d}",
    "recursion": "raised RecursionError",
    "takes_memory": "raised MemoryError",
    "half_a_character": "a\ufffdb",
    "half_an_error": "raised ValueError: · and ·",
    "returns_nan": "raised ValueError",
    "an_object": "raised TypeError",
    "awaits": "ok",
    "counts": 1,
    "counts_on": 2,  # a file is imported once, however many of its functions are named
}


def awaited_too(function: Callable[[Any], Any], payload: Any) -> tuple[Any, str]:
    return user_code.await_result(function(payload)), ""


@pytest.mark.long
def test_each_function_has_an_answer_or_a_reason_why_it_has_none(tmp_path):
    file = tmp_path / "odd.py"
    file.write_text(ODD, encoding="utf-8")
    made = UserCode(
        [UserFunction(str(file), name) for name in OUTCOMES], awaited_too, 5.0, memory=0.5
    )
    try:
        for name, outcome in OUTCOMES.items():
            value, problem = made.ask(name, None)
            assert (value == outcome and not problem) or problem.startswith(str(outcome)), name
    finally:
        made.stop()
