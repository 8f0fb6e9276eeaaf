"""The planner: its terms against what others published, what must hold of any plan, and what a user
is told.
"""

import csv
import hashlib
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.config import resolve, this_machine
from agentlite.config.settings import COMMANDS as SETTINGS
from agentlite.engine.planning.choose import find_fitting_rows
from agentlite.engine.planning.estimate import RowLengths, data_of, load_of, plan
from agentlite.engine.planning.gpus import machine_of, machine_with_memory
from agentlite.engine.planning.memory import GIB, REGIMES, Load, Regime, fits, fixed_bytes, memory
from agentlite.engine.planning.model_shape import Shape, base_of, find_shape

POINTS = Path(__file__).with_name("published_memory.csv")
COMMANDS = tuple(name for name, settings in SETTINGS.items() if hasattr(settings, "in_memory"))
SEVEN = find_shape("Qwen/Qwen2.5-7B-Instruct")
# Facts of the models' config.json: layers, hidden, heads, kv heads, head dim, intermediate,
# vocabulary, tied.
SHAPES = {
    "llama-3.1-8b": Shape(32, 4096, 32, 8, 128, 14336, 128256, False, 1),
    "llama-3.3-70b": Shape(80, 8192, 64, 8, 128, 28672, 128256, False, 1),
    "llama-3.2-3b": Shape(28, 3072, 24, 8, 128, 8192, 128256, True, 1),
    "llama-2-7b": Shape(32, 4096, 32, 32, 128, 11008, 32000, False, 1),
    "llama-2-13b": Shape(40, 5120, 40, 40, 128, 13824, 32000, False, 1),
    "llama-2-70b": Shape(80, 8192, 64, 8, 128, 28672, 32000, False, 1),
    "codellama-34b": Shape(48, 8192, 64, 8, 128, 22016, 32000, False, 1),
    "qwen-1.8b": Shape(24, 2048, 16, 16, 128, 5504, 151936, False, 1),
    "qwen-7b": Shape(32, 4096, 32, 32, 128, 11008, 151936, False, 1),
    "qwen-14b": Shape(40, 5120, 40, 40, 128, 13696, 152064, False, 1),
}
# What each tool did when its table was made, by its code and documentation. torchtune and LitGPT
# print PyTorch's own peak, without the rest of a process; Unsloth's loss of 2024 had logits in 16
# bit and their
# gradient, beside the block.
TOOLS = {
    "unsloth": REGIMES["unsloth"],
    "unsloth-2024": REGIMES["unsloth"],
    "eager": REGIMES["hf"]._replace(fused=False),
    "sampling": REGIMES["hf"],
    "torchtune": Regime("kept", overhead=0),
    "litgpt": Regime("none", fused=False, overhead=0),
}
# Four sequences on Qwen-7B are said to take 7.8 GB more than one, and sixteen only 7.6 more than
# four. It is one of the points kept out, and the constants are not bent to it.
FALSE_FIT = ("qwen readme", "sampling", "24.1")


