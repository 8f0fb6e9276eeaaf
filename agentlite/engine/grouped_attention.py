"""Attention of a step of decoding in which heads that share keys read them once, without a copy.

transformers copies keys and values once for every query head before it calls PyTorch's attention
with a mask. With three heads to a key and a long prompt that copy is most of a step. Here the heads
of a group stand beside each other as so many queries of one head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

NAME = "agentlite_grouped"
# passed by models whose attention does more than weigh values by a softmax of products
BEYOND = ("position_bias", "s_aux", "softcap", "sliding_window")


@contextmanager
def grouped_queries(model: Any) -> Iterator[None]:
    """Inside, the model attends in groups, where it would use PyTorch's attention (`sdpa`)."""
    _register()
    config = model.config.get_text_config()
    before = config._attn_implementation
    if before == "sdpa":
        config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


@cache
def _register() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)


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
        found: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **others
        )
        return found
    # head number k * of_key + i reads key head k: the heads of a key are neighbours
    attended = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(rows, key.shape[1], of_key * tokens, size),
        key,
        value,
        attn_mask=attention_mask.repeat(1, 1, of_key, 1),
        dropout_p=dropout,
        scale=scaling,
    )
    return attended.reshape(rows, heads, tokens, -1).transpose(1, 2).contiguous(), None
