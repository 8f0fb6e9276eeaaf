"""docs/environments.md run as it stands: a shop, right calls, live models, made dialogs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import agentlite
from support.samples import ROOT
from support.scripted_server import ScriptedServer

pytestmark = [pytest.mark.torch, pytest.mark.long]
PAGE = (ROOT / "docs/environments.md").read_text(encoding="utf-8")
SHOP, MADE = PAGE.split("## What a class has")[0], PAGE.partition("## Dialogs from tools")[2]
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", SHOP, re.DOTALL))
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
    "make": ["-n", "16"],
}


def lines_of(part: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the files of the page, and the tasks that one of them makes."""
    assert {*FILES} == {"shop.py", "tasks.py"} and lines_of(SHOP)[
        0
    ] == "python tasks.py > tasks.jsonl"
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    made = subprocess.run([sys.executable, "tasks.py"], cwd=tmp_path, capture_output=True)
    assert made.returncode == 0 and len(made.stdout.splitlines()) == 72
    (tmp_path / "tasks.jsonl").write_bytes(made.stdout)
    return tmp_path


def run(line: str, folder: Path, model: Path) -> None:
    program, command, *words = shlex.split(line.replace("smollm2-135m", str(model)))
    assert program == "agentlite"
    more = [word.format(model=model) for word in SHORT[command]]
    if "gold" in line and command != "make":
        more = ["--model", str(model)] if command == "prep" else []
    done = agentlite(command, *words, *more, cwd=folder)
    assert done.returncode == 0, f"{line}\n{done.stderr.decode()}"


def test_the_commands_of_the_shop_run(tiny_model: Path, folder: Path) -> None:
    server = ScriptedServer(lambda body: "It rains.")
    try:
        for line in lines_of(SHOP)[1:]:
            if not any(part in line for part in NEEDS_A_MODEL):
                run(line.replace(PAGES_SERVER, server.url), folder, tiny_model)
        assert server.bodies
    finally:
        server.close()


def test_dialogs_are_made_of_the_shop_without_a_model(tiny_model: Path, folder: Path) -> None:
    made, prepared, *_ = lines_of(MADE)
    for line in (made, prepared):
        run(line, folder, tiny_model)
    assert len((folder / "runs/default/make/dialogs.jsonl").read_bytes().splitlines()) >= 12
