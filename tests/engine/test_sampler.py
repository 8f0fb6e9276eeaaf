"""Samplers: which seed each sample has, in memory and behind a server; an answer does not depend on
who is asked beside it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from agentlite.core.openai_client import Endpoint
from agentlite.core.records import Record
from agentlite.data.openai_messages import open_dialog
from agentlite.engine import load, local_sampler
from agentlite.engine import sampler as module
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading
from agentlite.engine.local_sampler import SampleRequest
from agentlite.engine.remote import RemoteReply, RemoteRequest
from agentlite.engine.sampler import make_sampler, remote_samples, rollout_answers
from agentlite.environments.rollout import RolloutPrompt
from agentlite.environments.trajectories import RolloutKey
from agentlite.rendering import PROTOCOLS, Prompt, choose, prompts_of
from agentlite.workspace.lookup import Source


@pytest.fixture(params=["in memory", "behind a server"])
def sampled_seeds(request: Any, monkeypatch: pytest.MonkeyPatch, templates: Any) -> Any:
    """The seeds that a sampler gives to the samples of some prompts, in their order."""
    seeds: list[str] = []

    def sample(loaded: Any, requests: Sequence[SampleRequest], *_: Any) -> Iterator[Any]:
        seeds.extend(seed for one in requests for seed in one.seeds)
        return iter(())

    def replies(_: Any, requests: Sequence[RemoteRequest], *__: Any) -> Iterator[RemoteReply]:
        seeds.extend(one.seed for one in requests)
        return iter(())

    monkeypatch.setattr(module, "load_for_inference", lambda *_: None)
    monkeypatch.setattr(module, "load_template", lambda _: templates["smollm2"])
    monkeypatch.setattr(module.local_sampler, "sample", sample)
    monkeypatch.setattr(module, "replies", replies)
    endpoints = (Endpoint("http://h:1/v1", "m"),) if request.param == "behind a server" else ()
    source = Source("m", "m", None, "", endpoints)

    def run(batch: Sequence[Prompt], seed: int = 0, samples: int = 2) -> list[str]:
        seeds.clear()
        decoding = Decoding(9, 1.0, seed=seed, num_samples=samples)
        if endpoints:
            wanted = [(prompt, n) for prompt in batch for n in range(samples)]
            assert not list(remote_samples(source, "m", PROTOCOLS, wanted, decoding))
        else:
            assert not list(
                make_sampler(source, "m", PROTOCOLS, Loading("hf", 64), decoding)(batch)
            )
        return list(seeds)

    return run


@pytest.fixture
def batch(dialog: Record, templates: Any) -> list[Prompt]:
    return list(prompts_of([dialog], lambda _: PROTOCOLS["hermes"], templates["smollm2"]))


def test_every_sample_of_every_step_has_a_seed_of_its_own(sampled_seeds: Any, batch: Any) -> None:
    seeds = sampled_seeds(batch, samples=3)
    assert len(batch) > 1 and len(seeds) == 3 * len(batch) == len(set(seeds))


def test_a_seed_depends_neither_on_the_batch_nor_on_how_many_are_sampled(
    sampled_seeds: Any, batch: Any
) -> None:
    whole = sampled_seeds(batch)
    assert whole == [seed for one in batch for seed in sampled_seeds([one])]
    assert sampled_seeds(batch[:1], samples=1) == whole[:1]


@pytest.fixture
def loaded(tiny_model):
    return load.load_for_inference(
        Source("tiny", str(tiny_model), None, ""), Loading(engine="hf", max_length=256)
    )


def test_an_answer_of_a_rollout_is_the_same_in_any_batch(loaded, smollm2):
    protocol = choose("hermes", smollm2).protocols["hermes"]
    dialogs = {
        name: open_dialog([{"role": "user", "content": f"Buy {name}."}], [], protocol, smollm2)
        for name in ("figs", "ripe plums and some pears")
    }
    turns = [
        RolloutPrompt(RolloutKey(name, number), turn, dialog, dialog.ids)
        for number in range(3)
        for name, dialog in dialogs.items()
        for turn in (0, 1)
    ]
    decoding = Decoding(6, temperature=1.0, seed=5).under(smollm2)
    draw = partial(local_sampler.sample, loaded)
    together = {one.prompt: one for one in rollout_answers(draw, turns, protocol, decoding)}
    assert sorted(together) == list(range(12))
    for index, prompt in enumerate(turns):
        (alone,) = rollout_answers(draw, [prompt], protocol, decoding)
        # the logits are rounded otherwise in another batch: the tokens are the same
        assert alone.log_probabilities == pytest.approx(together[index].log_probabilities, abs=1e-4)
        without = {"prompt": 0, "log_probabilities": ()}
        assert alone._replace(**without) == together[index]._replace(**without)
    assert len({one.text for one in together.values()}) == 12
    again = Decoding(6, temperature=1.0, seed=6).under(smollm2)
    (other, *_) = rollout_answers(draw, turns[:1], protocol, again)
    assert other.text != together[0].text
