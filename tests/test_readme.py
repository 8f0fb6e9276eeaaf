"""The first page of the README, run as it stands: from a clean copy of what is committed, in a new
folder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.samples import ROOT

TITLE = "## The first half hour"


def first_page() -> list[str]:
    """The commands of its block, after the one that sets everything up, which this test could not
    be run without.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8").split(TITLE, 1)[1]
    block = re.search(r"\n((?:    .*\n)+)", text)
    assert block
    lines = [line[4:] for line in block[1].splitlines()]
    assert lines[0].startswith("bash scripts/setup.sh")
    return lines[1:]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    if (ROOT / ".git").exists():
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder], check=True)
    else:
        left_out = shutil.ignore_patterns(".venv", ".peers", "runs", ".*_cache", "__pycache__")
        shutil.copytree(ROOT, folder, ignore=left_out)
    return folder


@pytest.mark.slow
def test_the_first_page_runs_as_it_stands(clone: Path, tmp_path: Path) -> None:
    own = tmp_path / "bin"
    own.mkdir()
    (own / "agentlite").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m agentlite "$@"\n', encoding="utf-8"
    )
    (own / "agentlite").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{own}:{os.environ['PATH']}",
        "PYTHONPATH": str(clone),
        "HF_HUB_OFFLINE": "1",
    }
    environment.pop("AGENTLITE_RUN", None)
    script = "\n".join(["set -euo pipefail", *first_page()])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    run = tmp_path / "weather" / "runs" / "default"
    for stage in ("prep", "sft", "eval/prep/sft"):
        assert (run / stage / "done.json").exists(), stage
    assert (run / "report.html").stat().st_size > 10_000
    assert (
        json.loads((tmp_path / "weather" / "model" / "config.json").read_text())["model_type"]
        == "llama"
    )
    assert "Traceback" not in done.stderr
