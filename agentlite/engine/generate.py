"""Prompts -> the likeliest answer to each, in batches of like length, given back as they come."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agentlite.engine.decoding import Decoding, Stops, ends_of, until_stop
from agentlite.engine.load import Loaded, does_not_fit, free_memory, is_out_of_memory


class Completion(NamedTuple):
    """`prompt`: its index; the text without the end of turn; whether it ended by itself; its
    tokens.
    """

    prompt: int
    text: str
    finished: bool
    new_tokens: int


def generate(
    loaded: Loaded, prompts: Sequence[Sequence[int]], decoding: Decoding, *, batch_size: int
) -> Iterator[list[Completion]]:
    """One answer to each prompt, the likeliest: the temperature of `decoding` is not looked at.

    A list for every batch, longest prompts first: what does not fit into memory fails at once.
    A batch that runs out of GPU memory is halved. Raises UserError 7 if one prompt alone does not
    fit.
    """
    waiting = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    while waiting:
        batch = waiting[:batch_size]
        try:
            completions = _batch(loaded, [prompts[index] for index in batch], batch, decoding)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if batch_size == 1:
                raise does_not_fit(
                    f"a prompt of {len(prompts[batch[0]])} tokens",
                    "Lower --max-length, or add --load-in-4bit true.",
                ) from error
            completions = []  # halved below, where the error holds no tensor any more
        if completions:
            yield completions
            waiting = waiting[len(batch) :]
        else:
            batch_size //= 2
            free_memory()


def _batch(
    loaded: Loaded, prompts: Sequence[Sequence[int]], indices: Sequence[int], decoding: Decoding
) -> list[Completion]:
    """Padded on the left, so that every answer begins in the same column."""
    import torch
    from transformers import StoppingCriteriaList

    pad, width = loaded.tokenizer.pad_token_id, max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    device, ends = loaded.model.device, ends_of(loaded.model, decoding.turn_end)
    stops = [Stops(loaded.tokenizer, decoding.stops, width)] if decoding.stops else []
    with torch.inference_mode():
        output = loaded.model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=decoding.max_new_tokens,
            do_sample=False,
            eos_token_id=sorted(ends),
            pad_token_id=pad,
            temperature=None,
            top_p=None,
            top_k=None,
            stopping_criteria=StoppingCriteriaList(stops),
        )
    rows = output[:, width:].tolist()
    return [
        _completion(index, row, loaded.tokenizer, decoding.stops, ends)
        for index, row in zip(indices, rows, strict=True)
    ]


def _completion(
    prompt: int, row: list[int], tokenizer: Any, stops: tuple[str, ...], ends: set[int]
) -> Completion:
    """A row of new ids as text. Behind its end it is padded until the whole batch is done."""
    end = next((index for index, token in enumerate(row) if token in ends), None)
    ended = end is not None
    kept = row[:end] if ended else _unpadded(row, tokenizer.pad_token_id)
    text = tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    stopped = until_stop(text, stops)
    return Completion(prompt, stopped or text, ended or bool(stopped), len(kept) + ended)


def _unpadded(row: list[int], pad: int) -> list[int]:
    """A row that stopped at a stop string is padded without an end of turn before."""
    end = len(row)
    while end and row[end - 1] == pad:
        end -= 1
    return row[:end]
