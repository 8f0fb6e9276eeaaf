"""A process that is killed, stopped or cut off ends the others, and they say what to do."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.examples import ALL
from support.processes import waits_until
from support.samples import ROOT
from support.two_machines import Machine, two_machines

from agentlite.core.errors import NETWORK, UserError
from agentlite.engine import coordinate, heartbeat

pytestmark = pytest.mark.torch
PORT = "29500"


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[Machine, Machine]]:
    with two_machines() as both:
        yield both


def started(
    machines: tuple[Machine, Machine], met: Path
) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """One process on each machine, once they have met."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": machines[0].address, "MASTER_PORT": PORT}
    first, second = (
        machine.start(
            ROOT / "tests/support/meet_often.py",
            met,
            "--json",
            variables={**place, "RANK": str(rank)},
        )
        for rank, machine in enumerate(machines)
    )
    assert waits_until(met.exists, 100)
    return first, second


def assert_said(process: subprocess.Popen[str], silent: str) -> None:
    """Exit code 8, a sentence about the one that is gone, and nothing of a library's."""
    out, said = process.communicate(timeout=60)
    assert process.returncode == NETWORK, said
    assert f"Error: {silent}" in said and "start the same command again" in said
    assert "Traceback" not in said and "frame #" not in said
    assert json.loads(out)["error"]["code"] == "network"


WAYS = [(0, signal.SIGKILL), (1, signal.SIGSTOP), (1, signal.SIGKILL), (0, signal.SIGSTOP)]


@pytest.mark.parametrize(("lost", "number"), WAYS if ALL else WAYS[:2])
def test_one_that_is_killed_or_stopped_ends_the_other(lost, number, machines, tmp_path):
    both = started(machines, tmp_path / "met")
    both[lost].send_signal(number)
    try:
        assert_said(both[1 - lost], f"process {lost} ")
        if number == signal.SIGSTOP:  # it finds nobody when it goes on
            both[lost].send_signal(signal.SIGCONT)
            assert_said(both[lost], f"process {1 - lost} ")
    finally:
        both[lost].kill()


def test_a_machine_that_is_cut_off_ends_both_sides(machines, tmp_path):
    both = started(machines, tmp_path / "met")
    machines[1].set_link("down")
    try:
        assert_said(both[0], "process 1 ")
        assert_said(both[1], "process 0 ")
    finally:
        machines[1].set_link("up")


def test_one_that_is_stopped_for_less_is_waited_for(machines, tmp_path):
    both = started(machines, tmp_path / "met")
    try:
        for process in (both[1], both[0]):
            process.send_signal(signal.SIGSTOP)
            assert process.poll() is None
            threading.Event().wait(0.7)
            process.send_signal(signal.SIGCONT)
            threading.Event().wait(1)
        assert [process.poll() for process in both] == [None, None]
    finally:
        for process in both:
            process.kill()
            process.communicate()


class Ended(BaseException):
    """In place of the end of a process."""


@pytest.fixture
def ended(monkeypatch) -> list[int]:
    """The exit codes of processes that a heartbeat has ended."""
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(heartbeat.os, "_exit", end)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(heartbeat, "SECONDS", 0.02)
    monkeypatch.setattr(heartbeat, "ABSENT", 50)
    return codes


@pytest.fixture
def beating(monkeypatch) -> Iterator[Callable[..., tuple[Any, list[UserError]]]]:
    """All of them are over when the test is: one that went on would end the tests themselves."""
    from torch.distributed import HashStore

    store = HashStore()
    started: list[heartbeat.Heartbeat] = []
    monkeypatch.setenv("WORLD_SIZE", "3")

    def start(rank: int) -> tuple[Any, list[UserError]]:
        said: list[UserError] = []
        monkeypatch.setenv("RANK", str(rank))
        beats = heartbeat.Heartbeat(store, said.append)
        beats.start()
        started.append(beats)
        return beats, said

    start.store = store  # type: ignore[attr-defined]
    yield start
    for beats in started:
        beats.stop()
    assert not any(thread.is_alive() for beats in started for thread in beats._threads)


def test_one_that_never_begins_is_missed(ended, beating):
    """The third of three: the second one is there and beats."""
    _, said = beating(0)
    beating(1)
    assert waits_until(lambda: NETWORK in ended)
    assert "process 2 has been silent" in said[0].problem


def test_one_that_has_yet_to_begin_is_waited_for_longer_than_one_that_falls_silent(
    beating, monkeypatch
):
    monkeypatch.setenv("RANK", "0")
    beats = heartbeat.Heartbeat(beating.store, print)

    def after(count: int) -> str:
        for _ in range(count):
            beats._exchange()
        found = beats._verdict(heartbeat.LOST)
        return found.problem if found else ""

    assert not after(heartbeat.ABSENT - 1)
    assert "process 1 has been silent for 600 s" in after(1)
    for rank in (1, 2):
        beating.store.set(f"{heartbeat.HOST}-{rank}", f"host{rank}")
        beating.store.add(f"{heartbeat.BEAT}-{rank}", 1)
    assert not after(heartbeat.LOST)
    assert "process 1 on host1 has been silent for 120 s" in after(1)


def test_an_error_of_one_is_the_error_of_all(ended, beating):
    """The first process says it with its code; the others leave with that code, in silence."""
    beats = [beating(rank) for rank in range(3)]
    failed = UserError("out of memory.", "Do this.", location="sft", exit_code=7)
    error = heartbeat.failure(failed)  # in the third process, whose variables are set
    beating.store.set(heartbeat.FAILED, msgspec.json.encode(error).decode())
    assert waits_until(lambda: ended.count(7) == 3)
    assert [len(said) for _, said in beats] == [1, 0, 0]
    (said,) = beats[0][1]
    assert said.location.startswith("process 2 on ") and said.location.endswith(": sft")
    assert (said.problem, said.fix) == ("out of memory.", "Do this.")


def test_a_store_that_does_not_answer_in_the_beginning_is_named(monkeypatch):
    from datetime import timedelta

    monkeypatch.setattr(coordinate, "CONNECT", timedelta(seconds=0.5))
    for name, value in {
        "WORLD_SIZE": "2",
        "RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "9",
    }.items():
        monkeypatch.setenv(name, value)
    coordinate._store.cache_clear()
    with pytest.raises(UserError) as caught:
        coordinate.in_step(lambda: None)  # type: ignore[arg-type,return-value]
    assert caught.value.exit_code == NETWORK and "127.0.0.1:9" in caught.value.problem
    assert "TORCH_CPP_LOG_LEVEL" in os.environ


class SlowStore:
    """Every request takes a moment."""

    def set(self, key: str, value: str) -> None:
        time.sleep(0.05)

    def add(self, key: str, amount: int) -> int:
        time.sleep(0.3)
        return 1

    def get(self, key: str) -> bytes:
        return b"there"

    def check(self, keys: list[str]) -> bool:
        return False


def test_no_thread_is_left_inside_the_store_when_a_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python would abort, in place of leaving with the code of the run."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(heartbeat, "SECONDS", 0.001)
    monkeypatch.setattr(heartbeat, "LOST", 10**9)
    monkeypatch.setattr(heartbeat, "ABSENT", 10**9)
    before = threading.active_count()
    beats = heartbeat.Heartbeat(SlowStore(), lambda error: None)
    beats.start()
    time.sleep(0.1)
    assert threading.active_count() == before + 2
    beats.stop()
    assert threading.active_count() == before