def published() -> list[tuple[dict[str, str], float, bool]]:
    """Each point, the GiB planned for it, and whether it was kept out while the constants were
    set.
    """
    found = []
    with open(POINTS, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            keys = ("source", "model", "tool", "bits", "rows", "length", "cached_columns")
            name = " ".join(row[key] for key in keys)
            kept_out = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0
            names = ("bits", "lora_r", "rows", "length")
            names += ("sampled_answers", "cached_columns", "prompt_tokens")
            counts = {name: int(row[name]) for name in names}
            load = Load(
                SHAPES[row["model"]],
                TOOLS[row["tool"]],
                targets=tuple(row["targets"].split()),
                optimizer="adamw_torch" if row["tool"] == "eager" else "adamw_8bit",
                **counts,
            )
            beside = 4 * load.tokens * load.shape.vocab if row["tool"] == "unsloth-2024" else 0
            found.append((row, (memory(load).total + beside) / GIB, kept_out))
    return found


@pytest.mark.parametrize("kept_out", [True, False])
def test_published_points_are_planned_within_the_promised_error(kept_out):
    errors = [
        abs(planned / float(row["gib"]) - 1) for row, planned, out in published() if out == kept_out
    ]
    assert len(errors) >= 22
    assert statistics.median(errors) <= 0.08
    assert sum(error <= 0.20 for error in errors) >= 0.95 * len(errors)


def test_what_is_said_to_fit_a_card_did_fit_but_for_one_point_of_65():
    wrong = [
        (row["source"], row["tool"], row["gib"])
        for row, planned, _ in published()
        for card in (8, 12, 16, 24, 40, 48, 80)
        if fits(planned, card) and float(row["gib"]) > card
    ]
    assert wrong == [FALSE_FIT]


def settings_of(command: str, **changed: Any) -> Any:
    return resolve.resolve(command, resolve.UserSettings(changed, profile="rtx4090")).settings


def total(command: str, shape: Shape = SEVEN, gpu: bool = True, **changed: Any) -> float:
    return memory(load_of(settings_of(command, **changed), shape, gpu)).total


ENGINES = st.sampled_from(["unsloth", "hf"])


@given(st.sampled_from(COMMANDS), ENGINES, st.integers(1, 64), st.integers(600, 30000))
def test_more_rows_and_longer_ones_never_take_less(command, engine, rows, length):
    """But for sampling at a length from which on fewer answers have room in the cache at once."""

    def load(rows, length):
        settings = settings_of(command, batch_size=rows, max_length=length, engine=engine)
        return load_of(settings, SEVEN, True)

    once, more, longer = load(rows, length), load(rows + 1, length), load(rows, length + 1)
    assert memory(once).total <= memory(more).total
    fewer = longer.sampled_answers < once.sampled_answers
    assert memory(once).total <= memory(longer).total or fewer


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("gib", [12, 24, 80])
def test_what_fits_fits_and_one_more_does_not(command, gib):
    settings, machine = settings_of(command), machine_with_memory(gib)
    for one in find_fitting_rows(command, settings, SEVEN, machine):
        bits = {"load_in_4bit": one.bits == 4}

        def holds(bits=bits, **changed):
            return fits(total(command, **bits, **changed), machine.capacity)

        step = settings.batch_size * getattr(settings, "gradient_accumulation", 1)
        larger = [size for size in range(one.batch_size + 1, step + 1) if step % size == 0]
        assert not larger or not holds(batch_size=larger[0])
        assert not one.batch_size or holds(batch_size=one.batch_size)
        assert not one.max_length or holds(batch_size=1, max_length=one.max_length)
        assert one.max_length == SEVEN.max_positions or not holds(
            batch_size=1, max_length=one.max_length + 1
        )


@pytest.mark.parametrize("command", ["sft", "dpo", "grpo"])
def test_the_settings_to_paste_fit_and_keep_the_rows_of_a_step(command):
    settings, machine = settings_of(command), machine_with_memory(24)
    for one in find_fitting_rows(command, settings, SEVEN, machine):
        sets = tuple(text.strip() for text in one.paste.split("--set ")[1:])
        given = resolve.UserSettings(sets=sets, profile="rtx4090")
        pasted = resolve.resolve(command, given).settings
        assert fits(memory(load_of(pasted, SEVEN, True)).total, machine.capacity)
        assert (
            pasted.batch_size * pasted.gradient_accumulation
            == settings.batch_size * settings.gradient_accumulation
        )


def prepared(run: Path, longest: int) -> None:
    """The traces of a finished prep that the planner reads."""
    folder = run / "prep"
    folder.mkdir(parents=True)
    stats = {
        "train": 100,
        "dev": 10,
        "test": 20,
        "train_rows": 90,
        "by_source": {"file": 130},
        "length": {"50%": 300, "100%": longest},
        "turns": {"50%": 2},
        "tokens": {"all": 39000},
    }
    plan_file = {
        "command": "prep",
        "settings": {"model": "smollm2-135m", "protocol": "hermes"},
        "inputs": {},
    }
    for name, content in (
        ("stats", stats),
        ("plan", plan_file),
        ("done", {"outputs": {}, "figures": {}, "seconds": 1}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def test_the_longest_row_of_the_data_is_what_is_planned_for(tmp_path):
    prepared(tmp_path, 777)
    assert base_of("prep", tmp_path) == "smollm2-135m"
    settings = settings_of("sft")
    data = data_of(settings, tmp_path)
    assert data == RowLengths(90, 777, 300)
    planned = plan(settings, SEVEN, machine_with_memory(24), data)
    assert (planned.length, planned.length_from) == (777, "prep")
    assert planned.time["steps"] == -(-90 * 3 // 16)
    assert plan(settings, SEVEN, machine_with_memory(24), RowLengths()).length_from == "max_length"
    for limit, rows in ((None, 100), (30, 30)):  # two turns of each are asked
        drawn = data_of(settings_of("pairs", limit=limit), tmp_path)
        assert drawn == RowLengths(2 * rows, 777 + 256, 300)
    assert data_of(settings_of("eval", split="all"), tmp_path).rows == 2 * 130


def test_a_dry_run_that_does_not_fit_names_what_would(monkeypatch, capsys):
    from agentlite.engine.planning.choose import dry_run_memory

    monkeypatch.setattr(this_machine, "find_gpu", lambda: this_machine.Gpu("RTX 3060", 12.0, 12.0))
    told = dry_run_memory(
        "sft", settings_of("sft", batch_size=64), "Qwen/Qwen2.5-7B-Instruct", 2000
    )
    assert not told["fits"] and told["of"] == 12
    assert "what fits: --set sft.load_in_4bit=true" in capsys.readouterr().err
    small = dry_run_memory("sft", settings_of("sft", batch_size=1), "smollm2-135m", 100)
    assert small["fits"] and not capsys.readouterr().err


@pytest.mark.parametrize("profile", sorted(this_machine.PROFILES))
@pytest.mark.parametrize("command", ["sft", "dpo", "grpo", "pairs", "eval"])
def test_a_7b_model_fits_the_card_that_a_profile_is_named_for(profile: str, command: str) -> None:
    settings = resolve.resolve(command, resolve.UserSettings(profile=profile)).settings
    shape = find_shape("Qwen/Qwen2.5-7B-Instruct")
    assert plan(settings, shape, machine_of(profile), RowLengths()).gib.fits


CACHED = (*(f"Qwen2.5-{size}B-Instruct" for size in (0.5, 1.5, 3, 7)), "Qwen3-8B")


@pytest.mark.parametrize("name", CACHED)
def test_what_a_plan_says_fits_has_room_for_unsloths_buffers_as_well(name: str) -> None:
    """While each prompt's columns are copied, buffers of prompt + 513 columns, in steps of 256, are
    there for every row, and a token of all rows is drawn: 480 settings of five models.
    """
    shape, fitted = find_shape(f"Qwen/{name}"), 0
    for gib, in_4bit, (prompt, new), answers, micro in itertools.product(
        (12, 24),
        (True, False),
        ((300, 64), (300, 256), (1000, 256), (2000, 512)),
        (16, 64, 256),
        (1, 4),
    ):
        settings = settings_of(
            "grpo",
            load_in_4bit=in_4bit,
            max_length=prompt + new,
            max_new_tokens=new,
            batch_size=micro,
            gradient_accumulation=answers // micro,
        )
        load = load_of(settings, shape, True, card=gib * GIB)
        assert load.sampled_answers <= answers
        buffers = -(-(prompt + 513) // 256) * 256
        per_token = 2 * shape.layers * shape.kv_heads * shape.head_dim * 2
        need = fixed_bytes(load) + load.sampled_answers * (buffers * per_token + 2 * shape.vocab)
        need += -(-load.sampled_answers // settings.group_size) * prompt * per_token
        if plan(settings, shape, machine_with_memory(gib), RowLengths()).gib.fits:
            fitted += 1
            assert need <= gib * GIB, (gib, in_4bit, prompt, new, answers)
    assert fitted


def test_what_unsloth_keeps_in_host_memory_is_planned() -> None:
    """The input of every block, of every token of a micro-batch, in 16 bit."""
    long = settings_of("sft", max_length=32768, batch_size=1)
    kept = plan(long, SEVEN, machine_with_memory(24), RowLengths()).host_gib
    assert kept == round(28 * 32768 * 3584 * 2 / GIB, 2)
    plain = settings_of("sft", max_length=32768, batch_size=1, engine="hf")
    assert plan(plain, SEVEN, machine_with_memory(24), RowLengths()).host_gib == 0
