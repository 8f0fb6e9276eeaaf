"""Settings that cannot work together are refused with the setting that is wrong."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from agentlite.config.settings import GrpoSettings, SftSettings
from agentlite.config.this_machine import Gpu
from agentlite.core.errors import UserError
from agentlite.engine import load, refusals
from agentlite.workspace.lookup import Source

WHOLE, ADAPTER = Source("m", "m", None, ""), Source("sft", "m", Path("sft/adapter"), "")
ZERO2 = {"engine": "hf", "deepspeed": "deepspeed/zero2.json"}


@pytest.mark.parametrize(
    ("given", "source", "location"),
    [
        ({"full": True, "load_in_4bit": True}, WHOLE, "sft.full"),
        ({"full": True}, ADAPTER, "sft.full"),
        ({**ZERO2, "load_in_4bit": True}, WHOLE, "sft.deepspeed"),
        ({"deepspeed": "deepspeed/zero2.json"}, WHOLE, "sft.deepspeed"),
    ],
)
def test_settings_that_do_not_go_together(given, source, location, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2" if "deepspeed" in given else "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: name)
    settings = SftSettings(**given)
    cases = refusals.training_cases("sft", settings, source)
    with pytest.raises(UserError) as told:
        refusals.refuse("sft", cases)
    assert told.value.location == location and told.value.exit_code == 2


@pytest.mark.parametrize(
    ("given", "gpu", "packages", "location"),
    [
        ({}, True, (), "grpo.vllm"),
        ({}, False, ("vllm",), "grpo.vllm"),
        ({"load_in_4bit": True}, True, ("vllm",), "grpo.vllm"),
        ({"full": True}, True, ("vllm",), "grpo.full"),
        ({"peft": {"use_dora": True}}, True, ("vllm",), "grpo.peft.use_dora"),
        ({"vllm_levers": ("suffix",)}, True, ("vllm",), "grpo.vllm"),
        ({"vllm_levers": ("standby",), "engine": "hf"}, True, ("vllm",), "grpo.vllm_levers"),
    ],
)
def test_what_vllm_cannot_sample(given, gpu, packages, location, monkeypatch):
    card = Gpu("RTX 3060", 12, 11.5, 8.6) if gpu else None
    monkeypatch.setattr(refusals, "find_gpu", lambda: card)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in packages or None)
    with pytest.raises(UserError) as told:
        refusals.refuse("grpo", refusals.vllm_cases(GrpoSettings(vllm=True, **given)))
    assert told.value.location == location and told.value.exit_code == 2


@pytest.mark.parametrize(("answers", "fix"), [(1, "Raise --batch-size"), (6, "one of 2, 3, 6")])
def test_a_step_without_whole_groups_names_what_would_be(answers: int, fix: str) -> None:
    settings = GrpoSettings(batch_size=answers, gradient_accumulation=1, group_size=4)
    with pytest.raises(UserError, match="no whole groups") as told:
        refusals.refuse("grpo", refusals.sampling_cases(settings))
    assert fix in str(told.value)


def test_rows_of_an_adapter_that_vllm_cannot_sample(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"trainable_token_indices": {"lm_head": [1]}}')
    start = Source("sft", "smollm2-135m", tmp_path, "")
    with pytest.raises(UserError, match="export sft --merged") as told:
        refusals.refuse("grpo", refusals.training_cases("grpo", GrpoSettings(vllm=True), start))
    assert told.value.location == "grpo.vllm"


@pytest.mark.parametrize("given", [{"load_in_4bit": True}, {"attn_implementation": "eager"}])
def test_what_a_machine_without_a_card_cannot_load(given: dict[str, Any], monkeypatch):
    monkeypatch.setattr(load, "has_gpu", lambda: False)
    monkeypatch.setattr(load, "has_driver", lambda: False)
    with pytest.raises(UserError) as told:
        load.refuse_unusable(load.loading_of(SftSettings(**given)))
    assert told.value.location in given and told.value.exit_code == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate"), 7),
        (ImportError("flash_attn seems to be not installed"), 5),
    ],
)
def test_errors_of_loading_have_an_exit_code(error: Exception, code: int) -> None:
    found = load.loading_error(error, "m")
    assert isinstance(found, UserError) and found.exit_code == code
