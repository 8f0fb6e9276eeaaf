"""Prompts -> several answers to each, drawn at random; a prompt is read once, however many answers
it gets.

All samples of a prompt stand in one row of the key-value cache: the prompt, then one column a
sample and step. A mask lets each sample see the prompt and its own columns. So the cache holds a
prompt once, and a step of all samples of all prompts is one call of the model. What a sample draws
depends on its own seed alone, not on its neighbours.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import OUT_OF_MEMORY, UserError
from agentlite.core.records import Ending, digest
from agentlite.engine import on_gpu
from agentlite.engine.generate import ends_of, until_stop
from agentlite.engine.load import Loaded, free_memory, is_out_of_memory

PADDING, PROMPT, NOBODY = -2, -1, -3  # whose column of the cache it is, where it is not a sample's
SHORTLIST = 256


class Sampling(NamedTuple):
    """How an answer is drawn, and when it ends."""

    turn_end: int
    max_new_tokens: int
    temperature: float
    top_p: float


class SampleRequest(NamedTuple):
    """A prompt's ids, one seed for every sample wanted, and the strings that end an answer."""

    prompt: Sequence[int]
    seeds: tuple[str, ...]
    stops: tuple[str, ...] = ()


class Sample(NamedTuple):
    """Sample number `sample` of prompt number `prompt`: its ids, end included, and its text, end of
    turn left out.
    """

    prompt: int
    sample: int
    ids: list[int]
    text: str
    ended: Ending


def sample(loaded: Loaded, asked: Sequence[SampleRequest], how: Sampling) -> list[Sample]:
    """One batch, in halves if it does not fit into memory: what is drawn is the same. The model is
    left as it was.

    Raises UserError 7 if one sample of one prompt does not fit.
    """
    try:
        return _sample(loaded, asked, how)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        halves = _halves(asked)
        if not halves:
            raise UserError(
                f"an answer to a prompt of {len(asked[0].prompt)} tokens does not fit into GPU "
                "memory.",
                "Lower --max-length, or add --load-in-4bit true.",
                exit_code=OUT_OF_MEMORY,
            ) from error
    free_memory()
    return [
        drawn._replace(prompt=drawn.prompt + half.prompts, sample=drawn.sample + half.samples)
        for half in halves
        for drawn in sample(loaded, half.asked, how)
    ]


class _Half(NamedTuple):
    """A part of a batch, and how many prompts, or samples of its one prompt, stand before it."""

    asked: Sequence[SampleRequest]
    prompts: int = 0
    samples: int = 0


