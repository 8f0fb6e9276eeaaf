"""Records as token ids and labels -> the loss of each under a model, in nats per trained token."""

from collections.abc import Callable, Iterator, Sequence

from agentlite.core import console
from agentlite.engine.load import Loading, load, prepare
from agentlite.engine.weighted_loss import check_head, collate, weighted_loss
from agentlite.rendering import Encoded
from agentlite.workspace.model_source import Source


def record_losses(
    ids: Sequence[str], rows: Callable[[str], Sequence[Encoded]], source: Source, loading: Loading
) -> Iterator[tuple[str, float]]:
    """The loss of each record, as it is found. `rows`: what is trained of a record. Raises
    UserError 5, 7 or 8.
    """
    if not ids:
        return
    prepare(loading)
    import torch

    loaded = load(source, loading, trainable=False)
    check_head(loaded.model)
    loaded.model.eval()
    pad, device = loaded.tokenizer.pad_token_id, loaded.model.device
    with torch.no_grad(), console.progress(f"losses under {source.name}", len(ids)) as advance:
        for done, record_id in enumerate(ids, 1):
            batch = collate(
                [
                    {
                        "input_ids": row.input_ids,
                        "labels": row.labels,
                        "weights": [1.0] * len(row.labels),
                    }
                    for row in rows(record_id)
                ],
                pad,
            )
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            total, count = weighted_loss(
                loaded.model, batch, batch.pop("labels"), batch.pop("weights")
            )
            yield record_id, float(total / count)
            advance(done)
