"""A child is forked from a process that may be older than what the child is to see."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import processes
from support.processes import is_running, waits_until

from agentlite.core import records, user_code
from agentlite.core.user_code import Named, UserCode
from agentlite.environments.world import World

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone"),
]
FILE = """
import os, sys

def place(_): return os.environ.get("PLACE"), os.getcwd()
def prints(text): print(text); print(text, file=sys.stderr); sys.stderr.flush()
def guard(_): return os.getppid()
"""
PARENT = """
import sys
from agentlite.core.user_code import Named, UserCode
def called(function, payload): return function(payload), ""

if __name__ == "__main__":
    code = UserCode([Named("mine.py", "guard")], called, 60.0)
    print(code.ask("guard", 0)[0], flush=True)
    sys.stdin.read()
    code.stop()
"""


def called(function: Callable[[Any], Any], payload: Any) -> tuple[Any, str]:
    return function(payload), ""


@pytest.fixture
def code(tmp_path: Path) -> Iterator[UserCode]:
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    path = str(tmp_path / "mine.py")
    code = UserCode([Named(path, name) for name in ("place", "prints", "guard")], called, 60.0)
    code.start()
    yield code
    code.stop()


def test_of_what_the_main_script_imports_only_the_package_is_imported_beforehand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = ModuleType("__main__")
    main.__dict__.update(world=World, records=records, json=json, three=3, called=called)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert user_code._of_main() == ["agentlite.core.records", "agentlite.environments.world"]


def server_of(guard: int) -> int:
    return int(Path(f"/proc/{guard}/stat").read_bytes().rpartition(b")")[2].split()[1])


def test_a_child_has_the_environment_and_the_folder_of_its_own_start(
    code: UserCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("PLACE", name)
        code.stop()
        assert code.ask("place", 0) == ([name, str(tmp_path / name)], "")
    monkeypatch.delenv("PLACE")
    code.stop()
    assert code.ask("place", 0)[0][0] is None


def test_a_child_prints_to_the_stderr_of_its_own_start(code: UserCode, tmp_path: Path) -> None:
    stderr = os.dup(2)
    try:
        for name in ("first", "second"):
            with (tmp_path / name).open("wb") as file:
                os.dup2(file.fileno(), 2)
                code.stop()
                assert code.ask("prints", name) == (None, "")
                code.stop()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    for name in ("first", "second"):
        assert (tmp_path / name).read_text().split() == [name] * 2


def test_children_have_one_server_and_another_after_it_was_killed(code: UserCode) -> None:
    first = server_of(code.ask("guard", 0)[0])
    assert first != os.getpid()
    code.stop()
    assert server_of(code.ask("guard", 0)[0]) == first
    code.stop()
    os.kill(first, signal.SIGKILL)
    assert waits_until(lambda: Path(f"/proc/{first}/stat").read_bytes().split()[2] == b"Z")
    second = server_of(code.ask("guard", 0)[0])
    assert second not in (first, os.getpid())


def test_a_temporary_folder_with_a_long_name_is_no_hindrance(
    code: UserCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_of(code.ask("guard", 0)[0])
    code.stop()
    os.kill(server, signal.SIGKILL)  # another one needs a socket of its own
    assert waits_until(lambda: Path(f"/proc/{server}/stat").read_bytes().split()[2] == b"Z")
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(util, "get_temp_dir", lambda: str(folder))
    guard, problem = code.ask("guard", 0)
    assert not problem and server_of(guard) == os.getpid()


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_the_server_ends_with_the_parent_and_not_by_a_signal_to_its_group(
    tmp_path: Path, end: str
) -> None:
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "parent.py").write_text(PARENT, encoding="utf-8")
    parent = processes.start(
        [sys.executable, str(tmp_path / "parent.py")],
        cwd=tmp_path,
        env=processes.environment(),
        stdin=-1,
        stdout=-1,
        text=True,
    )
    assert parent.stdin and parent.stdout
    with parent:
        guard = int(parent.stdout.readline())
        server = server_of(guard)
        status = Path(f"/proc/{server}/status").read_text()
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            assert blocked >> (number - 1) & 1
        if end == "is killed":
            parent.kill()
        else:
            parent.stdin.close()
        assert waits_until(lambda: not is_running(guard) and not is_running(server), 20)
