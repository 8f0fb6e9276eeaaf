"""What `agentlite init` writes is prepared, trained and evaluated as it stands; agentlite.yaml is
read and told.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import processes
from support.samples import ROOT


def agentlite(*arguments: object, cwd: Path, **more: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    environment.pop("AGENTLITE_RUN", None)
    command = [sys.executable, "-m", "agentlite", *map(str, arguments)]
    program = subprocess.run if "preexec_fn" in more else processes.run
    return program(command, capture_output=True, text=True, cwd=cwd, env=environment, **more)


@pytest.mark.long
def test_a_folder_in_use_is_refused_and_stays_as_it_is(tmp_path):
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather" / "thesis.txt").write_text("years of work", encoding="utf-8")
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = agentlite("init", "weather", cwd=tmp_path)
    assert done.returncode == 2
    assert "thesis.txt" in done.stderr
    assert os.listdir(tmp_path / "weather") == ["thesis.txt"]
    assert agentlite("init", "file", cwd=tmp_path).returncode == 74


def test_an_empty_folder_is_taken_also_the_current_one(tmp_path):
    (tmp_path / ".git").mkdir()
    done = agentlite("init", ".", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["next"].startswith("agentlite prep")
    assert set(told["files"]) < set(os.listdir(tmp_path))
