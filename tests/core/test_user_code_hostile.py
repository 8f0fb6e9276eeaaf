"""Whatever a user's function does: an answer or a reason in time, and nothing of it is left."""

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.processes import is_running, waits_until

from agentlite.core import process_guard
from agentlite.core.user_code import Named, UserCode

pytestmark = pytest.mark.long
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
SECONDS = 1.0
HOSTILE = r"""
import json, os, signal, subprocess, sys, threading, time

def sockets():
    return [int(name) for name in os.listdir("/proc/self/fd") if linked(name).startswith("socket")]

def linked(name):
    try: return os.readlink(f"/proc/self/fd/{name}")
    except OSError: return ""

def write(text):
    for number in sockets(): os.write(number, text)

def started(folder, *processes):
    with open(os.path.join(folder, "pids"), "a") as file:
        file.writelines(f"{process}\n" for process in (os.getpid(), *processes))

def away(folder):
    # a process in a session of its own, whose parent has ended
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            started(folder)
            os.closerange(0, 256)
            time.sleep(600)
        os._exit(0)
    os.wait()

def fine(folder): return 0.5
def hangs(folder): started(folder); time.sleep(600)
def hangs_in_c(folder): started(folder); sum(range(10**14))
def half_a_message(folder): started(folder); write(b"[1, 0."); time.sleep(600)
def drips(folder):
    while True: write(b"["); time.sleep(0.05)
def garbage(folder): write(b"\x00\xff\n"); time.sleep(600)
def another_answer(folder): write(b'[999, 1.0, ""]\n'); return 0.5
def garbage_without_end(folder):
    while True: write(b"x" * 65536)
def closes_its_connection(folder):
    os.closerange(3, 256)
    started(folder)
    time.sleep(600)
def forks_away(folder): away(folder); return 0.5
def forks_away_and_hangs(folder): away(folder); started(folder); time.sleep(600)
def forks_away_and_ends(folder): away(folder); os._exit(3)
def starts_threads(folder):
    for _ in range(20): threading.Thread(target=time.sleep, args=(600,)).start()
    return 0.5
def starts_a_shell(folder):
    started(folder, subprocess.Popen("setsid sleep 600 & sleep 600", shell=True).pid)
    return 0.5
def exits(folder): sys.exit(4)
def ends(folder): os._exit(4)
def aborts(folder): os.abort()
def kills_itself(folder): os.kill(os.getpid(), signal.SIGKILL)
def kills_its_group(folder): os.kill(0, signal.SIGKILL)
def terminates_its_group(folder): os.kill(0, signal.SIGTERM); return 0.5
def stops_itself(folder): started(folder); os.kill(os.getpid(), signal.SIGSTOP)
def stops_its_group(folder): started(folder); os.kill(0, signal.SIGSTOP)
def kills_its_guard(folder): started(folder); os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)
def stops_its_guard(folder): started(folder); os.kill(os.getppid(), signal.SIGSTOP); time.sleep(600)
def wakes_its_guard(folder):
    for _ in range(2000): os.kill(os.getppid(), signal.SIGCHLD)
    return 0.5
def prints_without_end(folder):
    while True: os.write(1, b"x" * 65536)
def takes_memory(folder): return len(bytearray(8 << 30))
def takes_memory_in_pieces(folder):
    kept = []
    while True: kept.append(bytearray(16 << 20))
def recursion(folder): return recursion(folder)
def raises(folder): raise ValueError("no")
def raises_what_cannot_be_printed(folder):
    class Odd(Exception):
        def __str__(self): raise SystemExit(5)
    raise Odd
def raises_half_a_character(folder): raise ValueError("\ud83d and \udcff")
def returns_half_a_character(folder): return "a\ud800b\ud83d\ude00"
def returns_much(folder): return "x" * (17 << 20)
def returns_nan(folder): return float("nan")
def returns_infinity(folder): return float("-inf")
def returns_itself(folder):
    itself = []
    itself.append(itself)
    return itself
def returns_an_object(folder): return object()
def returns_bytes(folder): return b"\xff"
def changes_its_streams(folder): sys.stdout = sys.stderr = None; print("x"); return 0.5
def closes_its_streams(folder): os.close(0); os.close(1); os.close(2); return 0.5
"""
LATE = f"took longer than {SECONDS:g} s"
# what a question is answered with: a value, or a piece of the problem
EXPECTED: dict[str, object] = {
    "fine": 0.5,
    "hangs": LATE,
    "hangs_in_c": LATE,
    "half_a_message": LATE,
    "drips": LATE,
    "garbage": "wrote into the connection",
    "another_answer": "wrote into the connection",
    "garbage_without_end": "wrote without end",
    "closes_its_connection": "closed its connection",
    "forks_away": 0.5,
    "forks_away_and_hangs": LATE,
    "forks_away_and_ends": "ended with exit code 3",
    "starts_threads": 0.5,
    "starts_a_shell": 0.5,
    "exits": "raised SystemExit: 4",
    "ends": "ended with exit code 4",
    "aborts": f"ended with exit code -{signal.SIGABRT:d}",
    "kills_itself": f"ended with exit code -{signal.SIGKILL:d}",
    "kills_its_group": f"ended with exit code -{signal.SIGKILL:d}",
    "terminates_its_group": 0.5,
    "stops_itself": LATE,
    "stops_its_group": LATE,
    "kills_its_guard": f"ended with exit code -{signal.SIGKILL:d}",
    "stops_its_guard": LATE,
    "wakes_its_guard": 0.5,
    "prints_without_end": LATE,
    "takes_memory": "needed more than 0.5 GiB of memory",
    "takes_memory_in_pieces": "needed more than 0.5 GiB of memory",
    "recursion": "raised RecursionError",
    "raises": "raised ValueError: no",
    "raises_what_cannot_be_printed": "raised Odd",
    "raises_half_a_character": "raised ValueError: \ufffd and \ufffd",
    "returns_half_a_character": "a\ufffdb\U0001f600",
    "returns_much": "returned more than 16 MiB",
    "returns_nan": "raised ValueError",
    "returns_infinity": "raised ValueError",
    "returns_itself": "raised ValueError: Circular reference",
    "returns_an_object": "raised TypeError",
    "returns_bytes": "raised TypeError",
    "changes_its_streams": 0.5,
    "closes_its_streams": 0.5,
}


