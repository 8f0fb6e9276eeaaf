"""Rollouts that wait for their model, in memory or behind servers -> its answers."""

from collections.abc import Callable, Iterator, Sequence

from agentlite.engine.decoding import Decoding
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.engine.remote import RemoteRequest, replies
from agentlite.environments.rollout import RolloutAnswer, RolloutPrompt
from agentlite.rendering import Prompt, Protocol
from agentlite.workspace.model_source import Source, load_template


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


def remote_answers(
    prompts: Sequence[RolloutPrompt], source: Source, protocol: Protocol, decoding: Decoding
) -> Iterator[RolloutAnswer]:
    """One to each prompt by the servers of `source`, as they come, with the seeds of `answers`: its
    calls in the protocol, or the problem for which there is none. Raises UserError 8 when no server
    answers any more.
    """
    template = load_template(source.base)
    parameters = {
        "max_tokens": decoding.max_new_tokens,
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
    }
    requests = []
    for one in prompts:
        record = one.opened.record
        prompt = Prompt(record, record.turns[-1], protocol.name, one.ids, "", "turn")
        seed = _seed(decoding, one) if decoding.temperature else ""
        requests.append(RemoteRequest(prompt, protocol, seed))
    for reply in replies(source.endpoints, requests, template, parameters):
        stopped = reply.ended == "turn" and reply.text.endswith(protocol.stops)
        yield RolloutAnswer(
            reply.request,
            reply.text,
            "stop" if stopped else reply.ended,
            reply.new_tokens,
            problem=reply.problem,
        )


def _seed(decoding: Decoding, prompt: RolloutPrompt) -> str:
    return f"{decoding.seed} {prompt.key.task} {prompt.key.sample} {prompt.turn}"
