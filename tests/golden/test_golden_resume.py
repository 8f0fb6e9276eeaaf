"""A training that is killed and run again ends with the bytes of one that was not."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes import environment, run
from support.samples import ROOT

import agentlite
from agentlite.config.settings import option_words

STEPS = {"max_steps": 4, "save_steps": 2, "batch_size": 4, "gradient_accumulation": 1}
TRAINERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("sft", {}),
    "dpo": ("dpo", {}),
    "grpo": ("grpo", {"max_new_tokens": 8}),
    "ppo": ("grpo", {"max_new_tokens": 8, "advantage": "value", "rollouts": 4, "ppo_epochs": 1}),
    "distill": ("distill", {"max_new_tokens": 8, "teacher": "teacher"}),
}


def weights(run: Path, out: str) -> bytes:
    return (run / out / "adapter/adapter_model.safetensors").read_bytes()


def words(command: str, options: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in options.items()
        for word in (
            (f"--{name}", value) if name in ("run", "out") else option_words(command, name, value)
        )
    ]


@pytest.mark.parametrize("moment", ["log 3", "save 4"])
@pytest.mark.parametrize("name", TRAINERS)
def test_a_kill_changes_no_byte(name: str, moment: str, tiny_run: Path, tiny_model: Path) -> None:
    command, options = TRAINERS[name]
    options = {**STEPS, "model": str(tiny_model), "learning_rate": 1e-2, **options}
    reward = f"{tiny_run / 'reward.py'}:even"
    scored = {"rewards": (reward,)} if command == "grpo" else {}
    getattr(agentlite, command)(run=str(tiny_run), out=f"whole-{name}", **options, **scored)
    killed_out = f"killed-{name}-{moment[:3]}"
    options |= {"run": str(tiny_run), "out": killed_out}
    killer = ROOT / "tests/support/kill_at.py"
    arguments = [
        str(killer),
        moment,
        command,
        *words(command, options),
        *(["--rewards", reward] if scored else []),
    ]
    killed = run(
        [sys.executable, *arguments], env=environment(), capture_output=True, server="torch"
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (tiny_run / f"{killed_out}/adapter").exists()
    getattr(agentlite, command)(**options, **scored)
    assert weights(tiny_run, killed_out) == weights(tiny_run, f"whole-{name}")
