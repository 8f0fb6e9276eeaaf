"""The bytes of every term of GPU memory, and the moment at which they are most.

Fixed terms stay from the first step to the last. On top comes the largest of three moments: the
backward pass (a block is computed again), the loss, and sampling. Bytes are those of PyTorch's
allocations; `overhead` stands for the rest.
"""

from typing import Literal, NamedTuple

from agentlite.engine.planning.model_shape import Shape

GIB = 2**30
MARGIN = 0.08  # this share on top of what is planned must fit as well
# 16 bit is taken only with this share to spare, for one row: no published run needed 20 % more than
# is planned for it. A micro-batch that is too large is halved; a precision stays.
CAUTION = 0.2
# bytes per parameter; NF4 with doubly quantised scales: 4 bit, 8 for 64 of them, 32 for 64 * 256
WEIGHT_BYTES = {4: (4 + 8 / 64 + 32 / (64 * 256)) / 8, 8: 1.0, 16: 2.0, 32: 4.0}
OPTIMIZER_BYTES = {"adamw_8bit": 2, "adamw_torch": 8}
FUSED_POSITIONS = 1024  # positions whose logits a fused loss holds at once, in float32
# bytes per logit where the loss is not fused: bf16, its float32 copy, the softmax and the gradient
LOGIT_BYTES = 16
SAMPLING_SHARE = 0.25  # of a card, for the rows that Unsloth's decoding extends together
SHARE_IN_TRAINING = 0.5  # likewise, of what training leaves of a card
ROW_TOKENS = 16384  # of such rows by a model whose memory cannot be planned
# columns by which Unsloth's decoding lets the cache of every row grow at once, and their multiples
GROWTH, BUCKET = 512, 256
# bytes per logit that a token is drawn from: 16 bit, float32, the probabilities, and two doubles
DRAWN_LOGIT_BYTES = 26
SMALL_CARD = 12 * GIB
PREFILL_TOKENS = 4096  # tokens that Unsloth lets vLLM read at once, with a cache of up to 12 GiB


class Regime(NamedTuple):
    """What an engine keeps. `checkpoints`: the inputs of blocks wait for the backward pass in host
    memory, or on the GPU; or all that blocks computed waits, and nothing is computed again.
    `fused`: the loss never has all logits. `upcast`: see `fixed_terms`. `cache_copies`: of the
    key-value cache while it grows. `excess`: of activations beyond those counted: on a CPU the
    scores of attention between padded rows, and what malloc holds back."""

    checkpoints: Literal["offloaded", "kept", "none"]
    fused: bool = True
    upcast: bool = False
    cache_copies: float = 1.0
    overhead: float = GIB
    excess: float = 1.0


REGIMES = {
    "unsloth": Regime("offloaded"),
    "hf": Regime("kept", upcast=True, cache_copies=2),
    "cpu": Regime("none", overhead=0.9 * GIB, excess=1.5),
}


class Load(NamedTuple):
    """What is in memory. A micro-batch has `rows` of `length` tokens; the cache holds
    `sampled_answers`, `cached_columns` in all, after `prompt_tokens` were read. 0: that does not
    happen."""

    shape: Shape
    regime: Regime
    bits: int
    lora_r: int = 0
    targets: tuple[str, ...] = ("all-linear",)
    optimizer: str = "adamw_8bit"
    full: bool = False
    reference: bool = False
    rows: int = 0
    length: int = 0
    sampled_answers: int = 0
    cached_columns: int = 0
    prompt_tokens: int = 0
    room: int = 0  # for so many answers Unsloth's decoding has room on the card at once
    vllm: bool = False  # the cache is that of a vLLM engine, which shares the weights and stays
    standby: bool = False  # that engine's cache and graphs are there only while it samples
    in_share: bool = False  # the weights lie in a share of the card that is taken for vLLM

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def value_bytes(self) -> int:
        """Bytes of an activation."""
        return 4 if self.bits == 32 else 2

    @property
    def trained_parameters(self) -> int:
        """Parameters that training changes."""
        if self.full:
            return self.shape.parameters
        return adapter_parameters(self.shape, self.lora_r, self.targets)

    @property
    def unpacked_bytes(self) -> float:
        """The largest matrix of a block in 16 bit, where it is stored in fewer."""
        return 2.0 * self.shape.hidden * self.shape.intermediate if self.bits < 16 else 0.0


