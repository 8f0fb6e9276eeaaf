"""Prompts -> the likeliest answer to each, in batches of like length, given back as they come."""

from collections.abc import Iterator, Sequence

from agentlite.engine.decoding import Decoding, Stops, ends_of, left_padded
from agentlite.engine.load import Loaded, does_not_fit, free_memory, is_out_of_memory
from agentlite.engine.local_sampler import Sample, plan_batches, read


def generate(
    loaded: Loaded, prompts: Sequence[Sequence[int]], decoding: Decoding, *, batch_size: int
) -> Iterator[list[Sample]]:
    """One answer to each prompt, the likeliest: the temperature of `decoding` is not looked at.

    A list for every batch, longest prompts first: what does not fit into memory fails at once.
    A batch that runs out of GPU memory is halved. Raises UserError 7 if one prompt alone does not
    fit.
    """
    (waiting,) = plan_batches([len(prompt) for prompt in prompts], len(prompts)) or [[]]
    while waiting:
        batch = waiting[:batch_size]
        try:
            samples = _batch(loaded, [prompts[index] for index in batch], batch, decoding)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if batch_size == 1:
                raise does_not_fit(
                    f"a prompt of {len(prompts[batch[0]])} tokens",
                    "Lower --max-length, or add --load-in-4bit true.",
                ) from error
            samples = []  # halved below, where the error holds no tensor any more
        if samples:
            yield samples
            waiting = waiting[len(batch) :]
        else:
            batch_size //= 2
            free_memory()


def _batch(
    loaded: Loaded, prompts: Sequence[Sequence[int]], indices: Sequence[int], decoding: Decoding
) -> list[Sample]:
    import torch
    from transformers import StoppingCriteriaList

    pad, device = loaded.tokenizer.pad_token_id, loaded.model.device
    ids, mask = left_padded(prompts, pad)
    width, ends = ids.shape[1], ends_of(loaded.model, decoding.turn_end)
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
    samples = []
    for index, row in zip(indices, output[:, width:].tolist(), strict=True):
        # behind its end a row is padded until the whole batch is done, and behind a stop string too
        end = next((place + 1 for place, token in enumerate(row) if token in ends), 0)
        if not end:
            end = len(row)
            while end and row[end - 1] == pad:
                end -= 1
        samples.append(read(loaded.tokenizer, row[:end], ends, decoding.stops, (index, 0)))
    return samples
