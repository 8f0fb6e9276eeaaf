"""Settings: who wins, where each came from, and what a typo is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentlite.config.resolve import UserSettings, as_yaml, config_folder, resolve
from agentlite.config.settings import COMMANDS, AblateSettings, fields
from agentlite.core.errors import UserError
from agentlite.stages.ablate.cells import read_ablation
from agentlite.workspace.lookup import RunTarget


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (UserSettings(sets=("stf.seed=1",)), "Did you mean 'sft'"),
        (UserSettings(sets=("seed=1",)), "command.key=value"),
        (UserSettings(sets=("sft.lora_r=many",)), "sft.lora_r"),
        (UserSettings(sets=("sft.lora_r=0",)), "sft.lora_r"),
        (UserSettings({"engine": "unslot"}), "sft.engine"),
        (UserSettings(profile="rtx9090"), "rtx4090"),
        (UserSettings(files=("no/such.yaml",)), "no/such.yaml"),
    ],
)
def test_a_value_that_does_not_fit_names_its_place(given, told):
    given = given if given.profile != "auto" else given._replace(profile="cpu")
    with pytest.raises(UserError, match=told):
        resolve("sft", given)


def test_what_print_config_prints_is_a_file_that_gives_the_same_settings(tmp_path):
    path = tmp_path / "printed.yaml"
    flags = {
        "lora_target_modules": "q_proj,v_proj",
        "learning_rate": "0.001",
        "trl": {"weight_decay": 0.1},
    }
    first = resolve("sft", UserSettings(flags, profile="cpu"))
    path.write_text(as_yaml("sft", first), encoding="utf-8")
    again = resolve("sft", UserSettings(files=(str(path),), profile="cpu"))
    assert again.settings == first.settings
    assert first.settings.lora_target_modules == ("q_proj", "v_proj")


@pytest.mark.long
def test_every_shipped_file_is_valid():
    for path in config_folder().rglob("*.yaml"):
        if path.parent.name == "grids":
            _, cells = read_ablation(AblateSettings(grid=str(path)), RunTarget(Path("runs"), "a"))
            assert len(cells) > 1
            continue
        for command in COMMANDS:
            required = {"sources": ["x"]} if command == "prep" else {}
            resolve(command, UserSettings(required, files=(str(path),), profile="cpu"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("driver_line", "bits"),
    [
        ("NVIDIA A100-SXM4-80GB, 81920, 81000, 8.0", 16),
        ("NVIDIA GeForce RTX 4090, 24564, 23500, 8.9", 16),
        ("NVIDIA GeForce RTX 4090, 24564, 4400, 8.9", 4),  # another process holds the rest
        ("Tesla T4, 15360, 14900, 7.5", 16),
        ("NVIDIA GeForce RTX 3050, 4096, 3900, 8.6", 4),
        ("No devices were found", 32),
    ],
)
def test_a_command_says_by_which_free_memory_it_chose(driver_line, bits, tmp_path):
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\necho '0, GPU-a, {driver_line}'\n")
    driver.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    command = [sys.executable, "-m", "agentlite", "eval", "--model", "Qwen/Qwen2.5-1.5B-Instruct"]
    command += ["--print-config", "--run", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    lines = {line.split(":")[0].strip(): line for line in done.stdout.splitlines()}
    if bits == 32:
        assert lines["batch_size"].endswith("# profile cpu (no NVIDIA GPU is found)")
        return
    name, _, free, capability = driver_line.split(", ")
    assert lines["load_in_4bit"].split()[1] == ("true" if bits == 4 else "false")
    (reason,) = done.stderr.splitlines()
    assert reason.startswith(f"profile auto: {bits} bit and batch_size ")
    assert f"of {int(free) / 1024:.1f} GiB free on {name}, calculated" in reason
    assert ("float16" in reason) == (float(capability) < 8)
    why = reason.removeprefix("profile auto: ").removesuffix("; --profile chooses another")
    for key in ("load_in_4bit", "batch_size"):
        assert lines[key].endswith(f"# profile auto ({why})")


def test_every_setting_is_described_in_a_section():
    for command in COMMANDS:
        assert all(field.section and field.help for field in fields(command).values())
