"""A folder is held by one process at a time, and a killed one holds nothing."""

import errno
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from agentlite.core.errors import UserError
from agentlite.workspace.folder_lock import held, holder, in_turn
from agentlite.workspace.run_folder import Plan, open_stage


def test_a_second_process_is_told_who_holds_the_folder_and_a_killed_one_holds_nothing(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from agentlite.workspace.run_folder import *\n"
        f"with open_stage(Path({str(tmp_path / 'sft')!r}), Plan('sft', {{}}, {{}}), force=False):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    opened, since = open_stage(tmp_path / "sft", Plan("sft", {}, {}), force=False), time.monotonic()
    with pytest.raises(UserError, match=f"process {holder.pid}") as refused, opened:
        pass
    assert refused.value.exit_code == 75 and time.monotonic() - since < 3  # it does not wait
    holder.kill()
    holder.wait()
    with open_stage(tmp_path / "sft", Plan("sft", {}, {}), force=False) as stage:
        assert stage.status == "half"


WRITING = """
import sys
from pathlib import Path
from agentlite.core.row_files import write_json
from agentlite.workspace.folder_lock import in_turn
for number in range(100):
    with in_turn(Path(sys.argv[1])):
        write_json(Path(sys.argv[1]) / "compare.json", {"number": number})
"""


@pytest.mark.long
def test_two_processes_write_into_a_workspace_in_turn(tmp_path):
    both = [
        subprocess.Popen([sys.executable, "-c", WRITING, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [one.communicate(timeout=60)[1] for one in both] == [b"", b""]
    assert json.loads((tmp_path / "compare.json").read_bytes()) == {"number": 99}


def test_commands_take_turns_in_a_folder_that_is_held_as_a_stage(tmp_path):
    """As in that of an ablation: it is a stage, and the workspace of its cells."""
    ended = threading.Event()

    def write():
        with in_turn(tmp_path):
            ended.set()

    with held(tmp_path):
        threading.Thread(target=write, daemon=True).start()
        assert ended.wait(timeout=30)


def test_who_holds_a_folder_is_known_while_it_is_held_and_no_longer(tmp_path):
    assert holder(tmp_path / "none") == "" == holder(tmp_path)
    with held(tmp_path):
        who = holder(tmp_path)
        assert re.fullmatch(rf"process {os.getpid()} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d", who)
        assert sorted(os.listdir(tmp_path)) == [".holder", ".lock"]
        with pytest.raises(UserError, match="is in use by process") as refused, held(tmp_path):
            pass
        assert refused.value.exit_code == 75 and refused.value.location == str(tmp_path)
        assert holder(tmp_path) == who
    assert holder(tmp_path) == "" and not (tmp_path / ".holder").exists()
    (tmp_path / ".holder").write_text("process 1, which was killed", encoding="utf-8")
    assert holder(tmp_path) == ""
    with pytest.raises(KeyboardInterrupt), held(tmp_path):
        raise KeyboardInterrupt
    with held(tmp_path), in_turn(tmp_path.parent):
        pass


def test_the_name_of_the_holder_is_gone_before_the_lock_is_released(tmp_path, monkeypatch):
    """Otherwise that of the next one could be taken away."""
    named: list[bool] = []
    release = FileLock.release

    def watched(lock: FileLock, force: bool = False) -> None:
        named.append((tmp_path / ".holder").exists())
        release(lock, force)

    monkeypatch.setattr(FileLock, "release", watched)
    with held(tmp_path):
        assert (tmp_path / ".holder").exists()
    assert named and not any(named)


def test_a_holder_whose_name_is_gone_is_another_process_and_lets_go_all_the_same(tmp_path):
    named = tmp_path / ".holder"
    with held(tmp_path):
        named.unlink()
        for _ in range(2):
            with pytest.raises(UserError, match="is in use by another process"), held(tmp_path):
                pass
            named.mkdir(exist_ok=True)  # as one that is gone after it was seen: it cannot be read
        named.rmdir()
    with held(tmp_path):
        assert holder(tmp_path)


def test_a_full_disk_is_named_and_leaves_nothing_held(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(UserError, match="No space left") as refused, held(tmp_path):
            pass
    assert refused.value.exit_code == 74
    with held(tmp_path):
        assert holder(tmp_path)


@pytest.mark.parametrize("hold", [held, in_turn])
def test_a_folder_that_cannot_be_locked_is_an_error_of_the_disk(tmp_path, hold):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write") as refused, hold(tmp_path / "file"):
        pass
    assert (refused.value.exit_code, refused.value.location) == (74, str(tmp_path / "file"))


def test_asking_who_holds_a_folder_lets_it_be_held_afterwards(tmp_path):
    with held(tmp_path):
        pass
    (tmp_path / ".holder").write_text("process 1", encoding="utf-8")
    assert holder(tmp_path) == ""
    with held(tmp_path):
        pass
