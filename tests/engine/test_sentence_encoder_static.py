"""The vectors of a static model, from an encoder whose states are written by hand."""

from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from agentlite.engine import sentence_encoder

FIRST, LAST = 8, 9  # the marks around each token


class Tokenizer:
    cls_token_id, sep_token_id = FIRST, LAST

    def __len__(self) -> int:
        return 10


def test_a_token_has_the_main_directions_of_its_state_weighed_down_where_it_is_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tokens stand in the order of how common they are, as 1, 1/2, 1/3, ... (Zipf)."""
    states = numpy.random.default_rng(0).normal(size=(10, 4))

    def model(*, input_ids: Any, attention_mask: Any) -> Any:
        assert attention_mask.shape == input_ids.shape and attention_mask.all()
        return SimpleNamespace(last_hidden_state=torch.tensor(states)[input_ids])

    class Base:
        tokenizer, device = Tokenizer(), "cpu"

        def __getitem__(self, place: int) -> Any:
            return SimpleNamespace(model=model)

    monkeypatch.setattr(sentence_encoder, "DIRECTIONS", 3)
    monkeypatch.setattr(sentence_encoder, "TOKENS_AT_ONCE", 4)
    found = sentence_encoder._weights(Base()).numpy()

    means = (states[FIRST] + states + states[LAST]) / 3
    centred = means - means.mean(0)
    _, _, directions = numpy.linalg.svd(centred)  # the largest first
    shares = numpy.array([1 / place for place in range(1, 11)])
    shares /= shares.sum()
    down = sentence_encoder.COMMON / (sentence_encoder.COMMON + shares)
    expected = (centred @ directions[:3].T) * down[:, None]
    assert found.dtype == numpy.float32 and found.shape == (10, 3)
    # a direction may point either way
    assert numpy.abs(found) == pytest.approx(numpy.abs(expected), abs=1e-5)
