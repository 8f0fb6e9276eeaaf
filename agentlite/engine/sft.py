"""Token ids and labels -> an adapter that says what was labelled, by TRL's SFTTrainer."""

import math
from functools import partial
from pathlib import Path
from typing import Any

from agentlite.config.settings import SftSettings
from agentlite.engine import adapter, datasets, on_gpu, trainer, trl
from agentlite.engine.load import load, loading_of, prepare_libraries
from agentlite.rendering import Encoded
from agentlite.workspace.lookup import Source


def train(
    source: Source, settings: SftSettings, folder: Path, rows: list[Encoded], dev: list[Encoded]
) -> dict[str, object]:
    """Trains on `rows`, watches `dev`. Returns the key figures. Raises what engine.trainer.train
    raises.
    """
    prepare_libraries(loading_of(settings))
    make = partial(make_trainer, source, settings, folder, rows, dev)
    return trainer.train(make, folder, schedule(settings, rows))


def packs_rows(settings: SftSettings) -> bool:
    """Without CUDA, packed rows would see each other."""
    return settings.packing and on_gpu()


def schedule(settings: SftSettings, rows: list[Encoded]) -> trainer.Schedule:
    """With packing, a row of the trainer is a full sequence, and a micro-batch as many as make
    `batch_tokens`.
    """
    if not packs_rows(settings):
        return trainer.schedule(settings, len(rows))
    count = math.ceil(sum(len(row.input_ids) for row in rows) / settings.max_length)
    return trainer.schedule(settings, count, settings.packed_rows)


def make_trainer(
    source: Source,
    settings: SftSettings,
    folder: Path,
    rows: list[Encoded],
    dev: list[Encoded],
    micro: trainer.Schedule,
) -> Any:
    """An SFTTrainer over rows that are tokenised, masked and in order already."""
    own_arguments = {
        "max_length": settings.max_length,
        "packing": packs_rows(settings),
        "dataset_kwargs": {"skip_prepare_dataset": not packs_rows(settings)},
        "remove_unused_columns": True,
    }
    shared_arguments = trainer.trl_arguments(settings, folder, micro, with_dev=bool(dev))
    # before the model: ZeRO-3 cuts it up while it is read
    configuration = trainer.configuration(trl.SFTConfig, {**own_arguments, **shared_arguments})
    loaded = load(source, loading_of(settings), trainable=True)
    dataset, dev_dataset = _dataset(rows), _dataset(dev) if dev else None
    if not packs_rows(settings):
        lengths = [len(row.input_ids) for row in rows]
        plan = schedule(settings, rows)
        dataset = dataset.select(trainer.row_order(lengths, plan, settings.seed))
    # Unsloth leaves padding out of batches only where it knows that no row is too long
    for split in filter(None, (dataset, dev_dataset)):
        split._unsloth_truncated_to = settings.max_length
    used_tokens = {token for row in rows for token in row.input_ids}
    return trainer.adjust_trainer(trl.SFTTrainer)(
        model=adapter.add_adapter(loaded, settings, used_tokens),
        args=configuration,
        train_dataset=dataset,
        eval_dataset=dev_dataset,
        processing_class=loaded.tokenizer,
    )


def _dataset(rows: list[Encoded]) -> Any:
    columns = {name: [getattr(row, name) for row in rows] for name in Encoded._fields}
    return datasets.Dataset.from_dict(columns)
