"""What a dry run says of memory is what `agentlite plan` says of the same settings and card."""

from typing import Any

import pytest

from agentlite.config import resolve
from agentlite.engine.planning import dry_run
from agentlite.engine.planning.estimate import RowLengths, plan
from agentlite.engine.planning.gpus import Machine, with_memory
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import find_shape
from agentlite.engine.planning.time_and_disk import CARDS

BASE = "smollm2-135m"
SHARE = {"vllm_gpu_memory_utilization": 0.6}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("sft", {}),
    "packed": ("sft", {"packing": True, "batch_tokens": 4096}),
    "hf": ("sft", {"engine": "hf"}),
    "dpo": ("dpo", {}),
    "grpo": ("grpo", {}),
    "grpo and vLLM of its own": ("grpo", {"engine": "hf", "vllm": True}),
    "grpo and vLLM with a share": ("grpo", {"engine": "hf", "vllm": True, "trl": SHARE}),
    "grpo and vLLM of Unsloth": ("grpo", {"vllm": True}),
    "grpo and Unsloth with a share": ("grpo", {"vllm": True, "trl": SHARE}),
    "pairs": ("pairs", {}),
    "eval": ("eval", {}),
}
MACHINES = {
    "24": with_memory(24),
    "6": with_memory(6),
    "in use": Machine(True, CARDS["rtx3060"], 7 * GIB),
    "none": with_memory(16)._replace(gpu=False),
}


@pytest.mark.parametrize("longest", [0, 300])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_dry_run_needs_what_is_planned(
    name: str, machine: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command, changed), card = SETTINGS[name], MACHINES[machine]
    settings = resolve.resolve(command, resolve.Given(changed, profile="rtx4090")).settings
    monkeypatch.setattr(dry_run, "machine_of", lambda _: card)
    monkeypatch.setattr(dry_run, "fitting", lambda *_: [])
    found = dry_run.dry_run_memory(command, settings, BASE, longest)
    need = plan(command, settings, find_shape(BASE), card, RowLengths(10, longest, 300)).gib
    assert found == {**need.terms, "total": need.total, "of": need.of, "fits": need.fits}
