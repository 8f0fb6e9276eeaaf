"""Train records -> how hard each of them is, for a coreset: the losses of a model, or a proxy."""

from collections.abc import Sequence

from agentlite.core.records import canonical, digest
from agentlite.data.curation.loss_cache import all_losses, losses_file
from agentlite.data.ingest import Ingested
from agentlite.data.ingest_row import IngestContext
from agentlite.rendering import encoding
from agentlite.workspace.digests import cache_folder
from agentlite.workspace.model_source import Source


def losses(
    train: Sequence[int], ingested: Ingested, context: IngestContext, model: Source
) -> dict[str, float]:
    """By id of the record: mean nats per trained token by the model, each computed once on this
    machine; or the proxy.
    """
    settings, indices = context.settings, {ingested.traits[index].id: index for index in train}
    if settings.coreset_loss == "proxy":
        return {
            record_id: ingested.sizes[index].wording.proxy_loss
            for record_id, index in indices.items()
        }
    from agentlite.engine.load import Loading
    from agentlite.engine.loss_per_record import record_losses

    def rows(record_id: str) -> list[encoding.Encoded]:
        record = ingested.record(indices[record_id])
        return encoding.training_rows(record, context.mixture.of(record), context.template)

    # the seed decides only which protocol of a mixture a record is rendered in
    seed = settings.seed if len(context.mixture.protocols) > 1 else 0
    key = digest(canonical([model.digest, context.mixture.name, context.template.name, seed]))
    loading = Loading(engine="unsloth", max_length=settings.max_length)
    return all_losses(
        losses_file(cache_folder() / "losses", key),
        list(indices),
        lambda ids: record_losses(ids, rows, model, loading),
    )
