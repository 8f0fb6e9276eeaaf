"""grpo whose answers vLLM samples, on Unsloth's CUDA path: both simulated, nothing run on a GPU.

Unsloth's own code loads the engine, shares its weights and hands it the adapter; of vLLM there is
what support.simulated_vllm has.
"""

from pathlib import Path
from typing import Any

import pytest
from support.simulated_card import CARDS
from support.simulated_cuda import simulated
from support.trainers import grpo, prompts, source, task

from agentlite.engine import watch
from agentlite.engine.grpo import Reward
from agentlite.engine.planning.estimate import load_of, vllm_share
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import read_shape

pytestmark = pytest.mark.torch

SETTINGS = {
    "vllm": True,
    "max_steps": 3,
    "batch_size": 2,
    "group_size": 2,
    "gradient_accumulation": 2,
    "max_new_tokens": 4,
    "max_length": 128,
    "save_steps": 1,
    "learning_rate": 1e-2,
    "lora_r": 12,
}
STOPS = (("Observation:",), (), ("<|endofthink|>", "9"), (), ())


def train(model: str, folder: str) -> dict[str, Any]:
    """Three steps."""
    from vllm import LLM

    from agentlite.engine import grpo as grpo_trainer

    seen: list[dict[str, Any]] = []
    models: list[Any] = []

    def judge(answers: Any) -> list[Reward]:
        weights = dict(models[0].named_parameters())
        name = "model.layers.1.mlp.down_proj.lora_B.default.weight"
        seen.append(
            {
                "adapter": weights[name].bfloat16().float().tolist(),
                "ids": [answer.ids for answer in answers],
                "likely": [len(answer.log_probabilities) for answer in answers],
            }
        )
        odd = [sum(one % 2 for one in a.ids) / len(a.ids) for a in answers]
        return [{"even": one, "long": 0.0, "timeout": 0.0} for one in odd]

    def made(loaded: Any) -> Any:
        models.append(loaded.model)
        return task(settings, judge, stops=STOPS)

    settings = grpo(**SETTINGS, temperature=0.9, top_p=0.95)
    grpo_trainer.train(source(Path(model)), settings, Path(folder), made)
    (engine,) = LLM.engines
    base = dict(models[0].named_parameters())
    key = "model.layers.0.self_attn.k_proj.base_layer.weight"
    fused = engine.model.model.layers[0].self_attn.qkv_proj.weight
    name = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
    return {
        "engine": {
            name: getattr(engine.arguments, name)
            for name in (
                "gpu_memory_utilization",
                "max_model_len",
                "enable_lora",
                "max_lora_rank",
                "logprobs_mode",
            )
        },
        "shared": base[key].untyped_storage().data_ptr() == fused.untyped_storage().data_ptr(),
        "calls": [
            {
                "prompts": call.prompts,
                "stops": [one.stop for one in call.parameters],
                "seeds": [one.seed for one in call.parameters],
                "drawn": sorted(
                    {(one.temperature, one.top_p, one.max_tokens) for one in call.parameters}
                ),
                "number": call.lora_int_id,
                "adapter": call.adapter[name].float().tolist(),
                "tensors": sorted(call.adapter),
            }
            for call in engine.calls
        ],
        "steps": seen,
        "rows": watch.read_metrics(Path(folder)),
    }


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    return simulated(train, tiny_model, tmp_path_factory.mktemp("run"), vllm=True)


def test_the_engine_has_the_weights_of_the_trained_model_in_the_share_that_is_planned(
    run, tiny_model
):
    load = load_of(grpo(**SETTINGS), read_shape(tiny_model / "config.json"), gpu=True)
    share = vllm_share(load, CARDS["rtx3060"].gib * GIB)
    assert 0 < share < 0.3
    assert run["engine"] == {
        "gpu_memory_utilization": pytest.approx(share, abs=1e-6),
        "max_model_len": SETTINGS["max_length"],
        "enable_lora": True,
        "max_lora_rank": 16,  # the next that vLLM takes
        "logprobs_mode": "processed_logprobs",
    }
    assert run["shared"]


def test_a_step_is_one_call_with_the_stops_and_a_seed_of_each_answer(run):
    assert len(run["calls"]) == SETTINGS["max_steps"]
    for call in run["calls"]:
        asked = [prompts().index(ids) for ids in call["prompts"]]
        groups = [*zip(asked[::2], asked[1::2], strict=True)]
        assert all(first == second for first, second in groups)
        assert call["stops"] == [[*STOPS[one]] for one in asked]
        assert call["drawn"] == [[0.9, 0.95, 4]]
    assert any(any(call["stops"]) for call in run["calls"])
    seeds = [seed for call in run["calls"] for seed in call["seeds"]]
    assert len({*seeds}) == len(seeds) == 12


def test_every_step_samples_by_the_adapter_as_it_is_then_and_by_no_other(run):
    """Not by the reference, which is an adapter of the model too."""
    for call, step in zip(run["calls"], run["steps"], strict=True):
        assert call["adapter"] == step["adapter"]
        assert len(call["tensors"]) == 28 and not any("ref" in name for name in call["tensors"])
    first, second, third = (call["adapter"] for call in run["calls"])
    assert not any(map(any, first)) and any(map(any, second)) and second != third
    assert len({call["number"] for call in run["calls"]}) == 3  # vLLM knows an adapter by it


def test_what_vllm_returns_is_weighed_and_learned_from(run):
    for step in run["steps"]:
        assert step["likely"] == [len(ids) for ids in step["ids"]]
    for row in run["rows"]:
        # the trainer's probability over that of the tokens which reach top_p
        assert row["importance"] == pytest.approx(0.95, abs=0.01)
        assert row["importance_max"] < 1 and row["flat"] < 1
        assert row["grad_norm"] > 0 and row["surprisal"] > 0
    assert run["rows"][0]["sampler_gap"] <= run["rows"][0]["sampler_gap_max"] < 0.05  # in bfloat16
