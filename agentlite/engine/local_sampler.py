"""Prompts -> the likeliest answer to each, or several sampled ones, by a model in memory.

All samples of a batch take one call of the model a token, and a prompt is read once, however many
answers it gets. Where the model obeys a mask over columns, all samples of a prompt share one row of
the key-value cache; elsewhere (Unsloth's decoding on CUDA, sliding windows) every sample has a row
of its own (see `caches`). Either way a sample is drawn by its own seed alone; in 16 bit its
neighbours round its logits, which may move a drawn token.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from agentlite.config.settings import TrainerSettings
from agentlite.core.errors import UserError
from agentlite.core.records import Ending
from agentlite.engine import load_dtype, on_gpu, torch
from agentlite.engine.caches import RowCache, SharedCache, decode_graphs, unsloth_decodes
from agentlite.engine.decoding import Decoding, decode, ends_of, until_stop
from agentlite.engine.load import Loaded, free_memory, is_out_of_memory, too_large_error
from agentlite.engine.planning.estimate import training_bytes
from agentlite.engine.planning.memory import ROW_TOKENS, SMALL_CARD, rows_at_once
from agentlite.engine.planning.model_shape import shape_of

GoesOn = Callable[[Sequence[int]], bool]  # whether an answer of these ids is still wanted
Listener = Callable[[str], bool]  # gets each new piece of text; False: nobody listens any more
SHORTLIST = 256  # top-p sorts this many of the likeliest tokens; all where they do not reach it
# by model, how many answers are drawn together since more did not fit
_fitting_sizes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


class SampleRequest(NamedTuple):
    """A prompt's ids, one seed for every sample wanted, and the strings that end an answer."""

    prompt: Sequence[int]
    seeds: tuple[str, ...]
    stops: tuple[str, ...] = ()


class Sample(NamedTuple):
    """Sample number `sample` of prompt number `prompt`: its ids, end included, and its text, end of
    turn left out.

    `log_probabilities`: of each id, at the temperature it was drawn at, before top-p.
    """

    prompt: int
    sample: int
    ids: list[int]
    text: str
    ended: Ending
    log_probabilities: tuple[float, ...] = ()


class _Answer:
    """Sample number `sample` of prompt number `index`, which is extended token by token."""

    def __init__(self, index: int, sample: int, request: SampleRequest):
        self.index, self.sample, self.request = index, sample, request
        self.random = random.Random(request.seeds[sample])
        # How many of the last tokens can hold a stop string that has just been completed: each has
        # at least one character of it, in ASCII. Four more, since a character that is cut up into
        # bytes, a token each, may stand where the window begins.
        self.window = 4 + max(map(len, request.stops), default=0)
        self.ids: list[int] = []
        self.log_probabilities: list[float] = []

    def is_done(self, tokenizer: Any, ends: set[int]) -> bool:
        if self.ids[-1] in ends:
            return True
        stops = self.request.stops
        return bool(stops and until_stop(decode(tokenizer, self.ids[-self.window :]), stops))


def learner(settings: TrainerSettings, trl_trainer: Any, teacher_parameters: int = 0) -> Loaded:
    """The model that is trained, as it is now, to sample from. `teacher_parameters`: those of a
    model that is in memory beside it.
    """
    model = trl_trainer.accelerator.unwrap_model(trl_trainer.model)
    kept_bytes = training_bytes(settings, model, teacher_parameters)
    return Loaded(model, trl_trainer.processing_class, kept_bytes)


def sample(
    loaded: Loaded,
    requests: Sequence[SampleRequest],
    decoding: Decoding,
    min_rows: int = 0,
    goes_on: GoesOn = lambda ids: True,
) -> list[Sample]:
    """As many at once as memory is planned for, and from then on half as many if it runs out: the
    samples are the same. The model is left in the mode it was in. The requests say how many
    samples, which seeds and which stops, not `decoding`. `min_rows`: so many at least are decoded
    together where every sample has one. `goes_on`: gets the ids of an answer after each token.

    Raises UserError 7 if one sample of one prompt does not fit.
    """
    keys = [(index, n) for index, r in enumerate(requests) for n in range(len(r.seeds))]
    ends = ends_of(loaded.model, decoding.turn_end)
    start, samples, size = 0, list[Sample](), len(keys)
    if keys and not _shares_rows(loaded.model):
        fewest = min(len(request.seeds) for request in requests)
        longest = max(len(request.prompt) for request in requests)
        size = max(min_rows, _rows_at_once(loaded, longest, decoding.max_new_tokens, fewest))
    size = min(size, _fitting_sizes.get(loaded.model, size))  # what did not fit is not tried again
    while start < len(keys):
        answers = [_Answer(index, n, requests[index]) for index, n in keys[start : start + size]]
        try:
            with _in_eval_mode(loaded.model):
                _draw(loaded, answers, decoding, ends, goes_on)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(answers) == 1:
                raise too_large_error(
                    f"an answer to a prompt of {len(answers[0].request.prompt)} tokens",
                    "Lower --max-length, or add --load-in-4bit true.",
                ) from error
            # of the batch that failed, which may be the rest of a longer list, and so smaller
            size = _fitting_sizes[loaded.model] = len(answers) // 2
            answers = []
        for answer in answers:
            stops, logprobs = answer.request.stops, answer.log_probabilities
            key = (answer.index, answer.sample)
            samples.append(make_sample(loaded.tokenizer, answer.ids, ends, stops, key, logprobs))
        start += len(answers)
        if not answers:
            free_memory()  # outside the except clause: the traceback held the tensors of the batch
    return samples


