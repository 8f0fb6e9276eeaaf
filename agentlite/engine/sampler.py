"""A model + prompts -> several answers to each, drawn with seeds of their own: the same in any
batch and any run.

Those of a server are as repeatable as the server is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from agentlite.config.settings import Engine
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import Candidate
from agentlite.engine.remote import RemoteRequest, replies
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.workspace.model_source import Source, load_template

Draw = Callable[[Sequence[Prompt]], Iterator[Candidate]]


class Drawing(NamedTuple):
    """How answers are drawn, and of which model, by the name it goes by."""

    model: str
    engine: Engine
    max_length: int
    load_in_4bit: bool
    load_in_8bit: bool
    max_new_tokens: int
    num_samples: int
    temperature: float
    top_p: float
    seed: int


def drawer(source: Source, how: Drawing) -> Draw:
    """Prompts -> their candidates, by the model in memory, or behind a server."""
    if source.endpoint:
        return _asker(source, source.endpoint, how)
    from agentlite.engine import sample
    from agentlite.engine.load import Loading, load_to_ask

    template = load_template(source.base)
    loaded = load_to_ask(
        source, Loading(how.engine, how.max_length, how.load_in_4bit, how.load_in_8bit)
    )
    settings = sample.Sampling(
        template.token_id(template.turn_end), how.max_new_tokens, how.temperature, how.top_p
    )

    def draw(batch: Sequence[Prompt]) -> Iterator[Candidate]:
        seeds = [
            tuple(f"{how.seed} {one.step} {n}" for n in range(how.num_samples)) for one in batch
        ]
        asked = [
            sample.SampleRequest(one.ids, seed, PROTOCOLS[one.protocol].stops)
            for one, seed in zip(batch, seeds, strict=True)
        ]
        for drawn in sample.sample(loaded, asked, settings):
            one = batch[drawn.prompt]
            yield Candidate(
                *one.step,
                one.protocol,
                how.model,
                drawn.sample,
                drawn.text,
                drawn.ended,
                len(drawn.ids),
            )

    return draw


def _asker(source: Source, endpoint: Endpoint, how: Drawing) -> Draw:
    template = load_template(source.base)
    parameters = {
        "max_tokens": how.max_new_tokens,
        "temperature": how.temperature,
        "top_p": how.top_p,
    }

    def draw(batch: Sequence[Prompt]) -> Iterator[Candidate]:
        which = [(one, n) for one in batch for n in range(how.num_samples)]
        questions = [RemoteRequest(one, f"{how.seed} {one.step} {n}") for one, n in which]
        for reply in replies(endpoint, questions, template, parameters):
            one, n = which[reply.question]
            yield Candidate(
                *one.step, one.protocol, how.model, n, reply.text, reply.ended, reply.new_tokens
            )

    return draw
