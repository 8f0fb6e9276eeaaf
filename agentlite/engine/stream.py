"""One prompt -> a model's answer, handed on token by token while it is decoded."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentlite.core.records import Ending
from agentlite.engine.decoding import Decoding, decode, ends_of, until_stop
from agentlite.engine.load import Loaded, does_not_fit, free_memory, is_out_of_memory

Listener = Callable[[str], bool]  # gets each new piece of text; False: nobody listens any more


class StreamedAnswer(NamedTuple):
    """The text, stop string included and end of turn left out; how it ended; its tokens."""

    text: str
    ended: Ending
    new_tokens: int
    ids: tuple[int, ...] = ()


def stream(
    loaded: Loaded,
    prompt: Sequence[int],
    decoding: Decoding,
    listener: Listener,
) -> StreamedAnswer:
    """At temperature 0 the text that local_sampler.generate gives. Raises UserError 7 if the prompt
    does not fit into memory.
    """
    import torch
    from transformers import StoppingCriteriaList

    ids = torch.tensor([list(prompt)], device=loaded.model.device)
    watcher = _Watcher(loaded, decoding, len(prompt), listener)
    samples = decoding.temperature > 0
    if samples:
        torch.manual_seed(decoding.seed)
    try:
        with torch.inference_mode():
            output = loaded.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=decoding.max_new_tokens,
                eos_token_id=sorted(watcher.ends),
                pad_token_id=loaded.tokenizer.pad_token_id,
                stopping_criteria=StoppingCriteriaList([watcher]),
                do_sample=samples,
                temperature=decoding.temperature if samples else None,
                top_p=decoding.top_p if samples else None,
                top_k=0 if samples else None,
            )
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        free_memory()
        raise does_not_fit(
            f"a prompt of {len(prompt)} tokens", "Lower --max-length, or add --load-in-4bit."
        ) from error
    new = output[0, len(prompt) :].tolist()
    return watcher.whole(new)


class _Watcher:
    """A stopping criterion of transformers, called after every token: passes on the text that is
    sure to be part of the answer, and ends it at a stop string, or when nobody listens.
    """

    def __init__(self, loaded: Loaded, decoding: Decoding, start: int, listener: Listener):
        self.tokenizer, self.stops = loaded.tokenizer, decoding.stops
        self.start, self.listener = start, listener
        self.ends = ends_of(loaded.model, decoding.turn_end)
        self.passed_on = 0  # characters

    def __call__(self, ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        new = ids[0, self.start :].tolist()
        text = self._text(new)
        stopped = bool(until_stop(text, self.stops))
        listened = (
            stopped or new[-1] in self.ends or self._pass_on(text[: len(text) - self._unsure(text)])
        )
        return torch.tensor([stopped or not listened], device=ids.device)

    def whole(self, ids: list[int]) -> StreamedAnswer:
        """The answer, once all of it is there; passes on the rest."""
        finished = bool(ids) and ids[-1] in self.ends
        text = self._text(ids)
        # the end of the turn may be a stop string
        stopped = until_stop(decode(self.tokenizer, ids), self.stops) if self.stops else ""
        self._pass_on(stopped or text)
        ended: Ending = "stop" if stopped else "turn" if finished else "cut"
        return StreamedAnswer(stopped or text, ended, len(ids), tuple(ids))

    def _text(self, ids: list[int]) -> str:
        return decode(self.tokenizer, ids[:-1] if ids and ids[-1] in self.ends else ids)

    def _unsure(self, text: str) -> int:
        """Characters at the end that may still change: half a character of several tokens, half a
        stop string.
        """
        half = 1 if text.endswith("\N{REPLACEMENT CHARACTER}") else 0
        starts = [n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return max(starts, default=0) or half

    def _pass_on(self, text: str) -> bool:
        new, self.passed_on = text[self.passed_on :], max(self.passed_on, len(text))
        return self.listener(new)
