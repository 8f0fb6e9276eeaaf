"""One prompt -> what a model says to it, told while it is being said."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import OUT_OF_MEMORY, UserError
from agentlite.core.records import Ending
from agentlite.engine.generate import ends_of, until_stop
from agentlite.engine.load import Loaded, free_memory, is_out_of_memory

Listener = Callable[[str], bool]  # is told what is new; False: nobody listens any more


class Speech(NamedTuple):
    """When an answer ends, and how it is drawn: temperature 0 takes the likeliest token."""

    turn_end: int
    stops: tuple[str, ...]
    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


class Spoken(NamedTuple):
    """The text, stop string included and end of turn left out; how it ended; tokens it took."""

    text: str
    ended: Ending
    new_tokens: int


def speak(loaded: Loaded, prompt: Sequence[int], how: Speech, listener: Listener) -> Spoken:
    """Greedily, what generation.generate gives. Raises UserError 7 if the prompt does not fit into
    memory.
    """
    import torch
    from transformers import StoppingCriteriaList

    ids = torch.tensor([list(prompt)], device=loaded.model.device)
    heard = _Heard(loaded, how, len(prompt), listener)
    drawn: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    if how.temperature > 0:
        drawn = {"do_sample": True, "temperature": how.temperature, "top_p": how.top_p, "top_k": 0}
        torch.manual_seed(how.seed)
    try:
        with torch.inference_mode():
            output = loaded.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=how.max_new_tokens,
                eos_token_id=sorted(heard.ends),
                pad_token_id=loaded.tokenizer.pad_token_id,
                stopping_criteria=StoppingCriteriaList([heard]),
                **drawn,
            )
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        free_memory()
        raise UserError(
            f"a prompt of {len(prompt)} tokens does not fit into the GPU's memory.",
            "Lower --max-length, or add --load-in-4bit.",
            exit_code=OUT_OF_MEMORY,
        ) from error
    return heard.whole(output[0, len(prompt) :].tolist())


class _Heard:
    """Asked after every token whether that is the end; passes on what is sure to be part of the
    answer.
    """

    def __init__(self, loaded: Loaded, how: Speech, start: int, listener: Listener):
        self.tokenizer, self.stops, self.start, self.listener = (
            loaded.tokenizer,
            how.stops,
            start,
            listener,
        )
        self.ends = ends_of(loaded.model, how.turn_end)
        self.told = 0

    def __call__(self, ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        new = ids[0, self.start :].tolist()
        text = self._text(new)
        stopped = bool(until_stop(text, self.stops))
        listened = (
            stopped or new[-1] in self.ends or self._tell(text[: len(text) - self._unsure(text)])
        )
        return torch.tensor([stopped or not listened], device=ids.device)

    def whole(self, ids: list[int]) -> Spoken:
        finished = bool(ids) and ids[-1] in self.ends
        text = self._text(ids)
        stopped = until_stop(text, self.stops)
        self._tell(stopped or text)
        return Spoken(
            stopped or text, "stop" if stopped else "turn" if finished else "cut", len(ids)
        )

    def _text(self, ids: list[int]) -> str:
        said = ids[:-1] if ids[-1:] and ids[-1] in self.ends else ids
        return str(
            self.tokenizer.decode(
                said, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def _unsure(self, text: str) -> int:
        """Characters at the end that may still change: half a character of several tokens, half a
        stop string.
        """
        half = 1 if text.endswith("\N{REPLACEMENT CHARACTER}") else 0
        starts = [n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return max(starts, default=0) or half

    def _tell(self, text: str) -> bool:
        new, self.told = text[self.told :], max(self.told, len(text))
        return self.listener(new)
