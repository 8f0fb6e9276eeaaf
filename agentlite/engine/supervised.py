"""Token ids and labels -> an adapter that says what was labelled, by TRL's SFTTrainer."""

import difflib
import math
from pathlib import Path
from typing import Any

from agentlite import config
from agentlite.engine import load_libraries, on_gpu, training
from agentlite.engine.loading import Loaded, Loading, add_adapter, load
from agentlite.errors import UserError
from agentlite.protocols import Encoded
from agentlite.templates import Source

OURS_OF_TRL = {
    "learning_rate": "learning_rate", "max_steps": "max_steps", "num_train_epochs": "num_epochs", "seed": "seed",
    "per_device_train_batch_size": "batch_size", "gradient_accumulation_steps": "gradient_accumulation",
    "warmup_steps": "warmup_ratio", "warmup_ratio": "warmup_ratio", "lr_scheduler_type": "lr_scheduler",
    "save_steps": "save_steps", "eval_steps": "save_steps", "max_length": "max_length", "packing": "packing",
    "output_dir": "out",
}  # fmt: skip
OURS_OF_PEFT = {"r": "lora_r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout",
                "target_modules": "lora_target_modules"}  # fmt: skip


def train(
    source: Source, settings: config.Sft, folder: Path, rows: list[Encoded], dev: list[Encoded]
) -> dict[str, Any]:
    """Trains on `rows`, watches `dev`. Returns the key figures. Raises what engine.training.train raises."""
    load_libraries(settings.engine)
    check_passed_through(settings)
    loaded = load(source, loading(settings), trainable=True)
    plan = schedule(settings, rows)
    trainer = make_trainer(loaded, settings, folder, rows, dev)
    return training.train(trainer, folder, plan)


def loading(settings: config.Sft) -> Loading:
    return Loading(settings.engine, settings.max_length, settings.load_in_4bit, settings.load_in_8bit)


def check_passed_through(settings: config.Sft) -> None:
    """Raises UserError 2 for a key of `trl` or `peft` that the library does not know, or that is a setting here."""
    from peft import LoraConfig
    from trl import SFTConfig

    for name, given, known, ours in (
        ("trl", settings.trl, SFTConfig.__dataclass_fields__, OURS_OF_TRL),
        ("peft", settings.peft, LoraConfig.__dataclass_fields__, OURS_OF_PEFT),
    ):
        for key in given:
            place = f"sft.{name}.{key}"
            if key in ours:
                raise UserError(f"is a setting of agentlite: sft.{ours[key]}.", "Set that one.", place=place)
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                fix = f"Did you mean '{near[0]}'?" if near else ""
                raise UserError(f"{name} has no such setting.", fix, place=place)


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
    lora = {"r": settings.lora_r, "lora_alpha": settings.lora_alpha, "lora_dropout": settings.lora_dropout}
    model = add_adapter(loaded.model, loading(settings), {**lora, **settings.peft}, settings.lora_target_modules,
                        settings.seed)  # fmt: skip
    known = training.arguments(settings, folder, plan, with_dev=bool(dev))
    own = {"max_length": settings.max_length, "packing": packs(settings),
           "dataset_kwargs": {"skip_prepare_dataset": not packs(settings)}}  # fmt: skip
    order = training.row_order([len(row.input_ids) for row in rows], plan, settings.seed)
    dataset = _dataset(rows)
    return SFTTrainer(
        model=model,
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
