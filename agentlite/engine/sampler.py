"""Prompts of steps or of rollouts -> sampled answers, from a model in memory or behind servers.

Every sample has a seed of its own, made of its step or its rollout and of its number: it is the
same in any batch and any run, and from a server as repeatable as the server is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from agentlite.core.records import Candidate
from agentlite.engine import local_sampler
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load_for_inference
from agentlite.engine.local_sampler import Sample, SampleRequest
from agentlite.engine.remote import RemoteRequest, replies
from agentlite.environments.rollout import RolloutAnswer, RolloutPrompt
from agentlite.rendering import Prompt, Protocol
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Source

Sampler = Callable[[Sequence[Prompt]], Iterator[Candidate]]


def make_sampler(
    source: Source,
    model: str,
    protocols: Mapping[str, Protocol],
    loading: Loading,
    decoding: Decoding,
) -> Sampler:
    """Loads the model. `model`: its name in the candidates; `protocols`: of its prompts, by
    name.
    """
    loaded = load_for_inference(source, loading)
    decoding = decoding.under(load_template(source.base))

    def sampler(batch: Sequence[Prompt]) -> Iterator[Candidate]:
        requests = [
            SampleRequest(
                prompt.ids,
                tuple(_step_seed(decoding, prompt, n) for n in range(decoding.num_samples)),
                protocols[prompt.protocol].stops,
            )
            for prompt in batch
        ]
        for answer in local_sampler.sample(loaded, requests, decoding):
            prompt, text, tokens = batch[answer.prompt], answer.text, len(answer.ids)
            yield Candidate(
                *prompt.step, prompt.protocol, model, answer.sample, text, answer.ended, tokens
            )

    return sampler


def remote_samples(
    source: Source,
    model: str,
    protocols: Mapping[str, Protocol],
    samples: Sequence[tuple[Prompt, int]],
    decoding: Decoding,
) -> Iterator[Candidate | str]:
    """The samples of these prompts and numbers by the servers of `source`, as they come; or, as a
    str, the problem for which there is none. Raises UserError 8 when no server answers any more.
    """
    requests = [
        RemoteRequest(prompt, protocols[prompt.protocol], _step_seed(decoding, prompt, n))
        for prompt, n in samples
    ]
    for reply in replies(source, requests, decoding):
        prompt, n = samples[reply.request]
        yield reply.problem or Candidate(
            *prompt.step, prompt.protocol, model, n, reply.text, reply.ended, reply.new_tokens
        )


def rollout_answers(
    sample: Callable[[Sequence[SampleRequest], Decoding], list[Sample]],
    prompts: Sequence[RolloutPrompt],
    protocol: Protocol,
    decoding: Decoding,
) -> Iterator[RolloutAnswer]:
    """One to each prompt. Rollouts that still have the same prompt share it."""
    by_ids: dict[tuple[int, ...], list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_ids.setdefault(tuple(prompt.ids), []).append(index)
    groups, requests = list(by_ids.values()), list[SampleRequest]()
    for ids, indices in by_ids.items():
        # a seed for each of the rollouts, so sample n is that of the n-th in its group
        seeds = tuple(_turn_seed(decoding, prompts[index]) for index in indices)
        stops = protocol.stops if prompts[indices[0]].dialog.record.tools else ()
        requests.append(SampleRequest(ids, seeds, stops))
    for answer in sample(requests, decoding):
        index, ids = groups[answer.prompt][answer.sample], tuple(answer.ids)
        logprobs = answer.log_probabilities
        yield RolloutAnswer(index, answer.text, answer.ended, len(ids), ids, logprobs)


def remote_rollout_answers(
    prompts: Sequence[RolloutPrompt], source: Source, protocol: Protocol, decoding: Decoding
) -> Iterator[RolloutAnswer]:
    """One to each prompt by the servers of `source`, as they come: its calls in the protocol, or
    the problem for which there is none. Raises UserError 8 when no server answers any more.
    """
    requests = []
    for rollout_prompt in prompts:
        record = rollout_prompt.dialog.record
        prompt = Prompt(record, record.turns[-1], protocol.name, rollout_prompt.ids, "", "turn")
        seed = _turn_seed(decoding, rollout_prompt) if decoding.temperature else ""
        requests.append(RemoteRequest(prompt, protocol, seed))
    for reply in replies(source, requests, decoding):
        has_stop = reply.ended == "turn" and reply.text.endswith(protocol.stops)
        yield RolloutAnswer(
            reply.request,
            reply.text,
            "stop" if has_stop else reply.ended,
            reply.new_tokens,
            problem=reply.problem,
        )


def _step_seed(decoding: Decoding, prompt: Prompt, number: int) -> str:
    return f"{decoding.seed} {prompt.step} {number}"


def _turn_seed(decoding: Decoding, prompt: RolloutPrompt) -> str:
    return f"{decoding.seed} {prompt.key.task} {prompt.key.sample} {prompt.turn}"
