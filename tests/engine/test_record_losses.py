"""The losses of records: one for each, as it is found, over all its rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.engine import weighted_loss as module
from agentlite.engine.load import Loaded
from agentlite.engine.weighted_loss import record_losses
from agentlite.rendering import Encoded
from agentlite.workspace.model_source import Source

SOURCE = Source("m", "m", None, "")
ROWS = {
    "a": [Encoded([1, 2, 3], [-100, 2, 3])],
    "b": [Encoded([4, 5], [-100, 5]), Encoded([6, 7, 8, 9], [-100, 7, 8, 9])],
}
LOADING: Any = None


@pytest.mark.torch
def test_a_record_has_the_loss_of_a_trained_token_of_all_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each token's loss is its id here."""
    modes: list[str] = []
    model = SimpleNamespace(device="cpu", eval=lambda: modes.append("eval"))
    loaded = Loaded(model, SimpleNamespace(pad_token_id=99))

    def weighted_loss(model: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        assert inputs["input_ids"].shape == inputs["attention_mask"].shape == labels.shape
        trained = labels[:, 1:] != -100
        return (labels[:, 1:] * weights[:, 1:])[trained].sum(), trained.sum()

    monkeypatch.setattr(module, "prepare", lambda loading: None)
    monkeypatch.setattr(module, "load", lambda *_, trainable: loaded if not trainable else None)
    monkeypatch.setattr(module, "check_head", lambda model: None)
    monkeypatch.setattr(module, "weighted_loss", weighted_loss)
    asked: list[str] = []

    def rows(record_id: str) -> list[Encoded]:
        asked.append(record_id)
        return ROWS[record_id]

    losses = record_losses(["b", "a"], rows, SOURCE, LOADING)
    assert next(losses) == ("b", pytest.approx((5 + 7 + 8 + 9) / 4))
    assert asked == ["b"]  # what is known when the process is killed is known for good
    assert list(losses) == [("a", pytest.approx((2 + 3) / 2))]
    assert modes == ["eval"]
