"""The key-value cache of a batch: each prompt once, then a column for each sample and step."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from agentlite.engine.load import Loaded

# The owner of a column of the cache: the number of a sample (0, 1, ...), or one of these.
PADDING, PROMPT, NOBODY = -2, -1, -3
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
        output = self.model(
            input_ids=ids,
            attention_mask=bias,
            # the position in the sample's own text, not the column: other samples do not count
            position_ids=self.length[:, None] + before,
            past_key_values=self.cache,
            use_cache=True,
        )
        return [output.logits[row, : len(answers)] for row, answers in enumerate(active)]
