"""A model's name or config.json -> the numbers that memory and time depend on, without weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.errors import MODEL, UserError, suggest
from agentlite.workspace import hub
from agentlite.workspace.lookup import is_stage, lineage, read_plan

# facts from the config.json files of models that profiles name
PUBLISHED = Path(__file__).with_name("published.json")
NEEDED_FIELDS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
)
COUNTS = (*NEEDED_FIELDS, "num_key_value_heads", "head_dim", "max_position_embeddings")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


class Shape(NamedTuple):
    """A decoder with a gated MLP: Llama, Mistral, Qwen2, Qwen3, Gemma and their like."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    max_positions: int
    teacher: int = 0  # parameters of a model beside it, that it learns from

    @property
    def matrix_shapes(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each linear layer of a block, by its name."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def linear(self) -> int:
        """Parameters of the blocks' linear layers; norms and biases are too few to count."""
        sizes = self.matrix_shapes.values()
        return self.layers * sum(inputs * outputs for inputs, outputs in sizes)

    @property
    def embeddings(self) -> int:
        """Parameters of the embeddings, and of the head where it has its own weights."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        return self.linear + self.embeddings

    @property
    def keys_and_values(self) -> int:
        """Values of a token in the key-value cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def read_values(self) -> int:
        """Values that a block holds of a token that is read without gradients."""
        return 2 * self.hidden + 3 * self.intermediate


def shape_under(settings: Any, model: str, run: Path) -> Shape:
    """Of a model, a stage or a base, with the teacher that `settings` name, if they name one; where
    that is not there yet, it counts as large as the model itself. Raises UserError 5 or 8.
    """
    shape, teacher = find_shape(base_of(model, run)), getattr(settings, "teacher", "")
    if not teacher:
        return shape
    try:
        return shape._replace(teacher=find_shape(base_of(teacher, run)).parameters)
    except UserError:
        return shape._replace(teacher=shape.parameters)


def shape_of(config: Mapping[str, Any], location: str) -> Shape:
    """`config`: the content of a config.json. Raises UserError 5 for a missing field, for one that
    has a number for each layer, and for experts.
    """
    text_config = config.get("text_config")  # of the decoder of a model that takes images too
    decoder = text_config if isinstance(text_config, dict) else config
    experts = [decoder.get(key) or 1 for key in EXPERTS]
    # a list: a number for each layer
    if any(isinstance(count, list) or int(count) > 1 for count in experts):
        problem = "is a mixture of experts, which cannot be planned for."
        raise UserError(problem, "Take a dense model.", location=location, exit_code=MODEL)
    problems = [f"has no {key}" for key in NEEDED_FIELDS if decoder.get(key) is None]
    # the config.json of Gemma 3n has a list of widths, one for each block
    problems += [f"has more than one {key}" for key in COUNTS if isinstance(decoder.get(key), list)]
    if problems:
        fix = f"Name the config.json of a decoder; needed: {', '.join(NEEDED_FIELDS)}."
        raise UserError(f"{problems[0]}.", fix, location=location, exit_code=MODEL)
    layers, hidden, heads, intermediate, vocab = (int(decoder[key]) for key in NEEDED_FIELDS)
    is_gemma = str(decoder.get("model_type", "")).startswith("gemma")
    return Shape(
        layers,
        hidden,
        heads,
        int(decoder.get("num_key_value_heads") or heads),
        int(decoder.get("head_dim") or hidden // heads),
        intermediate,
        vocab,
        bool(decoder.get("tie_word_embeddings", is_gemma)),
        int(decoder.get("max_position_embeddings") or 2**31),
    )


def find_shape(base: str) -> Shape:
    """Of a base model: a folder, a published name, or a hub id. Raises UserError 5 or 8."""
    if base and Path(base).is_dir():
        return read_shape(Path(base) / "config.json")
    configs, model = json.loads(PUBLISHED.read_bytes()), hub.hub_id(base)
    if model in configs:
        return shape_of(configs[model], model)
    if not hub.is_hub_id(base):  # the hub has no such names, and need not be asked
        choices = f"Known: {', '.join(configs)}, a folder, or another hub id."
        raise UserError(
            f"there is no model '{base}'.",
            f"{suggest(base, configs, fallback='')} {choices}".lstrip(),
            location="--model",
            exit_code=MODEL,
        )
    return read_shape(hub.hub_file(base, hub.CONFIG))


def read_shape(path: Path) -> Shape:
    """The shape in a config.json. Raises UserError 5."""
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot be read: {error}.",
            "Name a model's config.json.",
            location=str(path),
            exit_code=MODEL,
        ) from error
    return shape_of(config, str(path))


def base_of(model: str, run: Path) -> str:
    """The base model under a stage, by its name in the workspace or its path; else the name
    itself.
    """
    folder = Path(model)
    if model and is_stage(folder):
        return base_of(str(read_plan(folder).settings["model"]), folder.parent)
    return lineage(model, run)[0]
