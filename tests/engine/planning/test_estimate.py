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
    plan,
)
from agentlite.engine.planning.gpus import with_memory
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import (
    base_of,
    find_shape,
    with_teacher,
)

SHAPE = find_shape("smollm2-135m")


def settings_of(command: str, **changed: Any) -> Any:
    return resolve.resolve(command, resolve.Given(changed, profile="rtx4090")).settings


@pytest.mark.parametrize(
    ("longest", "length", "length_from"),
    [
        (0, 1000, "max_length"),
        (999, 999, "prep"),
        (1000, 1000, "max_length"),
        (5000, 1000, "max_length"),
    ],
)
def test_a_length_comes_from_the_data_where_it_is_below_the_limit(
    longest: int, length: int, length_from: str
) -> None:
    settings = settings_of("sft", max_length=1000)
    found = plan("sft", settings, SHAPE, with_memory(24), RowLengths(10, longest, 300))
    assert (found.length, found.length_from) == (length, length_from)


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


def test_the_base_of_a_stage_is_found_in_the_workspace_of_that_stage(tmp_path: Path) -> None:
    for run, base in (("run", "wrong/base"), ("other", "smollm2-135m")):
        stage(tmp_path / run / "sft", "sft", {"model": base})
        stage(tmp_path / run / "dpo", "dpo", {"model": "sft"})
    assert base_of(str(tmp_path / "other/dpo"), tmp_path / "run") == "smollm2-135m"


@pytest.mark.parametrize("top_k", [None, 8])
def test_a_teacher_counts_with_its_own_parameters_before_or_beside_the_student(
    top_k: int | None, tmp_path: Path
) -> None:
    student = find_shape("Qwen/Qwen2.5-0.5B-Instruct")
    settings = settings_of("distill", teacher="smollm2-135m", lmbda=0.0, top_k=top_k)
    found = with_teacher(student, settings, tmp_path)
    assert found == student._replace(teacher=SHAPE.parameters, teacher_first=bool(top_k))


def test_without_a_card_the_model_itself_samples_each_prompt_once() -> None:
    numbers = {"batch_size": 4, "gradient_accumulation": 6, "group_size": 8, "load_in_4bit": False}
    settings = settings_of("grpo", max_length=1000, max_new_tokens=100, vllm=True, **numbers)
    load = load_of("grpo", settings, SHAPE, False)
    assert not load.vllm and (load.sampled, load.prompted) == (24, 3 * 900)


def test_an_evaluation_takes_as_much_as_the_larger_of_its_greedy_answers_and_its_samples() -> None:
    """A card of 12 GiB holds four long rows at once; of greedy answers a batch is as it is set."""
    seven, changes = find_shape("Qwen/Qwen2.5-7B-Instruct"), {"batch_size": 64, "max_length": 4096}
    for samples in (0, 3):
        settings = settings_of("eval", engine="unsloth", num_samples=samples, **changes)
        load = load_of("eval", settings, seven, True, 0, 12 * GIB)
        assert (load.sampled, load.prompted) == (64, 64 * (4096 - settings.max_new_tokens))
