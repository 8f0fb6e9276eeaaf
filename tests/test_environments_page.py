"""docs/environments.md run as it stands: a shop, right calls, a model that learns them and acts."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import ALL
from support.faulty_server import FaultyServer
from support.processes import agentlite
from support.samples import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.long]
PAGE = (ROOT / "docs/environments.md").read_text(encoding="utf-8").split("## What a class has")[0]
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if line
]
PAGES_SERVER = "http://localhost:8000/v1"
# What a random model cannot show: no rollout of its is good, and none better than another.
NEEDS_A_MODEL = ("--keep best", "prep-best", "agentlite pairs", "agentlite dpo")
# For a random model: enough to see that it runs.
SHORT = {
    "prep": ["--model", "{model}"],
    "sft": ["--max-steps", "1"],
    "rollout": ["--limit", "2", "--max-new-tokens", "8"],
    "eval": ["--limit", "2", "--max-new-tokens", "8"],
    "grpo": ["--max-steps", "1", "--max-new-tokens", "8", "--gradient-accumulation", "1"],
}


@pytest.fixture(scope="module")
def server():
    """The page's server, which answers words to everything."""
    one = FaultyServer()
    yield one
    one.close()


def ran(line: str, folder: Path, server: FaultyServer, more: list[str]) -> str:
    program, *words = shlex.split(line.replace(PAGES_SERVER, server.url))
    assert program == "agentlite"
    done = agentlite(*words, *more, cwd=folder)
    assert done.returncode == 0, f"{line}\n{done.stderr.decode()}"
    return done.stdout.decode()


def begin(folder: Path) -> list[str]:
    """Writes the page's files. Returns the lines behind the one that makes the tasks."""
    assert {*FILES} == {"shop.py", "tasks.py"} and LINES[0] == "python tasks.py > tasks.jsonl"
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    made = subprocess.run([sys.executable, "tasks.py"], cwd=folder, capture_output=True)
    assert made.returncode == 0 and len(made.stdout.splitlines()) == 72
    (folder / "tasks.jsonl").write_bytes(made.stdout)
    return LINES[1:]


def test_every_command_runs(tiny_model, tmp_path, server):
    for line in begin(tmp_path):
        if any(part in line for part in NEEDS_A_MODEL):
            continue
        line = line.replace("smollm2-135m", str(tiny_model))
        command = line.split()[1]
        more = [word.format(model=tiny_model) for word in SHORT[command]]
        if "gold" in line:
            more = ["--model", str(tiny_model)] if command == "prep" else []
        ran(line, tmp_path, server, more)
    figures = json.loads((tmp_path / "runs/default/grpo/done.json").read_text())["figures"]
    assert figures["tasks"] == 48 and figures["steps"] == 1
    assert sum(PAGES_SERVER in line for line in LINES) == 2 and server.asked


@pytest.mark.skipif(not ALL, reason="half an hour; with --all")
def test_the_page_as_it_stands_makes_a_model_that_buys_what_it_should(tmp_path, server):
    for line in begin(tmp_path):
        ran(line, tmp_path, server, [])
    metrics = {
        path.parent.name: json.loads(path.read_text())["metrics"]["env"]["mean"]
        for path in (tmp_path / "runs/default/eval/shop.py-Shop").glob("*/metrics.json")
    }
    assert metrics["smollm2-135m"] < 0.2 < 0.6 < metrics["sft"]
    assert metrics["grpo"] >= metrics["sft"] - 0.2
