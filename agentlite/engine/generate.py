"""Prompts -> what a model says to each, greedily, in batches of like length, given back as they
come.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import OUT_OF_MEMORY, UserError
from agentlite.engine.load import Loaded, free_memory, is_out_of_memory


class Completion(NamedTuple):
    """`prompt`: its index; the text without the end of turn; whether it ended by itself; tokens it
    took.
    """

    prompt: int
    text: str
    finished: bool
    new_tokens: int


class Greedy(NamedTuple):
    """When an answer ends, and how many are made at once."""

    turn_end: int
    stops: tuple[str, ...]
    max_new_tokens: int
    batch_size: int


def generate(
    loaded: Loaded, prompts: Sequence[Sequence[int]], how: Greedy
) -> Iterator[list[Completion]]:
    """A list for every batch, longest prompts first: what does not fit into memory fails at once.
    See load_to_ask.

    A batch that runs out of GPU memory is halved. Raises UserError 7 if one prompt alone does not
    fit.
    """
    waiting = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    batch_size = how.batch_size
    while waiting:
        batch = waiting[:batch_size]
        try:
            said = _batch(loaded, [prompts[index] for index in batch], batch, how)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if batch_size == 1:
                raise UserError(
                    f"a prompt of {len(prompts[batch[0]])} tokens does not fit into the GPU's "
                    "memory.",
                    "Lower --max-length, or add --load-in-4bit true.",
                    exit_code=OUT_OF_MEMORY,
                ) from error
            said = []
        if said:
            yield said
            waiting = waiting[len(batch) :]
        else:
            batch_size //= 2
            free_memory()


def _batch(
    loaded: Loaded, prompts: Sequence[Sequence[int]], indices: Sequence[int], how: Greedy
) -> list[Completion]:
    """Padded on the left, so that every answer begins in the same column."""
    import torch
    from transformers import StoppingCriteriaList

    pad, width = loaded.tokenizer.pad_token_id, max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    device, ends = loaded.model.device, ends_of(loaded.model, how.turn_end)
    with torch.inference_mode():
        output = loaded.model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=how.max_new_tokens,
            do_sample=False,
            eos_token_id=sorted(ends),
            pad_token_id=pad,
            temperature=None,
            top_p=None,
            top_k=None,
            stopping_criteria=StoppingCriteriaList(
                [Stops(loaded.tokenizer, how.stops, width)] if how.stops else []
            ),
        )
    rows = output[:, width:].tolist()
    return [
        _said(index, row, loaded.tokenizer, how, ends)
        for index, row in zip(indices, rows, strict=True)
    ]


def ends_of(model: Any, turn_end: int) -> set[int]:
    """The end of a turn, and what else the model itself says ends an answer."""
    own = model.generation_config.eos_token_id
    return {turn_end, *([own] if isinstance(own, int) else own or ())}


def until_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to the first stop string, which it includes; "" if there is none."""
    found = [text.index(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else ""


def _said(index: int, row: list[int], tokenizer: Any, how: Greedy, ends: set[int]) -> Completion:
    end = next((place for place, token in enumerate(row) if token in ends), None)
    ended = end is not None
    kept = row[:end] if ended else _unpadded(row, tokenizer.pad_token_id)
    text = tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    stopped = until_stop(text, how.stops)
    return Completion(index, stopped or text, ended or bool(stopped), len(kept) + ended)


def _unpadded(row: list[int], pad: int) -> list[int]:
    """A row that stopped at a stop string is padded until its batch is done."""
    end = len(row)
    while end and row[end - 1] == pad:
        end -= 1
    return row[:end]


class Stops:
    """Tells, row by row, whether a stop string has been written. Looks at the last tokens alone."""

    def __init__(self, tokenizer: Any, stops: tuple[str, ...], start: int):
        self.tokenizer, self.stops, self.start = tokenizer, stops, start
        self.window = 4 + max(len(stop) for stop in stops)

    def __call__(self, ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        tail = ids[:, max(self.start, ids.shape[1] - self.window) :]
        texts = self.tokenizer.batch_decode(tail, skip_special_tokens=False)
        return torch.tensor(
            [any(stop in text for stop in self.stops) for text in texts], device=ids.device
        )