def adapter_parameters(shape: Shape, rank: int, targets: tuple[str, ...]) -> int:
    """`targets` as in lora_target_modules."""
    names = {*targets}
    if any(target.startswith("all") for target in targets):
        names |= {*shape.matrix_shapes}
    # a layer of 896 inputs and 4,864 outputs has two matrices, 896 x rank and rank x 4,864
    blocks = sum(sum(size) for name, size in shape.matrix_shapes.items() if name in names)
    end_layers = bool({"all", "embed_tokens"} & names) + ("lm_head" in names)
    return rank * (shape.layers * blocks + end_layers * (shape.vocab + shape.hidden))


def fixed_terms(load: Load) -> dict[str, float]:
    """What stays from the first step to the last."""
    shape, parameters = load.shape, load.trained_parameters if load.rows else 0
    # PEFT turns what is not quantised into float32 before it trains on quantised weights
    is_upcast = load.bits < 16 and load.regime.upcast and load.rows
    embedding_bytes = 4 if load.bits == 32 or is_upcast else 2
    weights = shape.linear * WEIGHT_BYTES[load.bits] + shape.embeddings * embedding_bytes
    if load.in_share:
        weights = 0.0
    adapter = 0.0 if load.full else 4.0 * load.trained_parameters  # always in float32
    return {
        "weights": weights,
        "adapter": adapter,
        "gradients": parameters * (load.value_bytes if load.full else 4),
        "optimizer": float(parameters * OPTIMIZER_BYTES[load.optimizer]),
        # the frozen start of dpo and grpo: a copy of the adapter, or of a whole model
        "reference": (weights if load.full else adapter) if load.reference else 0.0,
        "teacher": shape.teacher * WEIGHT_BYTES[load.bits],  # it is loaded as the student is
        # the CUDA context and workspaces; on a CPU, Python and its libraries
        "overhead": load.regime.overhead,
        **({} if load.standby else _engine_terms(load)),
    }


def _engine_terms(load: Load) -> dict[str, float]:
    """The memory of a vLLM engine beyond its weights: a forward pass over PREFILL_TOKENS, its
    graphs as Unsloth estimates them, the adapter once more, in 16 bit, and its cache.
    """
    if not load.vllm:
        return {}
    prefill = PREFILL_TOKENS * load.value_bytes * load.shape.read_values
    graphs = min(GIB, max(0.15 * GIB, 172 * 4 * load.shape.hidden * load.shape.layers))
    adapter = 0 if load.full or not load.rows else 2.0 * load.trained_parameters
    return {"vllm": load.unpacked_bytes + prefill + graphs + adapter, "kv_cache": _kv_bytes(load)}


def _kv_bytes(load: Load) -> float:
    """Keys and values of every column of the cache; of a vLLM engine a twentieth more, as Unsloth
    counts on 95 % of it."""
    per_token = load.shape.keys_and_values * load.value_bytes
    return load.cached_columns * per_token * (1 / 0.95 if load.vllm else load.regime.cache_copies)


def vllm_total(load: Load) -> float:
    """The share of the card that an engine is given, in bytes: its weights are the trainer's."""
    fixed = fixed_terms(load)
    return fixed["weights"] + fixed["overhead"] + sum(_engine_terms(load).values())


def fixed_bytes(load: Load) -> float:
    return sum(fixed_terms(load).values())


def moment_terms(load: Load) -> dict[str, dict[str, float]]:
    """The terms of each moment that comes on top of the fixed ones."""
    shape, tokens, regime = load.shape, load.tokens, load.regime
    terms_by_moment: dict[str, dict[str, float]] = {}
    if load.rows:
        # the activations of one block: norms and residuals, queries, keys, values, attention, and
        # five times the MLP's width
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        values = 4 * shape.hidden + 3 * queries + 2 * keys + 5 * shape.intermediate
        block = float(tokens * load.value_bytes * values)
        # what the forward pass leaves for the backward pass, and what that computes again
        if regime.checkpoints == "none":
            saved, recomputed = shape.layers * block * regime.excess, load.unpacked_bytes
        else:
            inputs = tokens * shape.hidden * load.value_bytes  # of one block
            saved = float(inputs * (2 if regime.checkpoints == "offloaded" else shape.layers))
            recomputed = load.unpacked_bytes + block
        # all logits, or those of a thousand positions at a time with the gradient of the hidden
        # states; of a teacher as many
        logits = float(tokens * shape.vocab * LOGIT_BYTES)
        if shape.teacher:
            logits = float(4 * tokens * shape.hidden + 8 * FUSED_POSITIONS * shape.vocab)
        elif regime.fused:
            positions = min(tokens, FUSED_POSITIONS)
            logits = float(4 * tokens * shape.hidden + 4 * positions * shape.vocab)
        terms_by_moment["backward"] = {"activations": saved + recomputed}
        terms_by_moment["loss"] = {"activations": saved, "logits": logits}
    if load.standby:
        terms_by_moment["sampling"] = _engine_terms(load)
    elif load.cached_columns and not load.vllm:
        # a block over whole prompts without gradients; then, larger or not, the whole cache
        column = load.prompt_tokens * load.value_bytes  # bytes for one value of each token
        reading = load.unpacked_bytes + column * shape.read_values
        drawing = load.unpacked_bytes + DRAWN_LOGIT_BYTES * load.sampled_answers * shape.vocab
        terms_by_moment["sampling"] = max(
            {"activations": reading, "kv_cache": column * shape.keys_and_values},
            {"activations": drawing, "kv_cache": _kv_bytes(load)},
            key=lambda terms: sum(terms.values()),
        )
    return terms_by_moment


