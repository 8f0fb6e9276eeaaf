"""The first page of the README, run as it stands: from a clean copy of what is committed, in a new
folder. docs/first.md shows what it prints. And the notebook, cell by cell.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import ALL
from support.samples import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import first_page

# what depends on the machine, or on the hour
VARIES = re.compile(r"(?<= in )\d+(?= s)")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    if (ROOT / ".git").exists():
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder], check=True)
    else:
        left_out = shutil.ignore_patterns(".venv", ".peers", "runs", ".*_cache", "__pycache__")
        shutil.copytree(ROOT, folder, ignore=left_out)
    return folder


def test_each_command_of_the_first_page_is_shown_with_its_output() -> None:
    blocks = first_page.BLOCK.findall(first_page.PAGE.read_text(encoding="utf-8"))
    assert sorted(blocks) == sorted(first_page.commands())


def of_few_steps(lines: list[str]) -> list[str]:
    """The commands with two steps of training and two dialogs an evaluation, in minutes."""
    first, second, *others = lines
    assert second.startswith("agentlite init home")
    fewer = r"s/num_epochs: 2/max_steps: 2/; s/max_new_tokens: 64/max_new_tokens: 16\n  limit: 2/"
    return [first, f"{second} && sed -i '{fewer}' agentlite.yaml", *others]


@pytest.mark.slow
@pytest.mark.timeout(7200)  # with --all on a slow machine
def test_the_first_page_runs_as_it_stands(clone: Path, tmp_path: Path) -> None:
    """Whole with --all, where the tuned model has to be good."""
    lines = first_page.commands()
    run_lines = lines if ALL else of_few_steps(lines)
    shown = dict(zip(lines, first_page.outputs(run_lines, tmp_path, clone), strict=True))
    run = tmp_path / "home" / "runs" / "default"
    for stage in ("prep", "sft", "eval/prep/sft"):
        assert (run / stage / "done.json").exists(), stage
    assert (run / "report.html").stat().st_size > 10_000
    exported = json.loads((tmp_path / "home" / "model" / "config.json").read_text())
    assert exported["model_type"] == "llama"
    assert not any("Traceback" in output for output in shown.values())
    assert re.search(r"picks the right tool for \d+ of \d+", shown["agentlite eval"])
    if ALL:  # the model calls the tool, reads its result, and says so in a sentence
        [chat] = [output for line, output in shown.items() if "agentlite chat" in line]
        before, answer = chat.split("</tool_call>")
        assert '"name": "set_light"' in before and "hall" in answer
    # what does not depend on the machine stands in the docs as it was printed
    page = VARIES.sub("", first_page.PAGE.read_text(encoding="utf-8"))
    for line, output in shown.items():
        if line.startswith(("agentlite init", "agentlite prep")):
            assert VARIES.sub("", first_page.shorten(output)) in page, line


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_cells_of_the_notebook_run_in_their_order(tmp_path: Path) -> None:
    """With two steps of training and two dialogs an evaluation. The shell stands for Jupyter."""
    notebook = json.loads((ROOT / "scripts/examples/first.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    in_shell = [re.sub("^!|^%(?=cd )", "", cell) for cell in cells]
    install, *commands = [cell.replace("%%bash", "") for cell in in_shell]
    fewer = {"--max-steps 40": "--max-steps 2", "--limit 8": "--limit 2 --max-new-tokens 16"}
    assert all(long in "".join(commands) for long in fewer)
    for long, short in fewer.items():
        commands = [command.replace(long, short) for command in commands]
    shown = first_page.outputs([f"({install})", *commands], tmp_path)
    assert "sft: done" in "".join(shown) and "picks the right tool" in shown[-1]