@contextmanager
def _in_eval_mode(model: Any) -> Iterator[None]:
    """Unsloth's decoding has a switch and types of its own, turns gradient checkpointing off and
    leaves its key-value cache on the layers. Left so, the backward pass would take several times
    the memory that is planned.
    """
    was_training, is_unsloth = model.training, unsloth_decodes(model)
    modes = [getattr(module, "gradient_checkpointing", False) for module in model.modules()]
    model.eval()
    if is_unsloth:
        model.for_inference()
    types = torch.autocast("cuda", dtype=load_dtype()) if is_unsloth else nullcontext()
    try:
        with torch.inference_mode(), types:
            yield
    finally:
        model.train(was_training)
        if was_training and is_unsloth:
            decode_graphs.release_for_training(model)  # the key-value cache
            model.for_training(use_gradient_checkpointing=next(filter(None, modes), False))


def _shares_rows(model: Any) -> bool:
    """Whether the model obeys a mask over columns. Unsloth's own decoding on CUDA takes one token a
    row and no mask; layers with a sliding window keep only the last columns."""
    layers = getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"]
    return not unsloth_decodes(model) and set(layers) == {"full_attention"}


def _draw(
    loaded: Loaded, answers: Sequence[_Answer], decoding: Decoding, ends: set[int], goes_on: GoesOn
) -> None:
    """Every step of every sample of every prompt in one call."""
    active = [list(row) for _, row in groupby(answers, key=lambda answer: answer.index)]
    prompts = [row[0].request.prompt for row in active]
    cache: SharedCache | RowCache = (
        SharedCache(loaded, prompts)
        if _shares_rows(loaded.model)
        else RowCache(loaded, prompts, decoding.max_new_tokens)
    )
    # the first token of every sample comes from the same logits: those at the end of its prompt
    logits = [cache.logits[index].expand(len(row), -1) for index, row in enumerate(active)]
    for tokens_left in reversed(range(decoding.max_new_tokens)):
        # One token more for each answer, by the next number of its own random stream. `logits`,
        # (answers, vocabulary) once they are joined, are in the order of `extended`.
        extended = [answer for row in active for answer in row]
        uniform = torch.tensor([answer.random.random() for answer in extended], dtype=torch.float64)
        tokens, probabilities = choose_tokens(torch.cat(list(logits)), uniform, decoding)
        logprobs = probabilities.gather(-1, tokens[:, None])[:, 0].log().tolist()
        for answer, token, logprob in zip(extended, tokens.tolist(), logprobs, strict=True):
            answer.ids.append(token)
            answer.log_probabilities.append(logprob)
        active = [
            [
                a
                for a in row
                if tokens_left and not a.is_done(loaded.tokenizer, ends) and goes_on(a.ids)
            ]
            for row in active
        ]
        cache.keep([index for index, row in enumerate(active) if row])
        active = [row for row in active if row]
        if not active:
            break
        logits = cache.step([[(a.ids[-1], a.sample, len(a.ids) - 1) for a in r] for r in active])


