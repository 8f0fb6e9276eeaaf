"""What `--profile auto` chooses, on cards of every size and for models of every size."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.engine.planning.choose import auto_settings
from agentlite.engine.planning.estimate import estimate, load_of
from agentlite.engine.planning.gpus import machine_with_memory
from agentlite.engine.planning.memory import CAUTION, fits, memory
from agentlite.engine.planning.model_shape import PUBLISHED, find_shape

SIZES = (8, 10, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141)
MODELS = [name for name in json.loads(PUBLISHED.read_bytes()) if "/" in name]
TRAINERS, SAMPLERS = ("sft", "dpo", "grpo"), ("pairs", "eval")
SMALL, SEVEN = (find_shape(f"Qwen/Qwen2.5-{size}-Instruct") for size in ("1.5B", "7B"))


def defaults(command: str, **flags):
    return resolve.resolve(command, resolve.UserSettings(flags, profile="gpu")).settings


def planned(settings, shape, machine) -> float:
    return memory(load_of(settings, shape, True, 0, machine.capacity)).total


def chosen(command, shape, machine, fixed=frozenset(), **flags):
    settings = defaults(command, **flags)
    return replace(settings, **auto_settings(settings, fixed, shape, machine).values)


def one_row(settings):
    """A micro-batch of one row, and a step of as many rows as before."""
    if not hasattr(settings, "gradient_accumulation"):
        return replace(settings, batch_size=1)
    rows = settings.batch_size * settings.gradient_accumulation
    return replace(settings, batch_size=1, gradient_accumulation=rows)


@pytest.mark.parametrize("gib", SIZES)
@pytest.mark.parametrize("command", [*TRAINERS, *SAMPLERS])
def test_whatever_fits_at_all_is_given_settings_that_fit(command, gib):
    machine = machine_with_memory(gib)
    for model in MODELS:
        shape = find_shape(model)
        auto = chosen(command, shape, machine)
        least = one_row(replace(auto, load_in_4bit=True))
        if fits(planned(least, shape, machine), machine.capacity):
            assert fits(planned(auto, shape, machine), machine.capacity), model
        else:
            assert auto.load_in_4bit, model


@pytest.mark.parametrize("gib", SIZES)
@pytest.mark.parametrize("command", [*TRAINERS, *SAMPLERS])
def test_weights_are_in_16_bit_exactly_where_one_row_fits_with_a_fifth_to_spare(command, gib):
    for model in MODELS:
        shape, machine = find_shape(model), machine_with_memory(gib)
        moments = estimate(one_row(defaults(command)), shape, machine).moments
        trained = [total for moment, total in moments.items() if moment != "sampling"]
        holds = fits(max(moments.values()), machine.capacity)
        holds &= max(trained or moments.values()) * (1 + CAUTION) <= machine.capacity
        assert chosen(command, shape, machine).load_in_4bit is not holds, model


@given(
    st.sampled_from(TRAINERS),
    st.sampled_from(MODELS),
    st.sampled_from(SIZES),
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
)
def test_a_step_keeps_its_rows(command, model, gib, rows, accumulated, packing):
    settings = replace(defaults(command), batch_size=rows, gradient_accumulation=accumulated)
    if command == "sft" and packing:
        settings = replace(settings, packing=True, batch_tokens=rows * settings.max_length)
    values = auto_settings(settings, set(), find_shape(model), machine_with_memory(gib)).values
    size = values.get("batch_size", values.get("batch_tokens", 0) // settings.max_length)
    assert size * values["gradient_accumulation"] == rows * accumulated
    assert ("batch_tokens" in values) == (command == "sft" and packing)


@pytest.mark.parametrize("command", TRAINERS)
def test_a_larger_card_never_gets_fewer_bits_and_with_the_same_never_fewer_rows(command):
    for model in MODELS:
        found = [chosen(command, find_shape(model), machine_with_memory(gib)) for gib in SIZES]
        for smaller, larger in itertools.pairwise(found):
            assert larger.load_in_4bit <= smaller.load_in_4bit, model
            if larger.load_in_4bit == smaller.load_in_4bit:
                assert larger.batch_size >= smaller.batch_size, model


def test_an_adapter_that_was_trained_in_4_bit_stays_in_it():
    settings = defaults("dpo")
    values = auto_settings(settings, set(), SMALL, machine_with_memory(80), 0, True).values
    assert values["load_in_4bit"] is True
