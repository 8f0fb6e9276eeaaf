"""The bytes of every term of GPU memory, and the moment at which they are most.

Fixed terms stay from the first step to the last. On top comes the largest of three moments: the
backward pass (a block is computed again), the loss, and sampling. Bytes are those of PyTorch's
allocations; `overhead` stands for the rest.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from agentlite.engine.planning.model_shape import Shape

GIB = 2**30
MARGIN = 0.08  # this share on top of what is planned must fit as well
# bytes per parameter; NF4 with doubly quantised scales: 4 bit, 8 for 64 of them, 32 for 64 * 256
WEIGHT = {4: (4 + 8 / 64 + 32 / (64 * 256)) / 8, 8: 1.0, 16: 2.0, 32: 4.0}
OPTIMIZER = {"adamw_8bit": 2, "adamw_torch": 8}
FUSED_LOGITS = 1024  # positions whose logits a fused loss holds at once, in float32
# bytes per logit where the loss is not fused: bf16, its float32 copy, the softmax and the gradient
LOGIT = 16
# of a card, for the cache and the prompts of one call of Unsloth's `generate`: on 12 GiB 17,000
# tokens of a 7B model, beside its weights in 4 bit
SAMPLING = 0.25
IN_TRAINING = 0.5  # likewise, of what training leaves of a card
ROW_TOKENS = 16384  # of such a call by a model whose memory cannot be planned
SMALL_CARD = 12 * GIB
PREFILL = 4096  # tokens that Unsloth lets vLLM read at once, with a cache of up to 12 GiB


class Regime(NamedTuple):
    """What an engine keeps. `checkpoints`: the inputs of blocks wait for the backward pass in host
    memory, or on the GPU; or all that blocks computed waits, and nothing is computed again.
    `fused`: the loss never has all logits. `upcast`: see `weights`. `cache_copies`: of the
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
    """What is in memory. A micro-batch has `rows` of `length` tokens; the cache holds `sampled`
    answers, `cached` tokens in all, after prompts of `prompted` tokens were read. 0: that does not
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
    sampled: int = 0
    cached: int = 0
    prompted: int = 0
    vllm: bool = False  # the cache is that of a vLLM engine, which shares the weights and stays
    in_share: bool = False  # the weights lie in a share of the card that is taken for vLLM

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def width(self) -> int:
        """Bytes of an activation."""
        return 4 if self.bits == 32 else 2


def weights(load: Load) -> float:
    """PEFT turns what is not quantised into float32 before it trains on quantised weights."""
    if load.in_share:
        return 0.0
    upcast = load.bits < 16 and load.regime.upcast and load.rows
    embedding = 4 if load.bits == 32 or upcast else 2
    return load.shape.linear * WEIGHT[load.bits] + load.shape.embeddings * embedding


def adapter(load: Load) -> float:
    """In float32, whatever the weights are in."""
    return 0.0 if load.full else 4.0 * adapter_parameters(load.shape, load.lora_r, load.targets)


def gradients(load: Load) -> float:
    return trained(load) * (load.width if load.full else 4) if load.rows else 0.0


def optimizer(load: Load) -> float:
    return float(trained(load) * OPTIMIZER[load.optimizer]) if load.rows else 0.0


def reference(load: Load) -> float:
    """The frozen start of dpo and grpo: a copy of the adapter, or of a whole model."""
    return (weights(load) if load.full else adapter(load)) if load.reference else 0.0


def teacher(load: Load) -> float:
    """The weights of a teacher, which are loaded as those of the student are. One that was asked
    before and left the memory counts by how much larger it is: its forward pass needs no more.
    """
    weight = load.shape.teacher * WEIGHT[load.bits]
    return max(0.0, weight - weights(load)) if load.shape.teacher_first else weight


def overhead(load: Load) -> float:
    """The CUDA context and workspaces; on a CPU, Python and its libraries."""
    return load.regime.overhead


def checkpoints(load: Load) -> float:
    """What the forward pass leaves for the backward pass."""
    inputs = load.tokens * load.shape.hidden * load.width  # of one block
    if load.regime.checkpoints == "none":
        return load.shape.layers * block(load) * load.regime.excess
    return float(inputs * (2 if load.regime.checkpoints == "offloaded" else load.shape.layers))


def block(load: Load) -> float:
    """The activations of one block: norms and residuals, queries, keys, values, attention, and five
    times the MLP's width.
    """
    shape = load.shape
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return float(
        load.tokens
        * load.width
        * (4 * shape.hidden + 3 * queries + 2 * keys + 5 * shape.intermediate)
    )


def recomputed(load: Load) -> float:
    """A block computed again, with one of its matrices unpacked from 4 or 8 bit."""
    return unpacked(load) + (block(load) if load.regime.checkpoints != "none" else 0.0)


def unpacked(load: Load) -> float:
    """The largest matrix of a block in 16 bit, where it is stored in fewer."""
    return 2.0 * load.shape.hidden * load.shape.intermediate if load.bits < 16 else 0.0


def logits(load: Load) -> float:
    """All of them, or those of a thousand positions at a time with the gradient of the hidden
    states; of a teacher as many.
    """
    if load.shape.teacher:
        return float(4 * load.tokens * load.shape.hidden + 8 * FUSED_LOGITS * load.shape.vocab)
    if not load.regime.fused:
        return float(load.tokens * load.shape.vocab * LOGIT)
    return float(
        4 * load.tokens * load.shape.hidden + 4 * min(load.tokens, FUSED_LOGITS) * load.shape.vocab
    )


def cache(load: Load) -> float:
    """Keys and values of every token in the cache; of a vLLM engine a twentieth more, as Unsloth
    counts on 95 % of it."""
    per_token = 2 * load.shape.layers * load.shape.kv_heads * load.shape.head_dim * load.width
    return load.cached * per_token * (1 / 0.95 if load.vllm else load.regime.cache_copies)


def reading(load: Load) -> float:
    """A block over whole prompts without gradients, and two float32 copies of the last logits of
    every answer.
    """
    shape = load.shape
    prompts = load.prompted * load.width * (2 * shape.hidden + 3 * shape.intermediate)
    return unpacked(load) + prompts + 8 * load.sampled * shape.vocab


def rows_at_once(shape: Shape, card: float, length: int, fixed: float = 0.0) -> int:
    """How many rows of `length` tokens, prompt and answer, one call of Unsloth's `generate` samples
    on a card of `card` bytes, of which training keeps `fixed`. It goes by the card, the model
    and the settings alone, so that a run that is carried on has the batches of one that was not
    stopped.
    """
    keys_and_values = 2 * shape.layers * shape.kv_heads * shape.head_dim
    read = 2 * shape.hidden + 3 * shape.intermediate
    room = IN_TRAINING * (card - fixed) if fixed else SAMPLING * card
    return max(1, int(room / (2 * (keys_and_values + read))) // length)


def vllm(load: Load) -> float:
    """The memory of an engine beyond weights and cache: a forward pass over PREFILL tokens, its
    graphs as Unsloth estimates them, and the adapter once more, in 16 bit.
    """
    if not load.vllm:
        return 0.0
    shape = load.shape
    prefill = PREFILL * load.width * (2 * shape.hidden + 3 * shape.intermediate)
    graphs = min(GIB, max(0.15 * GIB, 172 * 4 * shape.hidden * shape.layers))
    return unpacked(load) + prefill + graphs + adapter(load) / 2


def vllm_total(load: Load) -> float:
    """The share of the card that an engine is given, in bytes: its weights are the trainer's."""
    return weights(load) + overhead(load) + vllm(load) + cache(load)


