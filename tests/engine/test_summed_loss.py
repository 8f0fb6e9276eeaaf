"""The losses of records are means over their trained tokens."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from support import trainers
from support.trainers import sft, source

from agentlite.engine import distill, load, ppo
from agentlite.engine.summed_loss import record_losses
from agentlite.rendering import Encoded


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_the_loss_of_a_record_is_the_mean_over_the_trained_tokens_of_all_its_rows(
    engine: str, tiny_model: Path
) -> None:
    rows = trainers.rows()
    loading = load.loading_of(sft(engine=engine))
    by_id = {str(number): [row, rows[0]] for number, row in enumerate(rows)}
    found = dict(record_losses([*by_id], by_id.__getitem__, source(tiny_model), loading))
    model = load.load(source(tiny_model), loading, trainable=False).model.eval()
    for number, row in enumerate(rows):
        expected = fmean(token_losses(model, row) + token_losses(model, rows[0]))
        assert found[str(number)] == pytest.approx(expected, rel=1e-4)


def token_losses(model: Any, row: Encoded) -> list[float]:
    with torch.no_grad():
        scores = model(input_ids=torch.tensor([row.input_ids])).logits[0, :-1].float()
    pairs = zip(scores.log_softmax(-1), row.labels[1:], strict=True)
    return [-float(likely[label]) for likely, label in pairs if label >= 0]


def test_hidden_states_whose_sum_is_beyond_float16_leave_every_loss_finite():
    states = torch.full((1, 9, 64), 128.0, dtype=torch.float16)
    assert not states.sum().isfinite()

    class Wide(torch.nn.Module):
        base_model_prefix = "base"

        def __init__(self) -> None:
            super().__init__()
            self.value_head = torch.nn.Linear(64, 1)
            self.head = torch.nn.Linear(64, 5, dtype=torch.float16)

        def base(self, **_: object) -> Any:
            return (states,)

        def get_output_embeddings(self) -> Any:
            return self.head

    model, labels = Wide(), torch.tensor([[-100, *range(4), *range(4)]])
    likely, values = ppo.read_tokens(model, {}, labels, 1.0)
    loss = distill.summed_divergence(model, 5, 1.0, model, {"labels": labels})
    assert all(one.isfinite().all() for one in (likely, values, loss.total))
