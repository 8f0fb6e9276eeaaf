"""How a model is loaded and its answers end, as far as it needs no model."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hub_cache import cache_model, use_cache, watched_loads

from agentlite.core.errors import MODEL, UserError
from agentlite.engine import leave_cores_to_others, load
from agentlite.engine.load import Loading
from agentlite.engine.merge import merge
from agentlite.workspace.lookup import Source, find_model


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_the_engine_hf_has_the_attention_that_was_set(name: Any, tiny_model: Path) -> None:
    source = Source(tiny_model.name, str(tiny_model), None, "")
    loading = Loading(engine="hf", max_length=64, attention=name)
    loaded = load.load(source, loading, trainable=False)
    assert loaded.model.config._attn_implementation == name


def rewritten(path: Path, value: float) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(path)
    weights["model.norm.weight"][-1] = value
    save_file(weights, path, {"format": "pt"})


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a page of the hub": lambda path: path.write_text("<html>404</html>", encoding="utf-8"),
    "infinite": lambda path: rewritten(path, float("-inf")),
}


@pytest.mark.torch
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_an_error_that_names_the_model(
    damage: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    DAMAGES[damage](folder / "model.safetensors")
    source = Source("model", str(folder), None, "")
    with pytest.raises(UserError, match="damaged") as refused:
        load.load(source, Loading(engine="hf", max_length=64), trainable=False)
    assert refused.value.location in ("model", str(folder))
    assert refused.value.exit_code == MODEL


IDS = (
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.1-8B-Instruct",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "unsloth/Qwen2.5-1.5B-Instruct-bnb-4bit",
)


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
@pytest.mark.parametrize("name", IDS)
def test_the_snapshot_that_the_plan_names_is_what_reaches_transformers(
    name: str,
    engine: Any,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Model, tokenizer and generation settings alike, offline, with a newer commit beside it."""
    loads = watched_loads(monkeypatch)
    cache = use_cache(tmp_path / "hub", monkeypatch)
    snapshot = cache_model(cache, name, tiny_model, "a" * 40, newest=False)
    cache_model(cache, name, tiny_model, "b" * 40)
    source = find_model(f"{name}@{'a' * 40}", tmp_path)
    load.load(source, Loading(engine=engine, max_length=64), trainable=False)
    assert {kind for kind, _ in loads} >= {"PreTrainedModel", "PreTrainedTokenizerBase"}
    assert {location for _, location in loads} == {str(snapshot)}
    loads.clear()
    merge(source, tmp_path / "merged")
    assert {location for _, location in loads} == {str(snapshot)}


def test_a_busy_machine_gets_fewer_threads_unless_the_user_says_how_many(monkeypatch) -> None:
    import torch

    before = torch.get_num_threads()
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    try:
        for said, busy, threads in (("", 0.2, 4), ("", 2.6, 1), ("", 9.0, 1), ("4", 9.0, 4)):
            torch.set_num_threads(4)
            monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
            if said:
                monkeypatch.setenv("OMP_NUM_THREADS", said)
            leave_cores_to_others(busy)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
