"""The key-value cache of a batch: each prompt once, then a column for each sample and step."""

from collections.abc import Sequence
from typing import Any

from agentlite.engine.grouped_attention import grouped_queries
from agentlite.engine.load import Loaded

# The owner of a column of the cache: the number of a sample (0, 1, ...), or one of these.
PADDING, PROMPT, NOBODY = -2, -1, -3
LONG = 512  # new tokens of a prompt that keep a processor busy without a neighbour


class Branch:
    """A sample of a prompt as far as it has come: its number, and its ids."""

    def __init__(self, sample: int):
        self.sample = sample
        self.ids: list[int] = []


class SharedCache:
    """The key-value cache of the prompts that still have samples to extend, and the owner of each
    column.

    `owner` (prompts, columns) grows with the cache: PADDING or PROMPT in the first columns, then
    for each step one column for each place in the widest row of active samples: the sample's number
    there, or NOBODY.
    """

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]]):
        self.model = loaded.model
        # Rows that are read together are padded to the same width: a long one is read by itself.
        alike: dict[tuple[int, int], list[int]] = {}
        for index, prompt in enumerate(prompts):
            key = (len(prompt), index) if len(prompt) >= LONG else (0, 0)
            alike.setdefault(key, []).append(index)
        parts = [_read(loaded, [prompts[index] for index in indices]) for indices in alike.values()]
        (self.cache, self.owner, self.logits) = (
            parts[0] if len(parts) == 1 else _joined(self.model, [*alike.values()], parts)
        )
        self.length = (self.owner == PROMPT).sum(1)

    def keep(self, rows: Sequence[int]) -> None:
        """Drops the other rows from the cache. Without any left it is not used again."""
        if 0 < len(rows) < len(self.owner):
            import torch

            index = torch.tensor(rows, device=self.owner.device)
            self.cache.batch_select_indices(index)
            self.owner, self.length = self.owner[index], self.length[index]

    def step(self, active: Sequence[Sequence[Branch]]) -> list[Any]:
        """The logits that follow each answer's last token: for every prompt a tensor (samples,
        vocabulary).

        A row of the input holds the last token of each active sample of a prompt. A prompt with
        fewer active samples than the widest row is filled up on the right; the columns of these
        blanks belong to NOBODY, and so no sample sees them, now or later.
        """
        import torch

        width, device = max(map(len, active)), self.owner.device
        blanks = [width - len(row) for row in active]
        ids = torch.tensor(
            [[a.ids[-1] for a in row] + [0] * n for row, n in zip(active, blanks, strict=True)]
        )
        sample = torch.tensor(
            [[a.sample for a in row] + [NOBODY] * n for row, n in zip(active, blanks, strict=True)]
        )
        # how many tokens of its own come before the last one: its position, from the prompt's end
        before = torch.tensor(
            [[len(a.ids) - 1 for a in row] + [0] * n for row, n in zip(active, blanks, strict=True)]
        )
        ids, sample, before = ids.to(device), sample.to(device), before.to(device)
        # The new tokens get their columns first: a token sees itself. Several tokens of one row are
        # at the same step of different samples, so no causal order holds between them: the mask
        # alone, (prompts, new tokens, columns), says who sees what.
        self.owner = torch.cat([self.owner, sample], dim=1)
        seen = (self.owner[:, None, :] == PROMPT) | (self.owner[:, None, :] == sample[:, :, None])
        with grouped_queries(self.model):
            output = self.model(
                input_ids=ids,
                attention_mask=_as_bias(seen, self.model.dtype),
                # the position in the sample's own text, not the column: other samples do not count
                position_ids=self.length[:, None] + before,
                past_key_values=self.cache,
                use_cache=True,
            )
        return [output.logits[row, : len(answers)] for row, answers in enumerate(active)]


def _read(loaded: Loaded, prompts: Sequence[Sequence[int]]) -> tuple[Any, Any, Any]:
    """Prompts -> their cache, its owners, and the logits (prompts, 1, vocabulary) behind the last
    ids. In a row of the cache, padding stands on the left.
    """
    import torch
    from transformers import DynamicCache

    model, device = loaded.model, loaded.model.device
    width = max(map(len, prompts))
    ids, owners = [], []
    for prompt in prompts:
        blanks = width - len(prompt)
        ids.append([loaded.tokenizer.pad_token_id] * blanks + list(prompt))
        owners.append([PADDING] * blanks + [PROMPT] * len(prompt))
    owner = torch.tensor(owners, device=device)
    cache = DynamicCache(config=model.config)
    mask = (owner == PROMPT).long()
    # padding does not count: the first token of a prompt is at position 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    output = model(
        input_ids=torch.tensor(ids, device=device),
        attention_mask=mask,
        use_cache=True,
        logits_to_keep=1,
        position_ids=positions,
        past_key_values=cache,
    )
    return cache, owner, output.logits[:, -1:]


def _padded(rows: Sequence[Any], width: int) -> Any:
    """(heads, columns, size) of each row -> (rows, heads, width, size), with zeros on the left."""
    first = rows[0]
    whole = first.new_zeros((len(rows), first.shape[0], width, first.shape[2]))
    for index, row in enumerate(rows):
        whole[index, :, width - row.shape[1] :] = row
    return whole


def _joined(
    model: Any, indices: Sequence[Sequence[int]], parts: Sequence[tuple[Any, Any, Any]]
) -> tuple[Any, Any, Any]:
    """What was read in parts as one batch, its rows where `indices` say."""
    import torch
    from transformers import DynamicCache

    order = torch.tensor([index for of_part in indices for index in of_part]).argsort()
    width = max(owner.shape[1] for _, owner, _ in parts)
    cache = DynamicCache(config=model.config)
    for number in range(len(parts[0][0].layers)):
        layers = [part.layers[number] for part, _, _ in parts]
        keys = _padded([row for layer in layers for row in layer.keys], width)
        values = _padded([row for layer in layers for row in layer.values], width)
        at = order.to(keys.device)
        cache.update(keys[at], values[at], number)
        for layer in layers:  # so that never more than one layer is there twice
            layer.keys = layer.values = None
    owner = torch.cat(
        [
            torch.nn.functional.pad(owner, (width - owner.shape[1], 0), value=PADDING)
            for _, owner, _ in parts
        ]
    )
    at = order.to(owner.device)
    return cache, owner[at], torch.cat([logits for _, _, logits in parts])[at]


def _as_bias(seen: Any, dtype: Any) -> Any:
    """(rows, new tokens, columns) of True where seen -> as transformers wants it: 0 there, the
    least number elsewhere; one for all heads.
    """
    import torch

    bias = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return bias.masked_fill(~seen, torch.finfo(dtype).min)[:, None]
