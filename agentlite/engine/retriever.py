"""Queries with right and wrong tools -> an encoder that puts a query close to its right tools."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentlite.config.settings import RetrieverSettings
from agentlite.engine import (
    checkpoints,
    datasets,
    on_gpu,
    sentence_encoder,
    sentence_transformers,
    torch,
    trainer,
)
from agentlite.retrieval.tool_pool import ToolPool
from agentlite.retrieval.training_pairs import TrainingPair, make_batches, with_wrong_tools
from agentlite.workspace.lookup import MODEL_FOLDER, Source

# a step is one batch of one process, in which no row's right tool stands among another's
RESERVED = ("batch_sampler", "deepspeed")


def schedule(settings: RetrieverSettings, count: int) -> trainer.Schedule:
    """`count`: of pairs. No batch is larger than there are pairs."""
    size = min(settings.batch_size, count)
    steps = math.ceil(count * settings.num_epochs / size)
    return trainer.Schedule(settings.max_steps or max(1, steps), size, 1)


def train(
    source: Source,
    settings: RetrieverSettings,
    folder: Path,
    pool: ToolPool,
    pairs: Sequence[TrainingPair],
    dev: Sequence[TrainingPair],
) -> dict[str, object]:
    """Trains with MultipleNegativesRankingLoss, watches the loss of `dev`. Leaves model/ and
    metrics.jsonl; returns the key figures. Raises what engine.trainer.train raises.
    """
    plan = schedule(settings, len(pairs))
    rows = make_batches(pairs, plan.batch_size, plan.steps, settings.negatives, settings.seed)
    dev_pairs = [with_wrong_tools(pair, settings.negatives) for pair in dev]

    def make(micro: trainer.Schedule) -> Any:
        from sentence_transformers.losses import MultipleNegativesRankingLoss

        model = sentence_encoder.load(source, settings.max_length)
        # else it looks for some, with a bar of its own
        model.model_card_data.widget = [{"text": "-"}]
        # A card tells the losses since the last start: a checkpoint after a kill would be another.
        model.save_pretrained = partial(model.save_pretrained, create_model_card=False)
        shared_arguments = trainer.transformers_arguments(
            settings, folder, micro, with_dev=bool(dev)
        )
        own_arguments = {"batch_sampler": sequential_batches, "use_cpu": not on_gpu()}
        return trainer.adjust_trainer(sentence_transformers.SentenceTransformerTrainer)(
            model=model,
            args=sentence_transformers.SentenceTransformerTrainingArguments(
                **{**shared_arguments, **own_arguments, **settings.trl}
            ),
            train_dataset=_dataset(rows, pool),
            eval_dataset=_dataset(dev_pairs, pool) if dev_pairs else None,
            loss=MultipleNegativesRankingLoss(model, scale=settings.scale),
        )

    figures = trainer.train(make, folder, plan)
    best = Source("", str(checkpoints.best_whole(folder)), None, "")
    encoder = sentence_encoder.load(best, settings.max_length)
    encoder.save_pretrained(str(folder / MODEL_FOLDER), create_model_card=False)
    return figures


def check(settings: RetrieverSettings) -> None:
    """Raises UserError 2 for what sentence-transformers does not know, or what is not to be
    changed.
    """
    trainer.check_passed_through(
        "retriever", settings, sentence_transformers.SentenceTransformerTrainingArguments, RESERVED
    )


def sequential_batches(dataset: Any, batch_size: int, drop_last: bool, **_: object) -> Any:
    """The order is ours: see make_batches."""
    return torch.utils.data.BatchSampler(
        torch.utils.data.SequentialSampler(dataset), batch_size, drop_last
    )


def _dataset(pairs: Sequence[TrainingPair], pool: ToolPool) -> Any:
    texts = pool.texts
    # in a small pool nearly every tool may be right, and few are wrong
    count = min(len(pair.tool_indices) for pair in pairs)
    columns = ["tool", *(f"negative_{number}" for number in range(count - 1))]
    rows = (
        {"query": pair.query}
        | {name: texts[index] for name, index in zip(columns, pair.tool_indices, strict=False)}
        for pair in pairs
    )
    return datasets.Dataset.from_list([*rows])
