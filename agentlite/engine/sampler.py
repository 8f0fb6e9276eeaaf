"""Prompts -> several sampled answers to each, from a model in memory or behind servers."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from agentlite.core.records import Candidate
from agentlite.engine import local_sampler
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load_for_inference
from agentlite.engine.remote import RemoteRequest, replies
from agentlite.rendering import Prompt, Protocol
from agentlite.workspace.model_source import Source, load_template

Sampler = Callable[[Sequence[Prompt]], Iterator[Candidate]]


def make_sampler(
    source: Source,
    model: str,
    protocols: Mapping[str, Protocol],
    loading: Loading,
    decoding: Decoding,
) -> Sampler:
    """Loads the model. `model`: its name in the candidates; `protocols`: of its prompts, by name.

    Every sample has a seed of its own, made of the step and its number: it is the same in any batch
    and any run.
    """
    loaded = load_for_inference(source, loading)
    decoding = decoding.under(load_template(source.base))

    def sampler(batch: Sequence[Prompt]) -> Iterator[Candidate]:
        requests = [
            local_sampler.SampleRequest(
                prompt.ids,
                tuple(_seed(decoding, prompt, number) for number in range(decoding.num_samples)),
                protocols[prompt.protocol].stops,
            )
            for prompt in batch
        ]
        for one in local_sampler.sample(loaded, requests, decoding):
            prompt = batch[one.prompt]
            yield Candidate(
                *prompt.step,
                prompt.protocol,
                model,
                one.sample,
                one.text,
                one.ended,
                len(one.ids),
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
    str, the problem for which there is none. The seeds are those of `make_sampler`, and the samples
    as repeatable as the servers are. Raises UserError 8 when no server answers any more.
    """
    template = load_template(source.base)
    parameters = {
        "max_tokens": decoding.max_new_tokens,
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
    }
    requests = [
        RemoteRequest(prompt, protocols[prompt.protocol], _seed(decoding, prompt, n))
        for prompt, n in samples
    ]
    for reply in replies(source.endpoints, requests, template, parameters):
        prompt, n = samples[reply.request]
        yield (
            reply.problem
            or Candidate(
                *prompt.step,
                prompt.protocol,
                model,
                n,
                reply.text,
                reply.ended,
                reply.new_tokens,
            )
        )


def _seed(decoding: Decoding, prompt: Prompt, number: int) -> str:
    return f"{decoding.seed} {prompt.step} {number}"
