"""A folder is held by one process at a time, and a killed one holds nothing."""

import json
import subprocess
import sys

import pytest

from agentlite.core.errors import UserError
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
    opened = open_stage(tmp_path / "sft", Plan("sft", {}, {}), force=False)
    with pytest.raises(UserError, match=f"process {holder.pid}") as refused, opened:
        pass
    assert refused.value.exit_code == 75
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


def test_two_processes_write_into_a_workspace_in_turn(tmp_path):
    both = [
        subprocess.Popen([sys.executable, "-c", WRITING, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [one.communicate(timeout=60)[1] for one in both] == [b"", b""]
    assert json.loads((tmp_path / "compare.json").read_bytes()) == {"number": 99}
