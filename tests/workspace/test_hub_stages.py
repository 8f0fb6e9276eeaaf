"""Stages on a model of the hub that has moved on: all of them load the commit of the first plan."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.hub_cache import cache_model, commit, use_cache, watched_loads
from support.samples import OSLO, WEATHER_TOOL

import agentlite
from agentlite.cli.main import group
from agentlite.workspace.lookup import read_plan

NAME, OLD, NEW = "Qwen/Qwen2.5-1.5B-Instruct", commit("a"), commit("b")
QUICK = {"max_steps": 1, "batch_size": 1, "gradient_accumulation": 1, "engine": "hf"}


def test_every_stage_loads_the_commit_of_the_plan_after_the_hub_has_moved_on(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = watched_loads(monkeypatch)
    cache, run = use_cache(tmp_path / "hub", monkeypatch), str(tmp_path / "run")
    old = cache_model(cache, NAME, tiny_model, OLD)
    answer = {"role": "assistant", "content": "Yes, 4 mm."}
    rows = [{"messages": [OSLO, answer], "tools": [WEATHER_TOOL]}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    agentlite.prep(
        str(tmp_path / "rows.jsonl"), run=run, model=NAME, protocol="hermes", dev=0.0, test=0.0
    )
    agentlite.sft(run=run, **QUICK)
    assert {place for _, place in loads} == {str(old)}
    assert read_plan(tmp_path / "run/sft").inputs["model"] == OLD
    adapter = json.loads((tmp_path / "run/sft/adapter/adapter_config.json").read_bytes())
    assert (adapter["base_model_name_or_path"], adapter["revision"]) == (NAME, OLD)

    newer = cache_model(cache, NAME, tiny_model, NEW)
    (newer / "model.safetensors").write_bytes(b"not the weights that were trained on")
    loads.clear()
    assert agentlite.sft(run=run, **QUICK).status == "up to date"
    again = agentlite.sft(run=run, model="sft", out="further", **QUICK)
    assert again.status == "done"
    agentlite.evaluate(run=run, model="further", split="train", engine="hf", max_new_tokens=1)
    words = ["export", "further", "--run", run, "--merged", str(tmp_path / "merged")]
    assert CliRunner().invoke(group, words, standalone_mode=False).exception is None
    of_the_hub = [folder for _, folder in loads if Path(folder).is_relative_to(cache)]
    assert len(of_the_hub) > 6 and {*of_the_hub} == {str(old)}
    assert all("merged" in folder for _, folder in loads if folder != str(old))
