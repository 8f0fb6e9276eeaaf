"""docs/making.md run as it stands, up to prep: from the shop's tools to records."""

import json
import re
import shlex
import subprocess
import sys

import pytest
from support.processes import agentlite
from support.samples import ROOT
from support.scripted_meta_agent import meta_agent
from support.scripted_server import ScriptedServer

from agentlite.core.row_files import read_rows

SHOP = (ROOT / "docs/environments.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/making.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", SHOP, re.DOTALL))
LINES, PLAYED, MOCK, JUDGED, QUERIES, TEMPLATES = (
    block.splitlines() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
)


def test_the_kinds_of_the_page_are_those_that_are_made():
    from agentlite.environments.making.blueprint import KINDS

    table = PAGE.partition("## Kinds of dialogs")[2].partition("\n## ")[0]
    assert {*re.findall(r"^\| `(\w+)`", table, re.MULTILINE)} == {*KINDS}


@pytest.mark.long
def test_the_commands_make_dialogs_that_prep_reads(tiny_model, tmp_path):
    for name in ("shop.py", "tasks.py"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    made = subprocess.run([sys.executable, "tasks.py"], cwd=tmp_path, capture_output=True)
    (tmp_path / "tasks.jsonl").write_bytes(made.stdout)
    assert [shlex.split(line)[1] for line in LINES] == ["make", "prep", "sft", "eval"]
    for line, more in zip(LINES[:2], (["-n", "40"], ["--model", str(tiny_model)]), strict=True):
        done = agentlite(*shlex.split(line)[1:], *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
    assert [shlex.split(line)[1] for line in PLAYED] == ["make", "prep"]
    assert [shlex.split(line)[1] for line in (*MOCK, *JUDGED)] == ["make", "make"]
    dialogs = [*read_rows(tmp_path / "runs/default/make/dialogs.jsonl")]
    called = str([row["messages"] for row in dialogs])
    assert len(dialogs) >= 36 and '"name": "search"' in called.replace("'", '"')


@pytest.mark.torch
@pytest.mark.long
def test_a_model_writes_queries(tiny_model, tmp_path):
    words = [shlex.split(line)[1:] for line in QUERIES]
    assert [one[0] for one in words] == ["make", "pairs"]
    (tmp_path / "dialogs.jsonl").write_bytes(
        (ROOT / "tests/support/rows/weather.jsonl").read_bytes()
    )
    new = json.dumps(["Which ferry leaves Turku before noon?", "Who won at chess in 1987?"])
    server = ScriptedServer(lambda body: new)
    try:
        words[0][words[0].index("--endpoint") + 1] = server.url
        prep = ["prep", "dialogs.jsonl", "--model", str(tiny_model), "--dev", "0", "--test", "0"]
        for command in (prep, [*words[0], "-n", "2"]):
            done = agentlite(*command, cwd=tmp_path)
            assert done.returncode == 0, done.stderr.decode()
    finally:
        server.close()
    made = [*read_rows(tmp_path / "runs/default/queries/queries.jsonl")]
    assert [row["prompt"] for row in made] == json.loads(new) and made[0]["tools"]


@pytest.mark.long
def test_a_model_writes_templates_that_prep_takes(tiny_model, tmp_path):
    words = [shlex.split(line)[1:] for line in TEMPLATES]
    assert [one[0] for one in words] == ["make", "prep", "sft", "eval"]
    (tmp_path / "dialogs.jsonl").write_bytes(
        (ROOT / "tests/support/rows/weather.jsonl").read_bytes()
    )
    rows = ["dialogs.jsonl", "--model", str(tiny_model), "--dev", "0", "--test", "0"]
    server = ScriptedServer(meta_agent)
    try:
        url = words[0].index("--endpoint") + 1
        words[0][url] = server.url
        for command in (["prep", *rows], [*words[0], "-n", "2"], [*words[1], *rows[1:]]):
            done = agentlite(*command, cwd=tmp_path)
            assert done.returncode == 0, done.stderr.decode()
    finally:
        server.close()
    prepared = [*read_rows(tmp_path / "runs/default/prep-templates/train.jsonl")]
    assert prepared and "meta-0" in str([row["meta"] for row in prepared])
