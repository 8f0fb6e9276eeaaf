"""Every trainer is handed its rows in the order of the run: by its own seed, and by levels."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.trainers import distill, distill_task, dpo, grpo, preferences, rows, sft, task

from agentlite.engine import adapter, trainer
from agentlite.engine import distill as distill_trainer
from agentlite.engine import dpo as dpo_trainer
from agentlite.engine import grpo as grpo_trainer
from agentlite.engine import sft as sft_trainer
from agentlite.engine.dpo import Answer

LOADED: Any = SimpleNamespace(model="a model", tokenizer="its tokenizer")
TEACHER: Any = None
LEVELS = (2, 0, 1, 0, 2)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the trainer of a library is made with, without the library."""
    made: dict[str, Any] = {}

    class Library:
        def __init__(self, **given: Any):
            made.update(given)
            self.model = None

    dataset = SimpleNamespace(from_dict=lambda columns: columns)
    names = ("SFTTrainer", "DPOTrainer", "KTOTrainer", "GRPOTrainer", "SFTConfig")
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(**dict.fromkeys(names, Library)))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=dataset))
    monkeypatch.setattr(trainer, "adjusted", lambda trainer_class: trainer_class)
    monkeypatch.setattr(adapter, "adapted", lambda loaded, settings: loaded.model)
    monkeypatch.setattr(adapter, "keep_reference", lambda model: None)
    monkeypatch.setattr(grpo_trainer, "arguments", lambda *_: None)
    monkeypatch.setattr(trainer, "configuration", lambda *_: None)
    monkeypatch.setattr(trainer, "arguments", lambda *_, **__: {})
    monkeypatch.setattr(distill_trainer, "step_trainer", lambda trl_class, *_: trl_class)
    monkeypatch.setattr(grpo_trainer, "_credited", lambda trl_class: trl_class)
    return made


def order(name: str, seed: int, folder: Path, taken: dict[str, Any]) -> list[Any]:
    """What the trainer's dataset holds, row by row."""
    if name in ("dpo", "kto"):
        known: list[Any] = preferences()
        changes = {"loss_type": "kto"} if name == "kto" else {}
        if changes:
            known = [Answer(row.prompt, row.chosen, True) for row in known]
        dpo_trainer.make_trainer(LOADED, dpo(seed=seed, **changes), None, known)
        return [*map(tuple, taken["train_dataset"]["prompt_ids"])]
    if name == "distill":
        work, chosen = distill_task(), distill(seed=seed)
        micro = trainer.schedule(chosen, 5)
        distill_trainer.make_trainer(LOADED, TEACHER, chosen, folder, work, micro)
        return list(taken["train_dataset"]["number"])
    settings, levels = grpo(seed=seed), LEVELS if name == "grpo by level" else ()
    micro = grpo_trainer.schedule(settings, 5)
    grpo_trainer.make_trainer(LOADED, settings, folder, task()._replace(levels=levels), micro)
    return [int(prompt) for prompt in taken["train_dataset"]["prompt"]]


@pytest.mark.parametrize("name", ["dpo", "kto", "distill", "grpo", "grpo by level"])
def test_rows_are_ordered_by_the_seed_and_first_by_level(
    name: str, taken: dict[str, Any], tmp_path: Path
) -> None:
    first, second, again = (order(name, seed, tmp_path, taken) for seed in (1, 2, 1))
    assert first == again != second and len({*first}) == len({*second}) == 5
    if name == "grpo by level":
        assert [LEVELS[prompt] for prompt in first[:5]] == sorted(LEVELS)


@pytest.mark.parametrize("levels", [(), tuple(range(28, 0, -1))])
def test_rows_of_sft_are_ordered_by_the_seed_and_first_by_level(
    levels: tuple[int, ...], taken: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[list[int]] = []

    class Rows(SimpleNamespace):
        def select(self, order: list[int]) -> "Rows":
            orders.append(order)
            return self

    monkeypatch.setattr(sft_trainer, "_dataset", lambda some: Rows())
    monkeypatch.setattr(sft_trainer, "packs", lambda settings: False)
    known = rows() * 4
    for seed in (1, 2):
        settings = sft(seed=seed, batch_size=1, gradient_accumulation=1, max_steps=28)
        sft_trainer.make_trainer(LOADED, settings, None, known, [], levels)
    assert orders[0] != orders[1] and sorted(orders[0]) == [*range(28)]
    # rows trade places within eight steps, but for the longest one, which is the very first
    lowest = {*orders[0][1:8]} <= {*range(27, 18, -1)}
    assert lowest == bool(levels)
