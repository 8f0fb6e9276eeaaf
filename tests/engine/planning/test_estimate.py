"""What is planned for a command: the rows it reads, what is left of a card, and what is on disk."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentlite.config import resolve
from agentlite.engine.planning.estimate import (
    RowLengths,
    data_of,
    load_of,
)
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import (
    find_shape,
    with_teacher,
)

SHAPE = find_shape("smollm2-135m")


def settings_of(command: str, **changed: Any) -> Any:
    return resolve.resolve(command, resolve.Given(changed, profile="rtx4090")).settings


def stage(folder: Path, command: str, settings: dict[str, Any], **figures: Any) -> None:
    folder.mkdir(parents=True)
    plan_file = {"command": command, "settings": settings, "inputs": {}}
    done = {"outputs": {}, "figures": figures, "seconds": 1}
    for name, content in (("plan", plan_file), ("done", done)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def prepared(run: Path) -> None:
    stage(run / "prep", "prep", {"model": "smollm2-135m", "protocol": "hermes"})
    stats = {
        "train": 100,
        "dev": 10,
        "test": 20,
        "train_rows": 90,
        "by_source": {"a": 100, "b": 30},
        "length": {"100%": 777},
        "tokens": {"all": 39000},
    }
    (run / "prep/stats.json").write_text(json.dumps(stats), encoding="utf-8")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_pairs_are_as_many_as_were_made_and_as_long_as_their_prompts_with_their_answers(
    elsewhere: bool, tmp_path: Path
) -> None:
    """Their prep is named as it is called in the workspace that they are in."""
    run, home = tmp_path / "run", tmp_path / ("other" if elsewhere else "run")
    run.mkdir()
    prepared(home)
    stage(home / "pairs", "pairs", {"data": "prep", "max_new_tokens": 64}, pairs=7)
    settings = settings_of("dpo", data=str(home / "pairs") if elsewhere else "pairs")
    assert data_of("dpo", settings, run) == RowLengths(7, 777 + 64, 300)
    (home / "pairs/done.json").unlink()  # not known yet: the records that they will be made of
    assert data_of("dpo", settings, run).rows == 90


@pytest.mark.parametrize("top_k", [None, 8])
def test_a_teacher_counts_with_its_own_parameters_before_or_beside_the_student(
    top_k: int | None, tmp_path: Path
) -> None:
    student = find_shape("Qwen/Qwen2.5-0.5B-Instruct")
    settings = settings_of("distill", teacher="smollm2-135m", lmbda=0.0, top_k=top_k)
    found = with_teacher(student, settings, tmp_path)
    assert found == student._replace(teacher=SHAPE.parameters, teacher_first=bool(top_k))


def test_an_evaluation_takes_as_much_as_the_larger_of_its_greedy_answers_and_its_samples() -> None:
    """A card of 12 GiB holds four long rows at once; of greedy answers a batch is as it is set."""
    seven, changes = find_shape("Qwen/Qwen2.5-7B-Instruct"), {"batch_size": 64, "max_length": 4096}
    for samples in (0, 3):
        settings = settings_of("eval", engine="unsloth", num_samples=samples, **changes)
        load = load_of("eval", settings, seven, True, 0, 12 * GIB)
        assert (load.sampled, load.prompted) == (64, 64 * (4096 - settings.max_new_tokens))