def host_bytes(load: Load) -> float:
    """What waits in host memory for the backward pass: the input of every block."""
    if load.regime.checkpoints != "offloaded":
        return 0.0
    return float(load.shape.layers * load.tokens * load.shape.hidden * load.value_bytes)


class Memory(NamedTuple):
    """Bytes by term at the moment that takes most, the total of each moment, what is in memory, and
    the bytes that there are for it.
    """

    terms: dict[str, float]
    moment: str
    moments: dict[str, float]
    load: Load
    capacity: float

    @property
    def total(self) -> float:
        return sum(self.terms.values())

    @property
    def fits(self) -> bool:
        return fits(self.total, self.capacity)

    @property
    def fits_for_good(self) -> bool:
        """With `CAUTION` to spare in training. What is sampled together shrinks if it must."""
        totals = [total for name, total in self.moments.items() if name != "sampling"]
        return self.fits and fits(max(totals or self.moments.values()), self.capacity, CAUTION)


def memory(load: Load, capacity: float = 0.0) -> Memory:
    """The terms that are not zero add up to the total."""
    fixed, by_moment = fixed_terms(load), moment_terms(load)
    fixed_total = sum(fixed.values())
    totals = {name: fixed_total + sum(terms.values()) for name, terms in by_moment.items()}
    moment = max(totals, key=totals.__getitem__)
    terms = {name: value for name, value in {**fixed, **by_moment[moment]}.items() if value}
    return Memory(terms, moment, totals, load, capacity)


def fits(total: float, capacity: float, margin: float = MARGIN) -> bool:
    """Both in bytes."""
    return total * (1 + margin) <= capacity


def row_columns(prompt: int, new_tokens: int) -> int:
    """Columns of the cache that a row of Unsloth's decoding takes when it takes most: those of its
    buffers; where they grow, before beside after.
    """

    # as Unsloth 2026.10.9 makes them, with room for GROWTH more: 1,000 columns -> 1,536
    def buffer_columns(columns: int) -> int:
        return -(-(columns + GROWTH + 1) // BUCKET) * BUCKET

    # With more new tokens than the first buffers have room for, the last growth copies buffers that
    # are GROWTH smaller into those that hold every column: both are there at once.
    if new_tokens > GROWTH:
        return 2 * buffer_columns(prompt + new_tokens) - GROWTH
    return buffer_columns(prompt)


def rows_at_once(
    shape: Shape, card: float, prompt: int, new_tokens: int, samples: int, fixed: float = 0.0
) -> int:
    """How many rows Unsloth's decoding extends together by up to `new_tokens`, `samples` of each
    prompt, on a card of `card` bytes, of which training keeps `fixed`. It goes by the card, the
    model and the settings alone, so that a run that is carried on has the batches of one that was
    not stopped.
    """
    # two bytes a value; reading holds a prompt once for all its samples, extending a row for each
    limit = SHARE_IN_TRAINING * (card - fixed) if fixed else SAMPLING_SHARE * card
    prompt_bytes = 2 * prompt / samples * (shape.read_values + shape.keys_and_values)
    columns = prompt / samples + row_columns(prompt, new_tokens)
    row_bytes = 2 * columns * shape.keys_and_values
    return max(1, int(limit / max(prompt_bytes, row_bytes + DRAWN_LOGIT_BYTES * shape.vocab)))