def _halves(asked: Sequence[SampleRequest]) -> list[_Half]:
    """Of the prompts, or of the samples of the only one; none of a single sample."""
    if (middle := len(asked) // 2) > 0:
        return [_Half(asked[:middle]), _Half(asked[middle:], prompts=middle)]
    seeds = asked[0].seeds
    if (middle := len(seeds) // 2) > 0:
        return [
            _Half([asked[0]._replace(seeds=seeds[:middle])]),
            _Half([asked[0]._replace(seeds=seeds[middle:])], samples=middle),
        ]
    return []


def _sample(loaded: Loaded, asked: Sequence[SampleRequest], how: Sampling) -> list[Sample]:
    import torch

    was_training = loaded.model.training
    loaded.model.eval()
    try:
        with torch.inference_mode():
            return SAMPLERS["shared" if _shares(loaded.model) else "by one"](loaded, asked, how)
    finally:
        loaded.model.train(was_training)


def plan_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Indices of prompts, longest first, so that what does not fit fails at once and batches hold
    like lengths.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _shares(model: Any) -> bool:
    """Whether a mask over columns is obeyed. Unsloth's own decoding on CUDA takes one token a row
    and no mask; layers with a sliding window keep only the last columns."""
    layers = getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"]
    return not (on_gpu() and hasattr(model, "for_inference")) and set(layers) == {"full_attention"}


def _shared(loaded: Loaded, asked: Sequence[SampleRequest], how: Sampling) -> list[Sample]:
    """Every step of every sample of every prompt in one call; prompts that are done leave the
    batch.
    """
    answers = [
        [_Answer(index, number, seed, one.stops) for number, seed in enumerate(one.seeds)]
        for index, one in enumerate(asked)
    ]
    batch = _Batch(loaded, asked)
    ends = ends_of(loaded.model, how.turn_end)
    active = answers
    logits = [
        batch.logits[row].expand(len(row_answers), -1) for row, row_answers in enumerate(active)
    ]
    for step in range(how.max_new_tokens):
        _extend([answer for row in active for answer in row], logits, how)
        going = [[one for one in row if not one.is_done(loaded.tokenizer, ends)] for row in active]
        batch.keep([index for index, row in enumerate(going) if row])
        active = [row for row in going if row]
        if not active or step + 1 == how.max_new_tokens:
            break
        logits = batch.step(active)
    return [
        read(loaded.tokenizer, one.ids, ends, asked[one.prompt].stops, (one.prompt, one.sample))
        for row in answers
        for one in row
    ]


class _Answer:
    """A sample while it is being drawn."""

    def __init__(self, prompt: int, sample: int, seed: str, stops: tuple[str, ...]):
        self.prompt, self.sample, self.random, self.stops = (
            prompt,
            sample,
            random.Random(seed),
            stops,
        )
        self.window = 4 + max(map(len, stops), default=0)
        self.ids: list[int] = []

    def is_done(self, tokenizer: Any, ends: set[int]) -> bool:
        if self.ids[-1] in ends:
            return True
        return bool(
            self.stops and until_stop(_text(tokenizer, self.ids[-self.window :]), self.stops)
        )


class _Batch:
    """The cache of the prompts that still have samples to draw, and whose each of its columns
    is.
    """

    def __init__(self, loaded: Loaded, asked: Sequence[SampleRequest]):
        import torch
        from transformers import DynamicCache

        self.model, device = loaded.model, loaded.model.device
        width, pad = max(len(one.prompt) for one in asked), loaded.tokenizer.pad_token_id
        rows = [[pad] * (width - len(one.prompt)) + list(one.prompt) for one in asked]
        owners = [
            [PADDING] * (width - len(one.prompt)) + [PROMPT] * len(one.prompt) for one in asked
        ]
        self.owner = torch.tensor(owners, device=device)
        mask = (self.owner == PROMPT).long()
        self.length = mask.sum(1)
        self.cache = DynamicCache(config=self.model.config)
        output = self.model(
            input_ids=torch.tensor(rows, device=device),
            attention_mask=mask,
            use_cache=True,
            logits_to_keep=1,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=self.cache,
        )
        self.logits = output.logits[:, -1:]

    def keep(self, rows: Sequence[int]) -> None:
        if 0 < len(rows) < len(self.owner):
            import torch

            chosen = torch.tensor(rows, device=self.owner.device)
            self.cache.batch_select_indices(chosen)
            self.owner, self.length = self.owner[chosen], self.length[chosen]

    def step(self, active: Sequence[Sequence[_Answer]]) -> list[Any]:
        """The logits that follow each answer's last token: for every prompt a tensor (samples,
        vocabulary).
        """
        import torch

        width, device = max(map(len, active)), self.owner.device
        blanks = [width - len(row) for row in active]
        ids = torch.tensor(
            [[a.ids[-1] for a in row] + [0] * n for row, n in zip(active, blanks, strict=True)]
        )
        who = torch.tensor(
            [[a.sample for a in row] + [NOBODY] * n for row, n in zip(active, blanks, strict=True)]
        )
        far = torch.tensor(
            [[len(a.ids) - 1 for a in row] + [0] * n for row, n in zip(active, blanks, strict=True)]
        )
        ids, who, far = ids.to(device), who.to(device), far.to(device)
        self.owner = torch.cat([self.owner, who], dim=1)
        seen = (self.owner[:, None, :] == PROMPT) | (self.owner[:, None, :] == who[:, :, None])
        mask = torch.zeros(seen.shape, dtype=self.model.dtype, device=device)
        mask = mask.masked_fill(~seen, torch.finfo(mask.dtype).min)[:, None]
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=self.length[:, None] + far,
            past_key_values=self.cache,
            use_cache=True,
        )
        return [output.logits[row, : len(answers)] for row, answers in enumerate(active)]


def _extend(answers: Sequence[_Answer], logits: Sequence[Any], how: Sampling) -> None:
    import torch

    uniform = torch.tensor([answer.random.random() for answer in answers], dtype=torch.float64)
    for answer, token in zip(
        answers, draw(torch.cat(list(logits)), uniform, how).tolist(), strict=True
    ):
        answer.ids.append(token)


def draw(logits: Any, uniform: Any, how: Sampling) -> Any:
    """One token a row, by turning a number in [0, 1) into a place on the scale of the
    probabilities.

    logits: (rows, vocabulary); uniform: (rows,). Temperature 0 takes the likeliest. Top-p (arXiv
    1904.09751) keeps the fewest likeliest tokens that together reach `top_p`.
    """
    if how.temperature == 0:
        return logits.argmax(-1)
    probabilities = (logits.float() / how.temperature).softmax(-1)
    if how.top_p >= 1:
        return _place(probabilities, uniform)
    likeliest, tokens = probabilities.topk(min(SHORTLIST, probabilities.shape[-1]), dim=-1)
    if (likeliest.sum(-1) < how.top_p).any():
        likeliest, tokens = probabilities.sort(dim=-1, descending=True)
    before = likeliest.cumsum(-1) - likeliest
    places = _place(likeliest.masked_fill(before >= how.top_p, 0), uniform)
    return tokens.gather(-1, places[:, None])[:, 0]


def _place(weights: Any, uniform: Any) -> Any:
    import torch

    scale = weights.double().cumsum(-1)
    targets = uniform.to(scale.device)[:, None] * scale[:, -1:]
    return torch.searchsorted(scale, targets, right=True)[:, 0].clamp(max=weights.shape[-1] - 1)


def read(
    tokenizer: Any,
    ids: Sequence[int],
    ends: set[int],
    stops: tuple[str, ...],
    which: tuple[int, int],
) -> Sample:
    """Sampled ids as what was said, and how it ended. What comes after a stop string is cut off.

    `which`: the number of the prompt and of the sample.
    """
    finished = bool(ids) and ids[-1] in ends
    text = _text(tokenizer, ids[:-1] if finished else ids)
    if stopped := until_stop(text, stops):
        length = next(
            n for n in range(1, len(ids) + 1) if until_stop(_text(tokenizer, ids[:n]), stops)
        )
        return Sample(*which, list(ids[:length]), stopped, "stop")
    return Sample(*which, list(ids), text, "turn" if finished else "cut")


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _by_one(loaded: Loaded, asked: Sequence[SampleRequest], how: Sampling) -> list[Sample]:
    """A prompt at a time through the model's own `generate`, seeded by the prompt's seeds."""
    import torch
    from transformers import StoppingCriteriaList

    from agentlite.engine.generate import Stops

    ends, drawn = ends_of(loaded.model, how.turn_end), []
    pad = loaded.tokenizer.pad_token_id
    for index, one in enumerate(asked):
        torch.manual_seed(int(digest("".join(one.seeds)), 16) % 2**63)
        ids = torch.tensor([list(one.prompt)], device=loaded.model.device)
        stops = [Stops(loaded.tokenizer, one.stops, ids.shape[1])] if one.stops else []
        output = loaded.model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=how.max_new_tokens,
            top_k=0,
            do_sample=how.temperature > 0,
            temperature=how.temperature or None,
            top_p=how.top_p,
            num_return_sequences=len(one.seeds),
            eos_token_id=sorted(ends),
            pad_token_id=pad,
            stopping_criteria=StoppingCriteriaList(stops),
        )
        for number, row in enumerate(output[:, ids.shape[1] :].tolist()):
            end = next((place for place, token in enumerate(row) if token in ends), len(row))
            drawn.append(read(loaded.tokenizer, row[: end + 1], ends, one.stops, (index, number)))
    return drawn


SAMPLERS = {"shared": _shared, "by one": _by_one}
