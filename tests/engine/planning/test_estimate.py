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
    machine_left,
    plan,
    whole,
)
from agentlite.engine.planning.gpus import Machine, with_memory
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import (
    PUBLISHED,
    base_of,
    find_shape,
    shape_of,
    with_teacher,
)
from agentlite.engine.planning.time_and_disk import CARDS, training_seconds

SHAPE = find_shape("smollm2-135m")
HALF = "Qwen/Qwen2.5-0.5B-Instruct"


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


def test_packed_rows_are_planned_as_full_sequences() -> None:
    changes: dict[str, Any] = {"batch_tokens": 4096, "max_length": 1024, "batch_size": 3}
    for packing, rows, length in ((True, 4, 1024), (False, 3, 700)):
        settings = settings_of("sft", packing=packing, **changes)
        found = plan("sft", settings, SHAPE, with_memory(24), RowLengths(10, 700, 300))
        assert (found.batch_size, found.length) == (rows, length)


@pytest.mark.parametrize(("command", "writes"), [("sft", True), ("pairs", False), ("eval", False)])
def test_only_what_is_trained_is_written(command: str, writes: bool) -> None:
    found = plan(command, settings_of(command), SHAPE, with_memory(24), RowLengths())
    assert bool(found.disk_gb) == writes


@pytest.mark.parametrize(
    ("free", "share", "left"), [(10.0, None, 10 - 0.3 * 12), (10.0, 0.5, 4.0), (3.0, 0.5, 0.0)]
)
def test_the_share_of_an_engine_is_one_of_the_whole_card_and_not_of_what_is_free(
    free: float, share: float | None, left: float
) -> None:
    machine = Machine(True, CARDS["rtx3060"], free * GIB)
    passed = {} if share is None else {"trl": {"vllm_gpu_memory_utilization": share}}
    settings = settings_of("grpo", engine="hf", vllm=True, **passed)
    assert whole(machine) == 12 * GIB and whole(with_memory(12.5)) == 12.5 * GIB
    assert machine_left(settings, machine).capacity == pytest.approx(left * GIB)
    assert machine_left(settings_of("grpo", engine="hf"), machine) == machine
    assert machine_left(settings, machine._replace(gpu=False)).capacity == free * GIB


@pytest.mark.parametrize("length", [511, 512])
def test_without_a_card_nothing_is_computed_again_whatever_the_length(length: int) -> None:
    settings = settings_of("sft", load_in_4bit=False, max_length=length)
    assert load_of("sft", settings, SHAPE, False).regime.checkpoints == "none"
    hf = settings_of("sft", engine="hf", max_length=length)
    assert load_of("sft", hf, SHAPE, True).regime.checkpoints == "kept"


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


def test_a_split_has_its_own_number_of_records(tmp_path: Path) -> None:
    prepared(tmp_path)
    for split, rows in (("train", 100), ("dev", 10)):
        assert data_of("pairs", settings_of("pairs", split=split), tmp_path).rows == rows
    assert data_of("sft", settings_of("sft"), tmp_path).rows == 90  # a record may be several rows
    (tmp_path / "prep/done.json").unlink()
    assert data_of("sft", settings_of("sft"), tmp_path) == RowLengths()


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


@pytest.mark.parametrize("teacher", ["sft", "{run}/sft", f"{HALF}@{'a' * 40}"])
def test_a_teacher_may_be_a_stage_or_a_commit_of_the_hub(teacher: str, tmp_path: Path) -> None:
    stage(tmp_path / "sft", "sft", {"model": HALF})
    name = teacher.replace("{run}", str(tmp_path))
    settings = settings_of("distill", teacher=name, lmbda=0.0)
    assert with_teacher(SHAPE, settings, tmp_path).teacher == find_shape(HALF).parameters


@pytest.mark.parametrize("key", ["num_key_value_heads", "head_dim", "max_position_embeddings"])
def test_a_fact_that_is_null_is_one_that_is_not_given(key: str) -> None:
    config = json.loads(PUBLISHED.read_bytes())[HALF]
    without = {name: value for name, value in config.items() if name != key}
    assert shape_of({**config, key: None}, "") == shape_of(without, "")


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_of_a_step_that_vllm_samples_for_only_the_training_has_a_known_time(engine: str) -> None:
    settings = settings_of("grpo", engine=engine, vllm=True)
    machine = with_memory(24)
    load = load_of("grpo", settings, SHAPE, True)
    training = training_seconds(load, machine.card, settings.gradient_accumulation, load.length)
    found = plan("grpo", settings, SHAPE, machine, RowLengths()).time["seconds_a_step"]
    assert found == round(training, 2) > 0
    own = settings_of("grpo", engine=engine)
    assert plan("grpo", own, SHAPE, machine, RowLengths()).time["seconds_a_step"] > found


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


def test_no_answer_is_longer_than_a_row() -> None:
    settings = settings_of("pairs", engine="hf", batch_size=2, num_samples=3, max_new_tokens=256)
    load = load_of("pairs", settings, SHAPE, True, 64)
    assert (load.length, load.prompted, load.cached) == (64, 2, 2 + 6 * 64)
