"""Rollouts that wait for their model -> its answers, all of a batch together."""

from collections.abc import Callable, Iterator, Sequence

from agentlite.engine.decoding import Decoding
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.environments.rollout import RolloutAnswer, RolloutPrompt
from agentlite.rendering import Protocol


def answers(
    sample: Callable[[Sequence[SampleRequest], Decoding], list[Sample]],
    prompts: Sequence[RolloutPrompt],
    protocol: Protocol,
    decoding: Decoding,
) -> Iterator[RolloutAnswer]:
    """One to each prompt. Each has a random stream of its own, made of the task, the rollout's
    number and the turn: it is the same in any batch and any run. Rollouts that still have the same
    prompt share it.
    """
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(prompts):
        alike.setdefault(tuple(prompt.ids), []).append(index)
    requests = [
        SampleRequest(ids, tuple(_seed(decoding, prompts[index]) for index in indices), stops)
        for ids, indices in alike.items()
        for stops in [protocol.stops if prompts[indices[0]].opened.record.tools else ()]
    ]
    groups = list(alike.values())
    for one in sample(requests, decoding):
        yield RolloutAnswer(
            groups[one.prompt][one.sample],
            one.text,
            one.ended,
            len(one.ids),
            tuple(one.ids),
            one.log_probabilities,
        )


def _seed(decoding: Decoding, prompt: RolloutPrompt) -> str:
    return f"{decoding.seed} {prompt.key.task} {prompt.key.sample} {prompt.turn}"
