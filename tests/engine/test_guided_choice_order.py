"""The order in which tokens are tried for a guide: by their probabilities, and every token once."""

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.engine import guided_choice
from agentlite.engine.decoding import Decoding
from agentlite.engine.guided_choice import GuidedChoice

pytestmark = pytest.mark.torch
LIKELY = (0.6, 0.3, 0.1)
END = 3


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of four tokens: three letters, and the end, which `may_end` allows."""
    monkeypatch.setattr(guided_choice, "pieces", lambda tokenizer: ["a", "b", "c", ""])

    def make(allowed: str = "abc", may_end: bool = False, **decoding: Any) -> GuidedChoice:
        guide: Any = SimpleNamespace(may_end=may_end, is_over=False)
        guide.after = lambda piece: guide if piece in allowed else None
        return GuidedChoice(None, guide, {END}, Decoding(9, **decoding))

    return make


def logits(*last: float) -> Any:
    import torch

    return torch.tensor([[*map(math.log, LIKELY), *last]])


def chosen(made: GuidedChoice, scores: Any) -> int:
    """The one token that is left possible."""
    [token] = made(None, scores)[0].isfinite().nonzero()[:, 0].tolist()
    return int(token)


@pytest.mark.parametrize(
    ("temperature", "top_p", "expected"),
    [
        (1.0, 1.0, LIKELY),
        (0.5, 1.0, (0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46)),
        (1.0, 0.8, (2 / 3, 1 / 3, 0.0)),
        (1.0, 0.5, (1.0, 0.0, 0.0)),
    ],
)
def test_the_first_token_that_is_tried_is_drawn_as_any_other_sample(
    choice: Any, temperature: float, top_p: float, expected: tuple[float, ...]
) -> None:
    made = choice(temperature=temperature, top_p=top_p, seed=3)
    firsts = Counter(next(made._in_order(logits()[0])) for _ in range(400))
    shares = [firsts[token] / 400 for token in range(3)]
    assert shares == pytest.approx(expected, abs=0.07)


@pytest.mark.parametrize("decoding", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.5}])
def test_every_token_is_tried_once_the_likeliest_first_at_temperature_0(
    choice: Any, decoding: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guided_choice, "SHORTLIST", 2)
    order = list(choice(**decoding)._in_order(logits(-9.0)[0]))
    assert sorted(order) == [0, 1, 2, 3] and (decoding or order == [0, 1, 2, 3])


def test_the_likeliest_allowed_token_is_chosen_and_the_end_only_where_it_may_be(
    choice: Any,
) -> None:
    assert chosen(choice(), logits(9.0)) == 0
    assert chosen(choice("bc"), logits(9.0)) == 1
    assert chosen(choice(may_end=True), logits(9.0)) == END
    nothing = choice("")
    assert chosen(nothing, logits(9.0)) == END and nothing.is_over
    assert not choice().is_over


def test_the_order_goes_by_the_seed(choice: Any) -> None:
    import torch

    scores = torch.zeros(50)
    one, again, other = (
        list(choice(temperature=1.0, seed=seed)._in_order(scores)) for seed in (1, 1, 2)
    )
    assert one == again != other
