"""The recipes of CONTRIBUTING.md, followed on a copy of the package: each works, with as many files
as it promises.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.samples import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPE = re.compile(r"^### (Add [^\n:]*): (\d+) files?\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
RECIPES = {name: (int(count), text) for name, count, text in RECIPE.findall(PAGE)}
NEW = re.compile(r"^```python\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EDIT = re.compile(r"^```diff\n  # (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package that may be changed."""
    for name in ("agentlite", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with what Python has compiled
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def edited(text: str, diff: str) -> str:
    """`text` with each hunk of a diff applied: its ` ` and `-` lines are there once, and become its
    ` ` and `+` lines.
    """
    for hunk in re.split(r"^\.\.\.\n", diff, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, f"the recipe's lines are not there once:\n{old}"
        text = text.replace(old, new)
    return text


def follow(recipe: str, checkout: Path) -> None:
    """Does what the recipe says, and counts the files against what it promises."""
    promised, text = RECIPES[recipe]
    new, edits = NEW.findall(text), EDIT.findall(text)
    assert len({path for path, _ in [*new, *edits]}) == promised
    for path, source in new:
        assert not (checkout / path).exists()
        (checkout / path).write_text(source, encoding="utf-8")
    for path, diff in edits:
        target = checkout / path
        target.write_text(edited(target.read_text(encoding="utf-8"), diff), encoding="utf-8")


def run(checkout: Path, *words: str) -> str:
    """What Python prints, with the changed copy as `agentlite`."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_a_format_reads_its_rows(checkout):
    follow("Add a format", checkout)
    program = """
from agentlite.data.formats import detect_format, to_record
row = {"q": "When?", "a": "At nine.", "shop": "Oslo"}
record = to_record(row)
print(detect_format(row), *(message.content for message in record.messages), record.meta)
"""
    output = run(checkout, "-c", program)
    assert output.startswith("faq When? At nine. {") and "Oslo" in output
    assert "faq" in run(checkout, "-m", "agentlite", "prep", "--formats")


@pytest.mark.long
def test_a_protocol_writes_and_reads_back(checkout):
    follow("Add a protocol", checkout)
    run(checkout, "-m", "agentlite", "init", "home")
    words = ("home/data.jsonl", "--protocol", "brackets", "--max-rejects", ".5", "--show", "3")
    shown = run(checkout, "-m", "agentlite", "prep", *words)
    assert "⟦" in shown and '[call] {"name":' in shown
    program = """
from agentlite.rendering import PROTOCOLS
for text in ('[call] {"name": "f", "arguments": {"a": 1}}', "[call] {", "[call] {} x"):
    print(PROTOCOLS["brackets"].parse(text))
"""
    good, *bad = run(checkout, "-c", program).splitlines()
    assert "'a': 1" in good and "problem=''" in good
    assert all("problem='call" in line for line in bad)


PROGRAMS = {
    "Add a reward component": """
from agentlite.core.records import Gold, Parsed
from agentlite.scoring.rewards import Attempt, score_attempt, settle_weights, total
text = "x" * 400
components = score_attempt(Attempt(Parsed(text), Gold(), (), finished=True, text=text)).components
with_it, without = (total(components, settle_weights(weights)) for weights in ({"brevity": 1}, {}))
print(components["brevity"], with_it - without)
""",
    "Add a metric": """
from agentlite.core.records import Call, Gold, GoldCall, Parsed
from agentlite.scoring.metrics.figures import parse_gate
from agentlite.scoring.metrics.figures import EXPLANATIONS
from agentlite.scoring.metrics.step_metrics import METRICS
call, gold = Call("f", {}), Gold((GoldCall("f", {}),))
values = [METRICS["single_call"](Parsed("", calls), gold, ()) for calls in ((call,), (call, call))]
print(*values, *parse_gate("single_call>=0.9"), EXPLANATIONS["single_call"])
""",
}
PRINTED = {
    "Add a reward component": "0.5 0.5",
    "Add a metric": "1.0 0.0 single_call>=0.9 The model makes exactly one call. "
    "Questions that need exactly one only.",
}


@pytest.mark.long
@pytest.mark.parametrize("recipe", PROGRAMS)
def test_an_answer_is_scored(recipe, checkout):
    follow(recipe, checkout)
    assert run(checkout, "-c", PROGRAMS[recipe]).strip() == PRINTED[recipe]


@pytest.mark.long
def test_a_stage_is_planned_done_and_listed(checkout):
    follow("Add a stage", checkout)
    assert "census " in run(checkout, "-m", "agentlite", "--help")
    run(checkout, "-m", "agentlite", "init", "home")
    run(checkout, "-m", "agentlite", "prep", "home/data.jsonl", "--max-rejects", ".5")
    planned = run(checkout, "-m", "agentlite", "census", "--dry-run", "--json")
    assert '"dry run"' in planned and not (checkout / "runs/default/census").exists()
    run(checkout, "-m", "agentlite", "census", "--split", "test")
    names = {path.name for path in (checkout / "runs/default/census").iterdir()}
    assert names >= {"plan.json", "census.json", "done.json"}
    again = run(checkout, "-c", "import agentlite; print(agentlite.census(split='test').status)")
    assert again.split() == ["up", "to", "date"]
    assert " tools" in run(checkout, "-m", "agentlite", "runs")