def called(function: Callable[[Any], Any], payload: Any) -> tuple[Any, str]:
    return function(payload), ""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    return str(tmp_path / "hostile.py")


def test_the_table_names_every_hostile_function():
    defined = [line[4:].partition("(")[0] for line in HOSTILE.splitlines() if line[:4] == "def "]
    assert [name for name in defined if name in EXPECTED] == list(EXPECTED)


@linux
@pytest.mark.parametrize("name", EXPECTED)
def test_a_function_gives_an_answer_or_a_reason_and_leaves_nothing(name, file, tmp_path, capfd):
    expected = EXPECTED[name]
    seconds = SECONDS if expected == LATE else 120.0  # on a loaded machine
    code = UserCode([Named(file, name), Named(file, "fine")], called, seconds, memory=0.5)
    try:
        value, problem = code.ask(name, str(tmp_path))
        if value is None:
            assert isinstance(expected, str) and expected in problem
            assert len(problem) < 600 and problem.isprintable()
        else:
            assert (value, problem) == (expected, "")
        code.seconds = 120.0
        assert code.ask("fine", str(tmp_path)) == (0.5, "")
    finally:
        code.stop()
    left = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
    # for those without a guard: the system ends the worker, in its time
    assert waits_until(lambda: not any(is_running(int(pid)) for pid in left))
    assert len(capfd.readouterr().err) <= process_guard.MOST_PRINTED + 100


@linux
def test_what_is_printed_is_shown_up_to_a_limit_that_is_named(capfd, monkeypatch):
    monkeypatch.setattr(process_guard, "MOST_PRINTED", 1 << 20)
    shown = 0
    for _ in range(4):
        shown = process_guard._show(b"x" * (3 << 18), shown)
    assert shown == 3 << 20
    err = capfd.readouterr().err
    assert err == "x" * (1 << 20) + "\n(more than 1 MiB printed: no more shown)\n"


@linux
def test_an_interrupt_in_the_middle_of_a_question_costs_the_next_one_nothing(file, tmp_path):
    code = UserCode([Named(file, "hangs"), Named(file, "fine")], called, 60.0)
    try:
        code.start()
        before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            code.ask("hangs", str(tmp_path))
        signal.signal(signal.SIGALRM, before)
        assert code.child is None and code.ask("fine", str(tmp_path)) == (0.5, "")
    finally:
        code.stop()