Term = Callable[[Load], float]
FIXED: dict[str, Term] = {
    "weights": weights,
    "adapter": adapter,
    "gradients": gradients,
    "optimizer": optimizer,
    "reference": reference,
    "teacher": teacher,
    "overhead": overhead,
    "vllm": vllm,
    "kv_cache": lambda load: cache(load) if load.vllm else 0.0,
}
MOMENTS: dict[str, dict[str, Term]] = {
    "backward": {"activations": lambda load: checkpoints(load) + recomputed(load)},
    "loss": {"activations": checkpoints, "logits": logits},
    "sampling": {"activations": reading, "kv_cache": cache},
}


def fixed_bytes(load: Load) -> float:
    """What stays from the first step to the last."""
    return sum(term(load) for term in FIXED.values())


class Memory(NamedTuple):
    """Bytes by term at the moment that takes most, and the total of each moment."""

    terms: dict[str, float]
    moment: str
    moments: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.terms.values())


def memory(load: Load) -> Memory:
    """The terms that are not zero add up to the total."""
    fixed = {name: term(load) for name, term in FIXED.items()}
    samples = load.cached and not load.vllm
    happening = [name for name in MOMENTS if (samples if name == "sampling" else load.rows)]
    passing = {name: {key: term(load) for key, term in MOMENTS[name].items()} for name in happening}
    moments = {name: sum(fixed.values()) + sum(terms.values()) for name, terms in passing.items()}
    moment = max(moments, key=moments.__getitem__)
    terms = {name: value for name, value in {**fixed, **passing[moment]}.items() if value}
    return Memory(terms, moment, moments)


def fits(total: float, capacity: float, margin: float = MARGIN) -> bool:
    """Both in bytes."""
    return total * (1 + margin) <= capacity


def trained(load: Load) -> int:
    return (
        load.shape.parameters
        if load.full
        else adapter_parameters(load.shape, load.lora_r, load.targets)
    )


def adapter_parameters(shape: Shape, rank: int, targets: tuple[str, ...]) -> int:
    """`targets` as in lora_target_modules."""
    matrix_shapes: Mapping[str, tuple[int, int]] = shape.matrix_shapes
    names: set[str] = set()
    for target in targets:
        names |= set(matrix_shapes) if target.startswith("all") else {target}
    ends = bool({"all", "embed_tokens"} & set(targets)) + ("lm_head" in targets)
    embedded = ends * (shape.vocab + shape.hidden)
    blocks = sum(sum(matrix_shapes[name]) for name in names if name in matrix_shapes)
    return rank * (shape.layers * blocks + embedded) if rank else 0
