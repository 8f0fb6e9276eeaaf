"""The key-value cache of a batch: each prompt once, then a column for each sample and step.

Its attention is its own: transformers copies keys and values once for every query head before it
calls PyTorch's attention with a mask. With three heads to a key and a long prompt that copy is most
of a step. Here the heads of a group stand beside each other as so many queries of one head.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from typing import Any

from agentlite.engine.load import Loaded

# The owner of a column of the cache: the number of a sample (0, 1, ...), or one of these.
PADDING, PROMPT, NOBODY = -2, -1, -3
GROUPED = "agentlite_grouped"  # the name of the attention below in transformers
# passed by models whose attention does more than weigh values by a softmax of products
BEYOND = ("position_bias", "s_aux", "softcap", "sliding_window")
Step = tuple[int, int, int]  # of a sample: its last id, its number, how many ids came before


class SharedCache:
    """The key-value cache of the prompts that still have samples to extend, and the owner of each
    column.

    `owner` (prompts, columns) grows with the cache: PADDING or PROMPT in the first columns, then
    for each step one column for each place in the widest row of active samples: the sample's number
    there, or NOBODY.
    """

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]]):
        """Reads the prompts, and what all of them begin with (a system turn, tools) only once.
        `logits`, (prompts, 1, vocabulary), follow their last ids.

        Padded on the right, they need no mask: a token sees those before it, which are never
        padding, and what padding leaves in the cache is seen by no sample. Without a mask PyTorch's
        causal attention is a quarter faster on a CPU.
        """
        import torch
        from transformers import DynamicCache

        self.model, device = loaded.model, loaded.model.device
        width, pad = max(map(len, prompts)), loaded.tokenizer.pad_token_id
        rows = [[*prompt, *[pad] * (width - len(prompt))] for prompt in prompts]
        ids = torch.tensor(rows, device=device)
        self.length = torch.tensor([len(prompt) for prompt in prompts], device=device)
        columns = torch.arange(width, device=device)
        self.owner = torch.where(columns < self.length[:, None], PROMPT, PADDING)
        self.cache = DynamicCache(config=self.model.config)
        kept = {"use_cache": True, "past_key_values": self.cache}
        # how many ids all begin with; each prompt keeps one of its own
        alike = takewhile(lambda column: len({*column}) == 1, zip(*prompts, strict=False))
        shared = min(len([*alike]), min(map(len, prompts)) - 1) if len(prompts) > 1 else 0
        if shared:
            self.model(input_ids=ids[:1, :shared], logits_to_keep=1, **kept)
            self.cache.batch_repeat_interleave(len(prompts))
        ends, place = (self.length - 1 - shared).unique(return_inverse=True)
        output = self.model(input_ids=ids[:, shared:], logits_to_keep=ends, **kept)
        self.logits = output.logits[torch.arange(len(prompts), device=device), place][:, None]

    def keep(self, rows: Sequence[int]) -> None:
        """Drops the other rows from the cache. Without any left it is not used again."""
        if 0 < len(rows) < len(self.owner):
            import torch

            index = torch.tensor(rows, device=self.owner.device)
            self.cache.batch_select_indices(index)
            self.owner, self.length = self.owner[index], self.length[index]

    def step(self, active: Sequence[Sequence[Step]]) -> list[Any]:
        """The logits that follow each answer's last token: for every prompt a tensor (samples,
        vocabulary).

        A row of the input holds the last token of each active sample of a prompt. A prompt with
        fewer active samples than the widest row is filled up on the right; the columns of these
        blanks belong to NOBODY, and so no sample sees them, now or later.
        """
        import torch

        width, device = max(map(len, active)), self.owner.device
        rows = [[*row, *[(0, NOBODY, 0)] * (width - len(row))] for row in active]
        # `before`: how many tokens of its own come before the last one, its position from the
        # prompt's end. Each is (prompts, width).
        ids, sample, before = torch.tensor(rows, device=device).unbind(-1)
        # The new tokens get their columns first: a token sees itself. Several tokens of one row are
        # at the same step of different samples, so no causal order holds between them: the mask
        # alone, (prompts, new tokens, columns), says who sees what.
        self.owner = torch.cat([self.owner, sample], dim=1)
        seen = (self.owner[:, None, :] == PROMPT) | (self.owner[:, None, :] == sample[:, :, None])
        # as transformers wants it: 0 where seen, the least number elsewhere; one for all heads
        bias = torch.zeros(seen.shape, dtype=self.model.dtype, device=device)
        bias = bias.masked_fill(~seen, torch.finfo(self.model.dtype).min)[:, None]
        with _grouped_queries(self.model):
            output = self.model(
                input_ids=ids,
                attention_mask=bias,
                # the position in the sample's own text, not the column: other samples do not count
                position_ids=self.length[:, None] + before,
                past_key_values=self.cache,
                use_cache=True,
            )
        return [output.logits[row, : len(answers)] for row, answers in enumerate(active)]


@contextmanager
def _grouped_queries(model: Any) -> Iterator[None]:
    """Inside, the model attends in groups, where it would use PyTorch's attention (`sdpa`)."""
    _register()
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa":
        config._attn_implementation = GROUPED
    try:
        yield
    finally:
        config._attn_implementation = before


@cache
def _register() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(GROUPED, attend)


def attend(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Any, None]:
    """As transformers' attention functions are called: query (rows, heads, tokens, size), key and
    value (rows, key heads, columns, size), mask (rows, 1, tokens, columns) as a bias. The values
    as (rows, tokens, heads, size).
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    rows, heads, tokens, size = query.shape
    of_key = heads // key.shape[1]
    masked = attention_mask is not None and attention_mask.shape[1] == 1
    if of_key == 1 or not masked or any(others.get(name) is not None for name in BEYOND):
        attended: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **others
        )
        return attended
    # head number k * of_key + i reads key head k: the heads of a key are neighbours
    grouped = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(rows, key.shape[1], of_key * tokens, size),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, of_key, 1),
        dropout_p=dropout,
        scale=scaling,
    )
    return grouped.reshape(rows, heads, tokens, -1).transpose(1, 2).contiguous(), None
