"""Token ids and labels -> an adapter that says what was labelled, by TRL's SFTTrainer."""

from pathlib import Path
from typing import Any

from agentlite import config
from agentlite.engine import on_gpu, training
from agentlite.engine.loading import Loaded, Loading, add_adapter, load
from agentlite.protocols import Encoded
from agentlite.templates import Source


def train(
    source: Source, settings: config.Sft, folder: Path, rows: list[Encoded], dev: list[Encoded]
) -> dict[str, Any]:
    """Trains on `rows`, watches `dev`. Returns the key figures. Raises what engine.training.train raises."""
    loaded = load(source, loading(settings), trainable=True)
    plan = schedule(settings, len(rows))
    trainer = make_trainer(loaded, settings, folder, rows, dev)
    return training.train(trainer, folder, plan)


def loading(settings: config.Sft) -> Loading:
    return Loading(settings.engine, settings.max_length, settings.load_in_4bit, settings.load_in_8bit)


def schedule(settings: config.Sft, rows: int) -> training.Schedule:
    return training.schedule(rows, epochs=settings.num_epochs, max_steps=settings.max_steps,
                             batch_size=settings.batch_size,
                             gradient_accumulation=settings.gradient_accumulation)  # fmt: skip


def make_trainer(loaded: Loaded, settings: config.Sft, folder: Path, rows: list[Encoded], dev: list[Encoded]) -> Any:
    """An SFTTrainer over rows that are tokenised, masked and in order already."""
    from trl import SFTConfig, SFTTrainer

    plan = schedule(settings, len(rows))
    lora = {"r": settings.lora_r, "lora_alpha": settings.lora_alpha, "lora_dropout": settings.lora_dropout}
    model = add_adapter(loaded.model, loading(settings), {**lora, **settings.peft}, settings.lora_target_modules,
                        settings.seed)  # fmt: skip
    arguments = SFTConfig(
        max_length=settings.max_length,
        packing=settings.packing and on_gpu(),
        dataset_kwargs={"skip_prepare_dataset": not settings.packing},
        remove_unused_columns=True,
        **training.arguments(settings, folder, plan, with_dev=bool(dev)),
    )
    order = training.row_order([len(row.input_ids) for row in rows], plan, settings.seed)
    return SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=_dataset(rows).select(order),
        eval_dataset=_dataset(dev) if dev else None,
        processing_class=loaded.tokenizer,
    )


def _dataset(rows: list[Encoded]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({"input_ids": [row.input_ids for row in rows], "labels": [row.labels for row in rows]})
