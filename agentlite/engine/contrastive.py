"""Pairs of a query and its tool, with wrong tools -> a model that puts the two side by side, and the others away."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentlite import config
from agentlite.engine import checkpoints, embedding, on_gpu, training
from agentlite.errors import UserError, nearest
from agentlite.retrieval.contrasts import Pair, batches, with_wrong
from agentlite.retrieval.encoders import MADE
from agentlite.retrieval.pool import Pool
from agentlite.templates import Source

OURS = {"learning_rate": "learning_rate", "max_steps": "max_steps", "num_train_epochs": "num_epochs", "seed": "seed",
        "per_device_train_batch_size": "batch_size", "warmup_ratio": "warmup_ratio", "warmup_steps": "warmup_ratio",
        "lr_scheduler_type": "lr_scheduler", "save_steps": "save_steps", "eval_steps": "save_steps",
        "output_dir": "out"}  # fmt: skip


def schedule(settings: config.Retriever, count: int) -> training.Schedule:
    """`count`: of pairs. No batch is larger than there are pairs."""
    size = min(settings.batch_size, count)
    steps = settings.max_steps or max(1, math.ceil(count * settings.epochs / size))
    return training.Schedule(steps, size, 1)


def train(source: Source, settings: config.Retriever, folder: Path, pool: Pool, found: Sequence[Pair],
          dev: Sequence[Pair]) -> dict[str, Any]:  # fmt: skip
    """Trains with MultipleNegativesRankingLoss, watches the loss of `dev`. Leaves model/ and metrics.jsonl; returns the
    key figures. Raises what engine.training.train raises.
    """
    plan = schedule(settings, len(found))
    rows = batches(found, pool, plan.batch_size, plan.steps, settings.negatives, settings.seed)
    watched = [with_wrong(pair, pool, settings.negatives) for pair in dev]

    def make(micro: training.Schedule) -> Any:
        from sentence_transformers import SentenceTransformerTrainer
        from sentence_transformers.losses import MultipleNegativesRankingLoss

        model = embedding.load(source, settings.max_length)
        model.model_card_data.generate_widget_examples = False  # for a card that is not written, with a bar of its own
        return SentenceTransformerTrainer(
            model=model,
            args=_arguments(settings, folder, micro, with_dev=bool(dev)),
            train_dataset=_dataset(rows, pool),
            eval_dataset=_dataset(watched, pool) if watched else None,
            loss=MultipleNegativesRankingLoss(model, scale=settings.scale),
        )

    figures = training.train(make, folder, plan)
    best = checkpoints.best_whole(folder)
    embedding.load(Source("", str(best), None, ""), settings.max_length).save_pretrained(
        str(folder / MADE), create_model_card=False)  # fmt: skip
    return figures


def check(settings: config.Retriever) -> None:
    """Raises UserError 2 for a key that sentence-transformers does not know, or that is a setting here."""
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

    for key in settings.trl:
        place = f"retriever.trl.{key}"
        if key in OURS:
            raise UserError(f"is a setting of agentlite: retriever.{OURS[key]}.", "Set that one.", place=place)
        if key not in Arguments.__dataclass_fields__:
            raise UserError("sentence-transformers has no such setting.", nearest(key, Arguments.__dataclass_fields__),
                            place=place)  # fmt: skip


def _arguments(settings: config.Retriever, folder: Path, plan: training.Schedule, *, with_dev: bool) -> Any:
    from sentence_transformers import SentenceTransformerTrainingArguments

    return SentenceTransformerTrainingArguments(**{
        "output_dir": str(folder / "checkpoints"),
        "max_steps": plan.steps,
        "per_device_train_batch_size": plan.batch_size,
        "per_device_eval_batch_size": plan.batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation,
        "learning_rate": settings.learning_rate,
        "warmup_steps": math.ceil(settings.warmup_ratio * plan.steps),
        "lr_scheduler_type": settings.lr_scheduler,
        "batch_sampler": in_order,
        "use_cpu": not on_gpu(),
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would show the last good loss in place of a NaN
        "eval_strategy": "steps" if with_dev else "no",
        "eval_steps": settings.save_steps,
        "save_strategy": "steps",
        "save_steps": settings.save_steps,
        "prediction_loss_only": True,
        "disable_tqdm": True,
        "report_to": "none",
        "seed": settings.seed,
        "dataloader_pin_memory": on_gpu(),
        **settings.trl,
    })  # fmt: skip


def in_order(dataset: Any, batch_size: int, drop_last: bool, **_: Any) -> Any:
    """The order is ours: see contrasts.batches."""
    from torch.utils.data import BatchSampler, SequentialSampler

    return BatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def _dataset(found: Sequence[Pair], pool: Pool) -> Any:
    from datasets import Dataset

    texts = pool.texts
    negatives = range(min(len(pair.negatives) for pair in found))  # in a small pool nearly every tool may be right
    return Dataset.from_dict({
        "query": [pair.text for pair in found],
        "tool": [texts[pair.place] for pair in found],
        **{f"negative_{number}": [texts[pair.negatives[number]] for pair in found] for number in negatives},
    })  # fmt: skip
