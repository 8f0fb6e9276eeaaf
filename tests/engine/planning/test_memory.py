"""The size of an adapter, and what fits; test_planning.py compares memory with what others saw."""

import json

import pytest

from agentlite.core.errors import UserError
from agentlite.engine.planning.memory import adapter_parameters, fits
from agentlite.engine.planning.model_shape import PUBLISHED, Shape, shape_of

# Inputs and outputs of each linear layer of a block, added up, are what a rank of 1 has:
# (10 + 20) + 2 * (10 + 4) + (20 + 10) + 3 * (10 + 30) = 208.
APART = Shape(3, 10, 5, 1, 4, 30, 50, False, 4096)


@pytest.mark.parametrize(
    ("targets", "parameters"),
    [
        (("q_proj",), 3 * 30),
        (("k_proj", "down_proj"), 3 * (14 + 40)),
        (("all-linear",), 3 * 208),
        (("all",), 3 * 208 + 60),
        (("embed_tokens",), 60),
        (("v_proj", "v_proj"), 3 * 14),
    ],
)
def test_an_adapter_has_the_layers_that_are_named_each_once(
    targets: tuple[str, ...], parameters: int
) -> None:
    assert adapter_parameters(APART, 4, targets) == 4 * parameters
    assert adapter_parameters(APART, 0, targets) == 0


def test_a_total_fits_with_8_percent_to_spare() -> None:
    assert fits(100, 108) and fits(0, 0) and not fits(100, 107.9)


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", None), ("intermediate_size", [8, 16]), ("num_key_value_heads", [1, 2])],
)
def test_a_model_without_one_number_for_all_layers_is_refused(field: str, value: object) -> None:
    config = json.loads(PUBLISHED.read_bytes())["smollm2-135m"]
    assert shape_of(config, "m").layers == config["num_hidden_layers"]
    with pytest.raises(UserError, match=field):
        shape_of({**config, field: value}, "m")
    with pytest.raises(UserError, match="mixture of experts"):
        shape_of({**config, field: value, "num_experts": [4, 8]}, "m")
