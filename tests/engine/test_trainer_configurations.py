"""What TRL and PEFT are configured with is built before anything is read or loaded."""

import dataclasses
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

pytest.importorskip("torch")

from support.trainers import dpo, grpo, sft

from agentlite.config.settings import COMMANDS, LARGEST, MOST, RetrieverSettings
from agentlite.core.errors import UserError
from agentlite.engine import dpo as dpo_engine
from agentlite.engine import grpo as grpo_engine
from agentlite.engine import retriever as retriever_engine
from agentlite.engine import sft as sft_engine

pytestmark = pytest.mark.torch


def retriever(**changes: object) -> RetrieverSettings:
    return RetrieverSettings(**{"learning_rate": 2e-4, **changes})


ENGINES: dict[str, Any] = {
    "sft": (sft, sft_engine.check),
    "dpo": (dpo, dpo_engine.check),
    "grpo": (grpo, grpo_engine.check),
    "retriever": (retriever, retriever_engine.check),
}
REFUSED: list[tuple[str, str, object]] = [
    ("trl", "nonsense", 1),
    ("trl", "output_dir", "x"),
    ("trl", "weight_decay", "1e-2"),
    ("trl", "weight_decay", None),
    ("trl", "optim", "no such optimizer"),
    ("trl", "lr_scheduler_kwargs", 3),
    ("trl", "max_grad_norm", [1.0]),
    ("trl", "bf16", "yes"),
    ("trl", "dataloader_num_workers", 1.5),
    ("peft", "base", 1),
    ("peft", "bias", "some"),
    ("peft", "init_lora_weights", "no such way"),
    ("peft", "use_rslora", "yes"),
    ("peft", "layers_to_transform", {}),
]


@pytest.mark.parametrize(("library", "key", "value"), REFUSED)
@pytest.mark.parametrize("command", ENGINES)
def test_what_a_library_cannot_use_is_refused_by_its_name(command, library, key, value):
    make, check = ENGINES[command]
    if library == "peft" and command == "retriever":
        return
    with pytest.raises(UserError) as refused:
        check(make(**{library: {key: value}}))
    error = refused.value
    assert error.exit_code == 2 and error.location.startswith(f"{command}.{library}")
    assert key in f"{error.location} {error.problem}"


@pytest.mark.parametrize("command", ENGINES)
def test_what_a_library_can_use_is_taken(command):
    make, check = ENGINES[command]
    check(make(trl={"weight_decay": 0.1, "optim": "sgd", "max_grad_norm": 1}))
    if command != "retriever":
        check(make(peft={"use_rslora": True, "bias": "none", "layers_to_transform": [0]}))


@pytest.mark.parametrize("command", ENGINES)
def test_the_bounds_of_every_number_are_taken_by_the_libraries(command):
    """A dry run builds no configuration for settings that are agentlite's own: this is why."""
    make, check = ENGINES[command]
    check(make())
    for key, kind in get_type_hints(COMMANDS[command], include_extras=True).items():
        metas = [mark for mark in getattr(kind, "__metadata__", ()) if hasattr(mark, "ge")]
        metas += [
            mark
            for part in get_args(kind)
            for mark in getattr(part, "__metadata__", ())
            if hasattr(mark, "ge")
        ]
        for meta in metas:
            highest = meta.le if meta.le is not None else meta.lt
            if highest is None:
                continue
            whole = isinstance(highest, int) and highest > 1
            lowest = meta.ge if meta.ge is not None else 1e-6
            for value in (lowest, highest if meta.lt is None else highest - 1e-6):
                value = int(value) if whole else float(value)
                if command == "grpo" and key in ("batch_size", "gradient_accumulation"):
                    continue  # a step holds whole groups, which the stage checks
                if command == "grpo" and key == "group_size" and value == MOST:
                    continue
                check(make(**{key: value}))


def test_the_annotations_of_the_libraries_hold_for_their_own_defaults():
    """A value is compared with them: they must be true."""
    from peft import LoraConfig
    from sentence_transformers import SentenceTransformerTrainingArguments
    from trl import DPOConfig, GRPOConfig, SFTConfig

    compared = 0
    for library in (
        SFTConfig,
        DPOConfig,
        GRPOConfig,
        LoraConfig,
        SentenceTransformerTrainingArguments,
    ):
        hints = get_type_hints(library)
        for field in dataclasses.fields(library):
            value = field.default
            if field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            if value is not dataclasses.MISSING:
                try:
                    msgspec.convert(value, hints[field.name])
                    compared += 1
                except TypeError:  # a kind that msgspec does not know
                    pass
    assert compared > 500


def test_more_rows_than_there_is_memory_for_their_order_are_refused():
    from agentlite.engine import trainer

    kinds = {"epochs": 1.0, "max_steps": None, "batch_size": 2, "gradient_accumulation": 4}
    assert trainer.schedule(100, **kinds).steps == 13
    for changes in ({"epochs": LARGEST}, {"max_steps": MOST}, {"batch_size": MOST}):
        with pytest.raises(UserError, match="are more than"):
            trainer.schedule(100, **{**kinds, **changes})
