"""Where vLLM samples the answers of grpo, and where it cannot."""

import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace

import pytest


@pytest.mark.torch
@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_an_engine_of_trls_own_samples_by_its_merged_weights(tiny_model, monkeypatch, top_p):
    """With plain TRL: stops and seeds of each answer, no adapter, and log-probabilities that the
    trainer's forward pass agrees with to rounding, also below top-p 1.
    """
    from support import simulated_vllm
    from support.trainers import grpo, prompts, source, task

    from agentlite.engine import grpo as grpo_trainer
    from agentlite.engine.load import load, loading_of

    vllm = ModuleType("vllm")
    vllm.SamplingParams = simulated_vllm.SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    llm = simulated_vllm.LLM(model=str(tiny_model), logprobs_mode="processed_logprobs")
    drawn = {"temperature": 0.7, "top_p": top_p, "max_new_tokens": 5}
    settings = grpo(engine="hf", vllm=True, group_size=3, **drawn)
    loaded = load(source(tiny_model), loading_of(settings), trainable=True)
    stops = [("Observation:",), ("9", "x"), (), (), ()]
    wanted = task(settings, lambda answers: [{}] * len(answers), stops=stops)
    trl_trainer = SimpleNamespace(
        accelerator=SimpleNamespace(unwrap_model=lambda model: model),
        vllm_generation=SimpleNamespace(llm=llm),
        state=SimpleNamespace(global_step=5),
        model=loaded.model,
        _metrics={"train": defaultdict(list)},
    )
    rollout = grpo_trainer._rollout(loaded, settings, wanted)
    given = rollout(["1", "1", "1", "0", "0", "0"], trl_trainer)
    (call,) = llm.calls
    assert call.prompts == given["prompt_ids"] == [prompts()[n] for n in (1, 1, 1, 0, 0, 0)]
    assert [one.stop for one in call.parameters] == [["9", "x"]] * 3 + [["Observation:"]] * 3
    assert len({one.seed for one in call.parameters}) == 6 and call.lora_int_id is None
    assert list(map(len, given["logprobs"])) == list(map(len, given["completion_ids"]))
    measured = trl_trainer._metrics["train"]
    assert 0 < measured["sampler_gap/mean"][0] <= measured["sampler_gap/max"][0] < 1e-4
    assert rollout(["1"] * 3 + ["0"] * 3, trl_trainer) == given  # the same seeds
