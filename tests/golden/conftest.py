"""The workspaces whose files are compared with tests/golden/values."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.golden import VALUES, Golden, compare
from support.samples import ROOT

import agentlite
from agentlite.core.row_files import read_rows

REWARD = '''
def even(attempt):
    """A random model can learn this: the share of characters of even number."""
    return sum(ord(mark) % 2 == 0 for mark in attempt.text) / max(1, len(attempt.text))
'''


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, value, within=1e-6)`: the value is the stored one."""
    path = VALUES / f"{request.path.stem.removeprefix('test_golden_')}.json"

    def check(name: str, value: Any, within: float = 1e-6) -> None:
        compare(path, name, value, within)

    return check


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with 200 questions of BFCL as records, all of them in train."""
    run = tmp_path_factory.mktemp("questions")
    categories = ("simple_python", "multiple", "parallel", "irrelevance")
    agentlite.prep(
        *(f"bfcl:{category}" for category in categories),
        run=str(run),
        model="smollm2-135m",
        protocol="hermes",
        limit=200,
        dev=0.0,
        test=0.0,
    )
    return run


@pytest.fixture(scope="module")
def tiny_run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace for the tiny model: a prep of short dialogs, preferences, and a teacher."""
    run = tmp_path_factory.mktemp("tiny-run")
    shutil.copyfile(ROOT / "tests/support/rows/weather.jsonl", run / "weather.jsonl")
    options = {"model": str(tiny_model), "protocol": "hermes", "dev": 0.0, "test": 0.0}
    agentlite.prep(str(run / "weather.jsonl"), run=str(run), **options)
    preferences = [preference(row) for row in read_rows(run / "prep/train.jsonl")]
    text = "".join(json.dumps(row) + "\n" for row in preferences)
    (run / "preferences.jsonl").write_text(text, encoding="utf-8")
    agentlite.pairs(
        run=str(run), preferences=(str(run / "preferences.jsonl"),), model=str(tiny_model)
    )
    (run / "reward.py").write_text(REWARD, encoding="utf-8")
    steps = {"max_steps": 4, "learning_rate": 5e-2, "batch_size": 4, "gradient_accumulation": 1}
    agentlite.sft(run=str(run), out="teacher", model=str(tiny_model), **steps)
    return run


def preference(row: dict[str, Any]) -> dict[str, Any]:
    question = next(message for message in row["messages"] if message["role"] == "user")
    words = f"About that: {question['content'][::-1]}"
    return {
        "prompt": [question],
        "chosen": [{"role": "assistant", "content": words}],
        "rejected": [{"role": "assistant", "content": f"{words[:30]} and who knows"}],
    }
