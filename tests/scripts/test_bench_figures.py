"""scripts/bench/figures.sh: every command that it runs can be typed; figures that are none."""

import shlex
import subprocess
from pathlib import Path

import pytest
from support.samples import ROOT
from test_docs import misread

SCRIPT = ROOT / "scripts/bench/figures.sh"


def run(folder: Path, *figures: str) -> subprocess.CompletedProcess[str]:
    """With a program in place of agentlite that writes its words to a file."""
    program = folder / "agentlite"
    typed = folder / "typed"
    program.write_text(
        f"#!/usr/bin/env bash\nprintf '%q ' \"$@\" >>{typed}\necho >>{typed}\n", encoding="utf-8"
    )
    program.chmod(0o755)
    return subprocess.run(
        ["bash", str(SCRIPT), *figures],
        env={"PATH": "/usr/bin:/bin", "AGENTLITE": str(program)},
        capture_output=True,
        text=True,
    )


@pytest.mark.long
def test_every_command_of_the_figures_can_be_typed(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    typed = [shlex.split(line) for line in (tmp_path / "typed").read_text().splitlines()]
    assert [words for words in typed if misread(words)] == []
    stages = [words[0] for words in typed]
    assert stages.count("sft") == 2 + 1 + 3 and {"make", "rollout", "prep", "grpo", "eval"} < {
        *stages
    }


def test_a_figure_that_is_none_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    done = run(tmp_path, "lives")
    assert done.returncode == 2 and "live, made or templates" in done.stderr
    assert not (tmp_path / "typed").exists()
