"""A folder is held by one process at a time, and a killed one holds nothing."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from agentlite.core.errors import UserError
from agentlite.workspace.lookup import Plan, holder
from agentlite.workspace.stage_folder import hold, in_turn, open_stage


def test_a_second_process_is_told_who_holds_the_folder_and_a_killed_one_holds_nothing(tmp_path):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from agentlite.workspace.stage_folder import *\n"
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
from agentlite.workspace.stage_folder import in_turn
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


def test_who_holds_a_folder_is_known_while_it_is_held_and_no_longer(tmp_path):
    assert holder(tmp_path / "none") == "" == holder(tmp_path)
    with hold(tmp_path):
        who = holder(tmp_path)
        assert re.fullmatch(rf"process {os.getpid()} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d", who)
        assert sorted(os.listdir(tmp_path)) == [".holder", ".lock"]
        with pytest.raises(UserError, match="is in use by process") as refused, hold(tmp_path):
            pass
        assert refused.value.exit_code == 75 and refused.value.location == str(tmp_path)
        assert holder(tmp_path) == who
    assert holder(tmp_path) == "" and not (tmp_path / ".holder").exists()
    (tmp_path / ".holder").write_text("process 1, which was killed", encoding="utf-8")
    assert holder(tmp_path) == ""
    with pytest.raises(KeyboardInterrupt), hold(tmp_path):
        raise KeyboardInterrupt
    with hold(tmp_path), in_turn(tmp_path.parent):
        pass
