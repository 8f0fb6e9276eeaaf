"""What `agentlite init` writes is prepared, trained and evaluated as it stands; agentlite.yaml is
read and told.
"""

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
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


@pytest.fixture
def started(tmp_path: Path) -> Path:
    done = agentlite("init", "weather", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "next: cd weather && agentlite prep data.jsonl && agentlite sft && agentlite eval"
    )
    return tmp_path / "weather"


@pytest.mark.long
def test_the_sample_is_one_assistant_that_says_what_its_functions_return(started):
    rows = [json.loads(line) for line in (started / "data.jsonl").read_text("utf-8").splitlines()]
    tools = json.loads((started / "tools.json").read_text("utf-8"))
    functions = runpy.run_path(str(started / "tools.py"))
    assert len(rows) == 78 and all(row["tools"] == tools for row in rows)
    called: Counter[str] = Counter()
    for row in rows:
        answers = row["messages"][1:]
        for message, following in zip(answers, [*answers[1:], None], strict=True):
            for call in message.get("tool_calls") or ():
                function = call["function"]
                called[function["name"]] += 1
                returned = functions[function["name"]](**json.loads(function["arguments"]))
                assert (following["role"], json.loads(following["content"])) == ("tool", returned)
        assert row["messages"][-1]["role"] == "assistant" and row["messages"][-1]["content"]
    assert called.keys() == {tool["function"]["name"] for tool in tools}
    assert min(called.values()) >= 15
    refused = [row for row in rows if "I cannot do that" in (row["messages"][1]["content"] or "")]
    assert len(refused) >= 10
    assert sum(len(row["messages"]) > 4 for row in rows) >= 30  # with more than one question


@pytest.mark.long
def test_a_folder_in_use_is_refused_and_stays_as_it_is(tmp_path):
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather" / "thesis.txt").write_text("years of work", encoding="utf-8")
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = agentlite("init", "weather", cwd=tmp_path)
    assert done.returncode == 2
    assert "thesis.txt" in done.stderr
    assert os.listdir(tmp_path / "weather") == ["thesis.txt"]
    assert agentlite("init", "file", cwd=tmp_path).returncode == 2


def test_an_empty_folder_is_taken_also_the_current_one(tmp_path):
    (tmp_path / ".git").mkdir()
    done = agentlite("init", ".", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["next"].startswith("agentlite prep")
    assert set(told["files"]) < set(os.listdir(tmp_path))


def test_the_file_of_the_folder_is_stronger_than_the_profile_and_weaker_than_what_is_named(
    tmp_path,
):
    (tmp_path / "agentlite.yaml").write_text(
        "sft:\n  batch_size: 3\n  lora_r: 5\n  seed: 9\n", encoding="utf-8"
    )
    (tmp_path / "other.yaml").write_text("sft:\n  lora_r: 6\n", encoding="utf-8")
    done = agentlite(
        "sft",
        "--print-config",
        "--profile",
        "cpu",
        "--config",
        "other.yaml",
        "--seed",
        4,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "settings: agentlite.yaml\n"
    found = {line.split(":")[0].strip(): line for line in done.stdout.splitlines()}
    assert "3" in found["batch_size"]
    assert found["batch_size"].endswith("# agentlite.yaml")
    assert found["lora_r"].endswith("# other.yaml")
    assert found["seed"].endswith("# --seed")
    assert found["gradient_accumulation"].endswith("# profile cpu")
    (tmp_path / "below").mkdir()
    assert "agentlite.yaml" not in agentlite("sft", "--print-config", cwd=tmp_path / "below").stderr
