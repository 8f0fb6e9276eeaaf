"""Sampling on Unsloth's CUDA path, simulated and not run on a GPU: it decodes there in its own
way, which obeys no mask over columns.
"""

from pathlib import Path

import pytest
from support.simulated_cuda import simulated
from support.trainers import checkpointing, grpo, source

pytestmark = pytest.mark.torch

PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [400, 401, 402], [77, 12, 900, 31, 5])
SEEDS = ("a", "b")


def sample(model: str) -> dict[str, object]:
    """Six samples of three prompts, together and some alone."""
    import torch

    from agentlite.engine import local_sampler
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.load import Loading, load

    loaded = load(source(Path(model)), Loading("unsloth", 128), trainable=False)
    with torch.no_grad():  # sharper, so that a wrong mask or position shows
        loaded.model.lm_head.weight.mul_(8)
    calls, generate = [], loaded.model.generate

    def counted(**named):
        calls.append(list(named["input_ids"].shape))
        return generate(**named)

    loaded.model.generate = counted
    decoding = Decoding(6, turn_end=2)  # the likeliest: rounding moves a drawn token

    def drawn(prompts, seeds):
        requests = [
            local_sampler.SampleRequest(one, tuple(f"{one} {seed}" for seed in seeds))
            for one in prompts
        ]
        drawn = local_sampler.sample(loaded, requests, decoding)
        return [[one.ids, one.log_probabilities] for one in drawn]

    together = drawn(PROMPTS, SEEDS)
    batch = list(calls)
    alone = [drawn([prompt], SEEDS[:1])[0] for prompt in PROMPTS]
    return {"together": together, "alone": alone, "calls": batch}


def train(model: str) -> list[object]:
    """How a model that is trained keeps activations: before it samples, after, and after a batch
    that ran out of memory and was halved.
    """
    from agentlite.engine import adapter, local_sampler
    from agentlite.engine.decoding import Decoding
    from agentlite.engine.load import Loaded, load, loading_of

    settings = grpo()
    loaded = load(source(Path(model)), loading_of(settings), trainable=True)
    trained = adapter.adapted(loaded, settings)
    trained.for_training()
    requests = [local_sampler.SampleRequest(PROMPTS[0], SEEDS)]
    generate, full = trained.generate, [False]

    def generated(**named):
        found = generate(**named)
        if full:
            raise RuntimeError(f"CUDA out of memory {full.pop()}")
        return found

    def state() -> object:
        return [trained.training, checkpointing(trained)]

    found = [state()]
    for _ in range(2):
        trained.generate = generated if len(found) == 2 else generate
        local_sampler.sample(Loaded(trained, loaded.tokenizer), requests, Decoding(2, turn_end=2))
        found.append(state())
    return [*found, full]


@pytest.fixture(scope="module")
def run(tiny_model):
    return simulated(sample, tiny_model)


def test_a_model_that_is_trained_is_left_as_it_was_also_without_memory(tiny_model):
    before, after, halved, full = simulated(train, tiny_model)
    assert before[0] and before[1] != ["False"]
    assert after == halved == before and full == []


def test_a_batch_is_one_call_of_unsloths_own_generate(run):
    assert run["calls"] == [[6, 7]]


def test_a_sample_is_the_same_alone_and_in_a_padded_batch(run):
    together = run["together"][:: len(SEEDS)]
    for (ids, likely), (expected, alone) in zip(together, run["alone"], strict=True):
        assert ids == expected
        assert likely == pytest.approx(alone, abs=0.05)  # in bfloat16
    assert len({tuple(ids) for ids, _ in together}) == 3
