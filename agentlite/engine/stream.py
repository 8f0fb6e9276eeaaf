"""One prompt -> a model's answer, handed on token by token while it is decoded."""

from collections.abc import Callable, Sequence

from agentlite.engine.decoding import Decoding, decode
from agentlite.engine.load import Loaded
from agentlite.engine.local_sampler import Sample, SampleRequest, sample

Listener = Callable[[str], bool]  # gets each new piece of text; False: nobody listens any more


def stream(loaded: Loaded, prompt: Sequence[int], decoding: Decoding, listener: Listener) -> Sample:
    """Ends when nobody listens. Raises UserError 7 if the prompt does not fit into memory."""
    passed_on = 0  # characters

    def pass_on(text: str) -> bool:
        nonlocal passed_on
        new, passed_on = text[passed_on:], max(passed_on, len(text))
        return listener(new)

    def goes_on(ids: Sequence[int]) -> bool:
        text = decode(loaded.tokenizer, ids)
        return pass_on(text[: len(text) - _unsure(text, decoding.stops)])

    request = SampleRequest(prompt, (str(decoding.seed),), decoding.stops)
    (answer,) = sample(loaded, [request], decoding, goes_on=goes_on)
    pass_on(answer.text)
    return answer


def _unsure(text: str, stops: Sequence[str]) -> int:
    """Characters at the end that may still change: half a character of several tokens, half a stop
    string.
    """
    half = 1 if text.endswith("\N{REPLACEMENT CHARACTER}") else 0
    starts = [n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
    return max(starts, default=0) or half
