"""Whatever a user's function does: an answer or a reason in time, and nothing of it is left."""

import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from support.examples import in_turn
from support.hostile_code import EXPECTED, HOSTILE, LATE, SECONDS
from support.processes import is_running, waits_until

from agentlite.core import process_guard
from agentlite.core.user_code import Named, UserCode

pytestmark = pytest.mark.long
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")


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
@pytest.mark.parametrize("name", in_turn(3, [*EXPECTED]))
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
