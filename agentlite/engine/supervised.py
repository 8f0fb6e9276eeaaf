"""Token ids and labels -> an adapter that says what was labelled, by TRL's SFTTrainer."""

import math
from pathlib import Path
from typing import Any

from agentlite import config
from agentlite.engine import load_libraries, on_gpu, training
from agentlite.engine.loading import Loaded, load
from agentlite.protocols import Encoded
from agentlite.templates import Source


def train(
    source: Source, settings: config.Sft, folder: Path, rows: list[Encoded], dev: list[Encoded]
) -> dict[str, Any]:
    """Trains on `rows`, watches `dev`. Returns the key figures. Raises what engine.training.train raises."""
    load_libraries(settings.engine)
    check(settings)
    loaded = load(source, training.loading(settings), trainable=True)
    plan = schedule(settings, rows)
    trainer = make_trainer(loaded, settings, folder, rows, dev)
    return training.train(trainer, folder, plan)


def check(settings: config.Sft) -> None:
    """Raises UserError 2 for what TRL or PEFT does not know."""
    from trl import SFTConfig

    training.check_passed_through("sft", settings, SFTConfig, {"packing": "packing"})


def schedule(settings: config.Sft, rows: list[Encoded]) -> training.Schedule:
    """With packing, a row of the trainer is a full sequence."""
    count = math.ceil(sum(len(row.input_ids) for row in rows) / settings.max_length) if packs(settings) else len(rows)
    return training.schedule(count, epochs=settings.num_epochs, max_steps=settings.max_steps,
                             batch_size=settings.batch_size,
                             gradient_accumulation=settings.gradient_accumulation)  # fmt: skip


def make_trainer(loaded: Loaded, settings: config.Sft, folder: Path, rows: list[Encoded], dev: list[Encoded]) -> Any:
    """An SFTTrainer over rows that are tokenised, masked and in order already."""
    from trl import SFTConfig, SFTTrainer

    plan = schedule(settings, rows)
    known = training.arguments(settings, folder, plan, with_dev=bool(dev))
    own = {"max_length": settings.max_length, "packing": packs(settings),
           "dataset_kwargs": {"skip_prepare_dataset": not packs(settings)}}  # fmt: skip
    order = training.row_order([len(row.input_ids) for row in rows], plan, settings.seed)
    dataset = _dataset(rows)
    return SFTTrainer(
        model=training.adapted(loaded, settings),
        args=SFTConfig(**{**own, **known}),
        train_dataset=dataset if packs(settings) else dataset.select(order),
        eval_dataset=_dataset(dev) if dev else None,
        processing_class=loaded.tokenizer,
    )


def packs(settings: config.Sft) -> bool:
    """Without CUDA, packed rows would see each other."""
    return settings.packing and on_gpu()


def _dataset(rows: list[Encoded]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({"input_ids": [row.input_ids for row in rows], "labels": [row.labels for row in rows]})
