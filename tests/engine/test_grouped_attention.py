"""Attention in groups gives what transformers' own gives, for every shape, and copies no keys."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.engine import grouped_attention
from agentlite.engine.grouped_attention import NAME, attend, grouped_queries

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def case(heads: int, of_key: int, tokens: int, columns: int, rows: int = 3) -> tuple[Any, ...]:
    """Query, key, value and a mask in which every token sees some columns, and not all."""
    draw = torch.Generator().manual_seed(heads * 1000 + tokens * 100 + columns)
    query = torch.randn(rows, heads, tokens, 8, generator=draw)
    key = torch.randn(rows, heads // of_key, columns, 8, generator=draw)
    value = torch.randn(rows, heads // of_key, columns, 8, generator=draw)
    seen = torch.rand(rows, 1, tokens, columns, generator=draw) < 0.6
    seen[..., 0] = True
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    return query, key, value, mask


def by_hand(query: Any, key: Any, value: Any, mask: Any, scaling: float) -> Any:
    """(rows, tokens, heads, size)"""
    of_key = query.shape[1] // key.shape[1]
    heads = []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // of_key].transpose(1, 2) * scaling
        if mask is not None:
            scores = scores + mask[:, 0]
        heads.append(scores.softmax(-1) @ value[:, head // of_key])
    return torch.stack(heads, 2)


@pytest.mark.parametrize("of_key", [1, 2, 3, 6])
@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize("columns", [1, 7, 40])
@pytest.mark.parametrize("masked", [True, False])
def test_each_head_reads_the_keys_of_its_group(
    of_key: int, tokens: int, columns: int, masked: bool
) -> None:
    query, key, value, mask = case(6, of_key, tokens, columns)
    module = SimpleNamespace(num_key_value_groups=of_key, is_causal=False, training=False)
    found, weights = attend(module, query, key, value, mask if masked else None, scaling=0.3)
    expected = by_hand(query, key, value, mask if masked else None, 0.3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert weights is None and found.is_contiguous()


def test_keys_are_not_copied_for_each_head(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def watched(query: Any, key: Any, value: Any, **options: Any) -> Any:
        read.append((key, value))
        return attention(query, key, value, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    query, key, value, mask = case(6, 3, 1, 40)
    attend(SimpleNamespace(num_key_value_groups=3), query, key, value, mask)
    ((keys, values),) = read
    assert keys.data_ptr() == key.data_ptr() and values.data_ptr() == value.data_ptr()


@pytest.mark.parametrize("name", grouped_attention.BEYOND)
def test_what_it_cannot_do_is_left_to_transformers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.integrations import sdpa_attention

    given: list[dict[str, Any]] = []

    def theirs(*_: Any, **others: Any) -> tuple[str, None]:
        given.append(others)
        return "theirs", None

    monkeypatch.setattr(sdpa_attention, "sdpa_attention_forward", theirs)
    query, key, value, mask = case(6, 3, 1, 40)
    module = SimpleNamespace(num_key_value_groups=3)
    assert attend(module, query, key, value, mask, **{name: 1})[0] == "theirs"
    assert given == [{name: 1}]
    assert attend(module, query, key, value, mask, **{name: None})[0] != "theirs"


@pytest.mark.parametrize(("before", "inside"), [("sdpa", NAME), ("eager", "eager")])
def test_only_pytorchs_attention_is_exchanged_and_only_inside(before: str, inside: str) -> None:
    config = SimpleNamespace(_attn_implementation=before)
    model = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: config))
    used = []

    def fails() -> None:
        with grouped_queries(model):
            used.append(config._attn_implementation)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert used == [inside]
    assert config._attn_implementation == before


# classes of transformers whose heads share keys, with what else makes their attention their own
CLASSES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "attn_logit_softcapping": 2.0, "layer_types": ["full_attention"] * 2},
    "phi3": {"pad_token_id": 0},
    "cohere": {},
    "granite": {"attention_multiplier": 0.7},
    "olmo2": {},
    "smollm3": {"pad_token_id": 0, "use_sliding_window": False},
    "glm": {"head_dim": 8, "pad_token_id": 0},
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_of_models_says_the_same_in_groups(name: str) -> None:
    """Steps of decoding behind prompts with padding, of models nobody here wrote."""
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

    from agentlite.engine.growing_cache import growing_cache

    shape = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 99}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 2}
    config = AutoConfig.for_model(name, **{**shape, **heads, **CLASSES[name]})
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(3, 99, (3, 11))
    seen = torch.ones(3, 11, dtype=torch.long)
    seen[1, :4] = 0
    positions = (seen.cumsum(1) - 1).clamp(min=0)

    def logits(cache: Any, *, grouped: bool) -> Any:
        with torch.inference_mode():
            model(ids, attention_mask=seen, position_ids=positions, past_key_values=cache)
            found, mask = [], seen
            for step in range(3):
                mask = torch.cat([mask, torch.ones(3, 1, dtype=torch.long)], 1)
                bias = torch.zeros(mask.shape).masked_fill(mask == 0, torch.finfo().min)
                with grouped_queries(model) if grouped else nullcontext():
                    found.append(
                        model(
                            ids[:, step : step + 1],
                            attention_mask=bias[:, None, None],
                            position_ids=positions[:, -1:] + 1 + step,
                            past_key_values=cache,
                        ).logits
                    )
        return torch.cat(found)

    expected = logits(DynamicCache(config=config), grouped=False)
    torch.testing.assert_close(
        logits(growing_cache(config), grouped=True), expected, rtol=1e-4, atol=1e-5
    )
    assert not torch.equal(expected[0], expected[1])
