"""The key-value caches of a batch that is sampled: each prompt is read once, for all its answers.

Both are used alike: the first tokens are drawn from `logits`, the others after `keep` and `step`.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from agentlite.engine import LazyModule, on_gpu, torch, transformers
from agentlite.engine.load import Loaded

decode_graphs = LazyModule("unsloth.models._decode_graphs")
FEW_ROWS = 32  # with fewer a step takes a GPU as long: it waits for the launches of its kernels
# The owner of a column of the cache: the number of a sample (0, 1, ...), or one of these.
PADDING, PROMPT, NOBODY = -2, -1, -3
Step = tuple[int, int, int]  # of a sample: its last id, its number, how many ids came before


class SharedCache:
    """The key-value cache of the prompts that still have samples to extend, and the owner of each
    column.

    `owner` (prompts, columns) grows with the cache: PADDING or PROMPT in the first columns, then
    for each step one column for each place in the widest row of active samples: the sample's number
    there, or NOBODY. Two prompts of 3 and 2 ids with two samples each, of which the last one ends
    with its second token (P: PROMPT, -: PADDING, .: NOBODY). The token that ends a sample has no
    column, since nothing follows it:

        P P P | 0 1 | 0 1 | 0 1
        P P - | 0 1 | 0 . | 0 .
    """

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]]):
        """Reads the prompts, and what all of them begin with (a system turn, tools) only once.
        `logits`, (prompts, 1, vocabulary), follow their last ids.

        Padded on the right, they need no mask: a token sees those before it, which are never
        padding, and what padding leaves in the cache is seen by no sample. Without a mask PyTorch's
        causal attention is a quarter faster on a CPU.
        """
        self.model, device = loaded.model, loaded.model.device
        rows = {"input_ids": [[*prompt] for prompt in prompts]}
        batch = loaded.tokenizer.pad(
            rows, padding_side="right", return_attention_mask=True, return_tensors="pt"
        ).to(device)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        self.length = mask.sum(1)
        self.owner = torch.where(mask == 1, PROMPT, PADDING)
        self.cache = transformers.DynamicCache(config=self.model.config)
        cache_arguments = {"use_cache": True, "past_key_values": self.cache}
        # `shared`: how many ids all begin with; each prompt keeps one of its own
        equal_columns = takewhile(lambda column: len({*column}) == 1, zip(*prompts, strict=False))
        shared = min(len([*equal_columns]), min(map(len, prompts)) - 1) if len(prompts) > 1 else 0
        if shared:
            self.model(input_ids=ids[:1, :shared], logits_to_keep=1, **cache_arguments)
            self.cache.batch_repeat_interleave(len(prompts))
        # Logits are made at the last id of each prompt alone, not at every column. `ends` are these
        # columns, each once, as `logits_to_keep` takes them for all rows; `index` finds a prompt's
        # own among them: lengths 7, 5, 7 of which 2 are shared -> ends [2, 4], index [1, 0, 1].
        ends, index = (self.length - 1 - shared).unique(return_inverse=True)
        output = self.model(input_ids=ids[:, shared:], logits_to_keep=ends, **cache_arguments)
        self.logits = output.logits[torch.arange(len(prompts), device=device), index][:, None]

    def keep(self, rows: Sequence[int]) -> None:
        """Drops the other rows from the cache. Without any left it is not used again."""
        if 0 < len(rows) < len(self.owner):
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
        width, device = max(map(len, active)), self.owner.device
        rows = [[*row, *[(0, NOBODY, 0)] * (width - len(row))] for row in active]
        # `ids_before`: how many tokens of its own come before the last one, its position from the
        # prompt's end. Each is (prompts, width).
        ids, sample, ids_before = torch.tensor(rows, device=device).unbind(-1)
        # The new tokens get their columns first: a token sees itself. Several tokens of one row are
        # at the same step of different samples, so no causal order holds between them: the mask
        # alone, (prompts, new tokens, columns), says who sees what.
        self.owner = torch.cat([self.owner, sample], dim=1)
        owner = self.owner[:, None, :]
        is_seen = (owner == PROMPT) | (owner == sample[:, :, None])
        # as transformers wants it: 0 where seen, the least number elsewhere; one for all heads
        bias = torch.zeros(is_seen.shape, dtype=self.model.dtype, device=device)
        bias = bias.masked_fill(~is_seen, torch.finfo(self.model.dtype).min)[:, None]
        output = self.model(
            input_ids=ids,
            attention_mask=bias,
            # the position in the sample's own text, not the column: other samples do not count
            position_ids=self.length[:, None] + ids_before,
            past_key_values=self.cache,
            use_cache=True,
        )
        return [output.logits[row, : len(answers)] for row, answers in enumerate(active)]


class RowCache:
    """A row of the model's own cache for every sample: for models that obey no mask over columns.

    `rows`: the prompt and the sample of each row; none before the first step, when there is one for
    each prompt. `prompts`: the numbers of those with samples to extend.
    """

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]], new_tokens: int):
        """`logits`, (prompts, 1, vocabulary), follow the last ids; padding is on the left."""
        self.model, device = loaded.model, loaded.model.device
        rows = {"input_ids": [[*prompt] for prompt in prompts]}
        batch = loaded.tokenizer.pad(
            rows, padding_side="left", return_attention_mask=True, return_tensors="pt"
        ).to(device)
        ids, self.mask = batch["input_ids"], batch["attention_mask"]
        if unsloth_decodes(self.model):
            if self.model.config.model_type == "qwen2" and "qwen2" not in _tried_types:
                _try_graphs(loaded)
            decode_graphs.start_generation(ids.shape[1] + new_tokens)  # more columns are not kept
        self.prompts: Sequence[int] = range(len(prompts))
        self.rows: list[tuple[int, int]] = []
        self.cache: Any = None
        self.logits = self._read(ids, (self.mask.cumsum(-1) - 1).clamp(min=0))

    def _read(self, ids: Any, positions: Any) -> Any:
        output = self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
            return_dict=True,
        )
        self.cache = output.past_key_values
        return output.logits

    def keep(self, rows: Sequence[int]) -> None:
        """Of `prompts`. Their samples leave the cache in `step`, when enough are done."""
        self.prompts = [self.prompts[row] for row in rows]

    def step(self, active: Sequence[Sequence[Step]]) -> list[Any]:
        """The logits that follow the last token of each answer, (samples, vocabulary), in one
        tensor. Rows leave the cache, which is copied, when half of many are done.
        """
        answers = [
            (prompt, *step)
            for prompt, steps in zip(self.prompts, active, strict=True)
            for step in steps
        ]
        samples = [(prompt, sample) for prompt, _, sample, _ in answers]
        is_first, are_many = not self.rows, len(self.rows) > FEW_ROWS
        if is_first or (are_many and len(samples) <= len(self.rows) / 2):
            self._select([prompt for prompt, _ in samples] if is_first else self._indices(samples))
            self.rows = samples
        indices, device = self._indices(samples), self.mask.device
        # Rows that are done stay in the cache for a while: they are given id 0, and nobody looks at
        # their logits. No row sees another.
        ids = torch.zeros(len(self.rows), 1, dtype=torch.long, device=device)
        ids[indices, 0] = torch.tensor([last for _, last, _, _ in answers], device=device)
        self.mask = torch.cat([self.mask, torch.ones_like(ids)], dim=1)
        # The position is the number of ids before: padding on the left, masked, does not count.
        logits = self._read(ids, self.mask.sum(1, keepdim=True) - 1)[:, -1]
        return [logits if len(indices) == len(self.rows) else logits[indices]]

    def _indices(self, samples: Sequence[tuple[int, int]]) -> list[int]:
        indices = {row: number for number, row in enumerate(self.rows)}
        return [indices[sample] for sample in samples]

    def _select(self, rows: list[int]) -> None:
        """Leaves these rows in the cache, each as often as it is named."""
        index = torch.tensor(rows, device=self.mask.device)
        self.mask = self.mask[index]
        if hasattr(self.cache, "reorder_cache"):
            self.cache.reorder_cache(index)
            return
        self.cache = _SelectedRows(list(self.cache), index)
        if self.rows:  # Unsloth's decoding goes on in buffers of its own, until they are taken away
            decode_graphs.release_for_training(self.model)


class _SelectedRows(Sequence[Any]):
    """Some rows of a cache, for Unsloth's decoding: it copies them into its buffers layer by layer.
    A layer is let go when the next one is read, so that no second cache is ever whole.
    """

    def __init__(self, layers: list[Any], rows: Any):
        self.layers, self.rows = layers, rows

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, number: Any) -> Any:
        if number:
            self.layers[number - 1] = None
        return tuple(tensor[self.rows] for tensor in self.layers[number])


def unsloth_decodes(model: Any) -> bool:
    """Whether Unsloth's own decoding samples."""
    return on_gpu() and hasattr(model, "for_inference")


_tried_types: set[str] = set()  # of models


def _try_graphs(loaded: Loaded) -> None:
    """Unsloth launches a decoding step of Llama and Qwen3 as a whole, by CUDA graphs. Its authors
    have not tried that with Qwen2, which has the attention of Llama: here it is tried on two short
    prompts, and used where their logits stay the same to the last bit.
    """
    model_type = loaded.model.config.model_type
    _tried_types.add(model_type)

    def decode_steps() -> Any:
        cache = RowCache(loaded, [[5, 6, 7], [8, 9, 10, 11, 12]], 4)
        logits = [cache.step([[(20 + n, 0, n)], [(30 + n, 0, n)]])[0] for n in range(4)]
        decode_graphs.release_for_training(loaded.model)
        return torch.stack(logits)

    eager = decode_steps()
    decode_graphs._SUPPORTED_MODEL_TYPES.add(model_type)
    try:
        is_same = torch.equal(decode_steps(), eager)
    except RuntimeError:
        is_same = False
    if not is_same:
        decode_graphs._SUPPORTED_MODEL_TYPES.discard(model_type)
