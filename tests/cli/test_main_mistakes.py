"""The commonest mistakes are each answered with their exit code and what to do, before torch is
imported.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support import processes
from support.samples import DATA, ROOT

PROGRAM = """
import sys
from agentlite.cli.main import main
try:
    main()
finally:
    slow = {"torch", "transformers", "unsloth"} & sys.modules.keys()
    print("imported:", *sorted(slow), file=sys.stderr)
"""


class Mistake(NamedTuple):
    """What is typed, the exit code, and words of the answer that name the way out."""

    typed: str
    code: int
    told: str


MISTAKES = [
    Mistake("evla", 2, "Did you mean 'eval'?"),
    Mistake("train rows.jsonl", 2, "Did you mean 'sft'?"),
    Mistake("sft --lora-rank 8", 2, "Did you mean '--lora-r'?"),
    Mistake("sft --xyzzy 8", 2, "`agentlite sft --help-all` lists them all"),
    Mistake("--xyzzy", 2, "`agentlite --help` lists them all"),
    Mistake("sft --lr fast", 2, '"fast" does not fit FLOAT: Expected `float`'),
    Mistake("sft --model smollm2-135 --out other", 5, "Did you mean 'smollm2-135m'?"),
    Mistake("sft --alpha 8", 2, "Write it as --set sft.lora_alpha=32"),
    Mistake("pairs --concurrency 8", 2, "--set pairs.requests=seconds=600,tries=5,concurrency=4"),
    Mistake("sft --set lora_r=8", 2, "--set command.key=value"),
    Mistake(
        "sft --config typo.yaml",
        2,
        "typo.yaml: no setting 'sft.learning_rat'. Did you mean 'sft.learning_rate'?",
    ),
    Mistake("sft --profile rtx4080", 2, "Did you mean 'rtx4090'?"),
    Mistake("prep nowhere.jsonl", 2, "nowhere.jsonl: no such file"),
    Mistake("prep empty.jsonl --run new", 4, "no rows"),
    Mistake("prep rows.jsonl --model gpt-7 --out other", 5, "Known: smollm2-135m"),
    Mistake("prep rows.jsonl --seed 7", 3, "prep.seed 0 -> 7"),
    Mistake("prep rows.jsonl --out mine", 3, "Give another --out"),
    Mistake("prep rows.jsonl --run rows.jsonl", 74, "Not a directory"),
    Mistake("sft --run new", 2, "run `agentlite prep --run new` as before"),
    Mistake("sft --model prep", 2, "Name a stage that trains one"),
    Mistake("sft --load-in-4bit true --out bits", 2, "leave load_in_4bit and load_in_8bit off"),
    Mistake("eval", 2, "Run `agentlite sft` first"),
    Mistake(
        "eval --model smollm2-135m --gate tool_selecton_accuracy>=.8",
        2,
        "Did you mean 'tool_selection_accuracy'?",
    ),
    Mistake("pairs --model smollm2-135m --weights exct=1", 2, "Did you mean 'exact'?"),
    Mistake("dpo", 2, "Run `agentlite pairs` first"),
]


def typed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "-1",
        "COLUMNS": "200",
    }
    command = [sys.executable, "-c", PROGRAM, *line.split()]
    return processes.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=120
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prep of a few rows, and what a beginner has lying about."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "rows.jsonl").write_bytes((DATA / "weather.jsonl").read_bytes())
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "typo.yaml").write_text("sft:\n  learning_rat: 1e-4\n", encoding="utf-8")
    mine = folder / "runs" / "default" / "mine"
    mine.mkdir(parents=True)
    (folder / "agentlite.yaml").write_text("prep:\n  dev: 0.2\n  test: 0.3\n", encoding="utf-8")
    (mine / "thesis.txt").write_text("years of work", encoding="utf-8")
    done = typed("prep rows.jsonl", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.typed)
def test_a_mistake_is_answered_at_once_with_the_way_out(folder, mistake):
    done = typed(mistake.typed, folder)
    assert done.returncode == mistake.code, done.stderr
    assert mistake.told in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("imported:\n"), "slow libraries were imported before the answer"


@pytest.mark.long
def test_a_mistake_leaves_nothing_that_needs_force(folder):
    """Mended, the same command is taken: 4 bit was refused, and then left out."""
    assert typed("sft --load-in-4bit true --out mended", folder).returncode == 2
    mended = typed("sft --out mended --max-length 1", folder)
    assert mended.returncode == 2
    assert "longer than max_length (1)" in mended.stderr


def test_a_typo_in_the_settings_of_the_folder_names_that_file(tmp_path):
    (tmp_path / "agentlite.yaml").write_bytes(b"sft:\n  epochs: 3\n")
    done = typed("sft", tmp_path)
    assert done.returncode == 2
    assert "agentlite.yaml: no setting 'sft.epochs'. Did you mean 'sft.num_epochs'?" in done.stderr