def _rows_at_once(loaded: Loaded, prompt: int, new_tokens: int, samples: int) -> int:
    """How many rows are extended together, `samples` after each prompt of `prompt` tokens."""
    card = torch.cuda.mem_get_info()[1] if on_gpu() else SMALL_CARD
    try:
        shape = shape_of(loaded.model.config.to_dict(), loaded.model.name_or_path)
        return rows_at_once(shape, card, prompt, new_tokens, samples, loaded.training_bytes)
    except UserError:  # its memory cannot be planned
        return max(1, ROW_TOKENS // (prompt + new_tokens))


def choose_tokens(logits: Any, uniform: Any, decoding: Decoding) -> tuple[Any, Any]:
    """One token for each row, by turning a number in [0, 1) into an index on the scale of the
    probabilities; and these, (rows, vocabulary), before top-p.

    logits: (rows, vocabulary); uniform: (rows,). Temperature 0 takes the likeliest. Top-p (arXiv
    1904.09751) keeps the fewest likeliest tokens that together reach `top_p`.
    """
    probabilities = (logits.float() / (decoding.temperature or 1.0)).softmax(-1)
    if decoding.temperature == 0:
        return logits.argmax(-1), probabilities
    if decoding.top_p >= 1:
        return _index_on_scale(probabilities, uniform), probabilities
    likeliest, tokens = probabilities.topk(min(SHORTLIST, probabilities.shape[-1]), dim=-1)
    if (likeliest.sum(-1) < decoding.top_p).any():
        likeliest, tokens = probabilities.sort(dim=-1, descending=True)
    # A token stays where those before it do not reach top_p yet: the one that crosses it is in.
    # .5 .3 .2 with top_p .7 -> sums before 0 .5 .8: the third goes.
    sum_before = likeliest.cumsum(-1) - likeliest
    indices = _index_on_scale(likeliest.masked_fill(sum_before >= decoding.top_p, 0), uniform)
    return tokens.gather(-1, indices[:, None])[:, 0], probabilities


def _index_on_scale(weights: Any, uniform: Any) -> Any:
    """In doubles: a float's rounding would shift the borders of the unlikely tokens.

    weights: (rows, outcomes), which need not add up to 1. Weights 5 0 3 have the scale 5 5 8:
    numbers below 5/8 give 0, the others 2, and 1, of weight 0, is never met.
    """
    scale = weights.double().cumsum(-1)
    targets = uniform.to(scale.device)[:, None] * scale[:, -1:]
    return torch.searchsorted(scale, targets, right=True)[:, 0].clamp(max=weights.shape[-1] - 1)


def stream(loaded: Loaded, prompt: Sequence[int], decoding: Decoding, listener: Listener) -> Sample:
    """Ends when nobody listens. Raises UserError 7 if the prompt does not fit into memory."""
    sent_length = 0  # characters

    def send(text: str) -> bool:
        nonlocal sent_length
        piece, sent_length = text[sent_length:], max(sent_length, len(text))
        return listener(piece)

    def goes_on(ids: Sequence[int]) -> bool:
        text = decode(loaded.tokenizer, ids)
        return send(text[: len(text) - _unsure_length(text, decoding.stops)])

    request = SampleRequest(prompt, (str(decoding.seed),), decoding.stops)
    (answer,) = sample(loaded, [request], decoding, goes_on=goes_on)
    send(answer.text)
    return answer


def _unsure_length(text: str, stops: Sequence[str]) -> int:
    """Characters at the end that may still change: half a character of several tokens, half a stop
    string. With the stop "Observation:" a text that ends with "Obs" has three of them.
    """
    broken = 1 if text.endswith("\N{REPLACEMENT CHARACTER}") else 0
    lengths = [n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
    return max(lengths, default=0) or broken


def generate(
    loaded: Loaded, prompts: Sequence[Sequence[int]], decoding: Decoding, *, batch_size: int
) -> Iterator[list[Sample]]:
    """One answer to each prompt, the likeliest: the temperature of `decoding` is not looked at.

    A list for every batch, longest prompts first: what does not fit into memory fails at once.
    Raises UserError 7 if one prompt alone does not fit.
    """
    for batch in plan_batches([len(prompt) for prompt in prompts], batch_size):
        requests = [SampleRequest(prompts[index], ("",), decoding.stops) for index in batch]
        answers = sample(loaded, requests, decoding._replace(temperature=0.0), batch_size)
        yield [a._replace(prompt=batch[a.prompt], log_probabilities=()) for a in answers]


def make_sample(
    tokenizer: Any,
    ids: Sequence[int],
    ends: set[int],
    stops: tuple[str, ...],
    key: tuple[int, int],
    log_probabilities: Sequence[float] = (),
) -> Sample:
    """Sampled ids as text, and how it ended. Text after a stop string is cut off.

    `key`: the number of the prompt and that of the sample.
    """
    logprobs = tuple(log_probabilities)
    has_end = bool(ids) and ids[-1] in ends
    text = decode(tokenizer, ids[:-1] if has_end else ids)
    if stopped_text := until_stop(decode(tokenizer, ids), stops):  # the end may be a stop as well
        # A token may hold the end of a stop string and more: it is kept whole among the ids, while
        # the text ends where the stop does.
        length = next(
            n for n in range(1, len(ids) + 1) if until_stop(decode(tokenizer, ids[:n]), stops)
        )
        return Sample(*key, list(ids[:length]), stopped_text, "stop", logprobs[:length])
    return Sample(*key, list(ids), text, "turn" if has_end else "cut", logprobs)


def plan_batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Indices of prompts, longest first, so that what does not fit fails at once and batches hold
    like lengths.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    return [order[start : start + size] for start in range(0, len(order), size)]
