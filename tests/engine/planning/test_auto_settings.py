"""What `--profile auto` chooses, on cards of every size and for models of every size."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.engine.planning.auto_settings import CAUTION, auto_settings
from agentlite.engine.planning.estimate import RowLengths, load_of, plan
from agentlite.engine.planning.gpus import with_memory
from agentlite.engine.planning.memory import GIB, fits, memory
from agentlite.engine.planning.model_shape import PUBLISHED, find_shape

SIZES = (8, 10, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141)
MODELS = [name for name in json.loads(PUBLISHED.read_bytes()) if "/" in name]
TRAINERS, SAMPLERS = ("sft", "dpo", "grpo"), ("pairs", "eval")
SMALL_MACHINE = with_memory(12)
SMALL, SEVEN = (find_shape(f"Qwen/Qwen2.5-{size}-Instruct") for size in ("1.5B", "7B"))


def defaults(command: str, **flags):
    return resolve.resolve(command, resolve.Given(flags, profile="gpu")).settings


def planned(command, settings, shape, machine=SMALL_MACHINE) -> float:
    return memory(load_of(command, settings, shape, True, 0, machine.capacity)).total


def chosen(command, shape, machine, fixed=frozenset(), **flags):
    settings = defaults(command, **flags)
    return replace(settings, **auto_settings(command, settings, fixed, shape, machine).values)


def one_row(settings):
    """A micro-batch of one row, and a step of as many rows as before."""
    if not hasattr(settings, "gradient_accumulation"):
        return replace(settings, batch_size=1)
    rows = settings.batch_size * settings.gradient_accumulation
    return replace(settings, batch_size=1, gradient_accumulation=rows)


@pytest.mark.parametrize("gib", SIZES)
@pytest.mark.parametrize("command", [*TRAINERS, *SAMPLERS])
def test_whatever_fits_at_all_is_given_settings_that_fit(command, gib):
    machine = with_memory(gib)
    for model in MODELS:
        shape = find_shape(model)
        auto = chosen(command, shape, machine)
        least = one_row(replace(auto, load_in_4bit=True))
        if fits(planned(command, least, shape, machine), machine.capacity):
            assert fits(planned(command, auto, shape, machine), machine.capacity), model
        else:
            assert auto.load_in_4bit, model


@pytest.mark.parametrize("gib", SIZES)
@pytest.mark.parametrize("command", [*TRAINERS, *SAMPLERS])
def test_weights_are_in_16_bit_exactly_where_one_row_fits_with_a_fifth_to_spare(command, gib):
    for model in MODELS:
        shape, machine = find_shape(model), with_memory(gib)
        least = planned(command, one_row(defaults(command)), shape, machine)
        holds = least * (1 + CAUTION) <= machine.capacity
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
    values = auto_settings(command, settings, set(), find_shape(model), with_memory(gib)).values
    size = values.get("batch_size", values.get("batch_tokens", 0) // settings.max_length)
    assert size * values["gradient_accumulation"] == rows * accumulated
    assert ("batch_tokens" in values) == (command == "sft" and packing)


@pytest.mark.parametrize("command", TRAINERS)
def test_a_larger_card_never_gets_fewer_bits_and_with_the_same_never_fewer_rows(command):
    for model in MODELS:
        found = [chosen(command, find_shape(model), with_memory(gib)) for gib in SIZES]
        for smaller, larger in itertools.pairwise(found):
            assert larger.load_in_4bit <= smaller.load_in_4bit, model
            if larger.load_in_4bit == smaller.load_in_4bit:
                assert larger.batch_size >= smaller.batch_size, model


def test_a_model_of_15_hundred_million_on_12_gb_runs_in_16_bit_with_a_whole_step_at_once():
    auto = chosen("sft", SMALL, with_memory(12))
    assert (auto.load_in_4bit, auto.batch_size, auto.gradient_accumulation) == (False, 16, 1)


def test_what_was_set_stays_and_the_rest_is_chosen_around_it():
    machine = with_memory(12)
    four = chosen("sft", SMALL, machine, {"load_in_4bit"}, load_in_4bit=True)
    assert (four.load_in_4bit, four.batch_size) == (True, 16)
    rows = chosen("sft", SEVEN, machine, {"batch_size"}, batch_size=3)
    assert (rows.load_in_4bit, rows.batch_size, rows.gradient_accumulation) == (True, 3, 4)
    for shape in (SMALL, SEVEN):  # also where they do not fit
        eight = chosen("sft", shape, with_memory(8), load_in_8bit=True)
        assert eight.load_in_8bit and not eight.load_in_4bit
    few, many = (
        chosen("sft", SMALL, with_memory(8), {"batch_size"}, batch_size=rows) for rows in (1, 16)
    )
    assert not few.load_in_4bit and many.load_in_4bit  # so many rows fit in 4 bit only


def test_an_adapter_that_was_trained_in_4_bit_stays_in_it():
    settings = defaults("dpo")
    values = auto_settings("dpo", settings, set(), SMALL, with_memory(80), 0, True).values
    assert values["load_in_4bit"] is True


def test_rows_that_are_known_to_be_short_make_larger_micro_batches():
    settings = defaults("sft")
    by_longest = [
        auto_settings("sft", settings, set(), SEVEN, with_memory(12), longest).values["batch_size"]
        for longest in (2048, 256)
    ]
    assert by_longest[0] < by_longest[1] == 16


def test_where_only_sampling_is_too_much_the_micro_batch_stays_large():
    """A smaller one would not sample fewer answers; the sampler halves its own batches. Unsloth's
    takes no more than fit.
    """
    machine = with_memory(10)
    auto = chosen("grpo", SEVEN, machine, engine="hf")
    larger = replace(
        auto,
        batch_size=2 * auto.batch_size,
        gradient_accumulation=auto.gradient_accumulation // 2,
    )
    assert auto.batch_size > 1
    assert planned("grpo", auto, SEVEN) > machine.capacity
    assert planned("grpo", larger, SEVEN) > planned("grpo", auto, SEVEN)


@pytest.mark.parametrize(
    ("shape", "machine", "words"),
    [
        (SMALL, with_memory(12), "16 bit and batch_size 16 x 1 take 7.7 of 12.0 GiB, calculated"),
        (SEVEN, with_memory(12), "; 16 bit would take 16.2 or more"),
        (SEVEN, with_memory(7), "less than 8% free: take a smaller model or max_length"),
        (SMALL, with_memory(12)._replace(name="Tesla T4"), "GiB free on Tesla T4, calculated"),
        (SMALL, with_memory(12)._replace(bf16=False), "; float16, as the card has no bfloat16"),
    ],
)
def test_the_reason_is_one_line_with_the_numbers_that_decided(shape, machine, words):
    reason = auto_settings("sft", defaults("sft"), set(), shape, machine).reason
    assert words in reason and "\n" not in reason


def test_plain_trl_keeps_a_share_of_the_card_for_vllms_own_weights():
    machine = with_memory(12)
    plain, usual, more = (
        chosen("grpo", SMALL, machine, engine="hf", **flags)
        for flags in (
            {},
            {"vllm": True, "trl": {"vllm_gpu_memory_utilization": 0.4}},
            {"vllm": True, "trl": {"vllm_gpu_memory_utilization": 0.6}},
        )
    )
    assert not plain.load_in_4bit and not usual.load_in_4bit
    assert plain.batch_size > usual.batch_size
    assert more.load_in_4bit  # 4.8 of 12 GB are left
    for auto, share in ((usual, 0.4), (more, 0.6)):
        load = load_of("grpo", auto, SMALL, True)
        assert not load.sampled and fits(memory(load).total, (1 - share) * machine.capacity)
    by_default = plan("grpo", replace(plain, vllm=True), SMALL, machine, RowLengths())
    assert by_default.gib.of == pytest.approx(0.7 * 12) and not by_default.vllm


def test_unsloth_has_the_weights_once_and_a_cache_that_stays():
    machine, answers = with_memory(12), 16
    alone = chosen("grpo", SMALL, machine)
    shared = plan("grpo", replace(alone, vllm=True), SMALL, machine, RowLengths())
    before = plan("grpo", alone, SMALL, machine, RowLengths())
    assert shared.gib.of == 12 and shared.gib.moment == "backward" == before.gib.moment
    for term, gib in before.gib.terms.items():
        assert shared.gib.terms[term] == gib  # weights among them
    # four prompts once, and sixteen answers
    tokens = answers // 4 * (2048 - 256) + answers * 256
    assert shared.vllm["cached_tokens"] == tokens
    per_token = 2 * SMALL.layers * SMALL.kv_heads * SMALL.head_dim * 2
    assert shared.gib.terms["kv_cache"] == pytest.approx(tokens * per_token / 0.95 / GIB, abs=0.01)
    own = sum(shared.gib.terms[name] for name in ("weights", "overhead", "vllm", "kv_cache"))
    assert own / 12 <= shared.vllm["share"] < own / 12 + 0.012
    longest = replace(alone, vllm=True, batch_size=2, group_size=2, max_new_tokens=8)
    one_row = plan("grpo", longest, SMALL, machine, RowLengths(longest=64))
    assert one_row.vllm["cached_tokens"] > longest.max_length  # else Unsloth would shorten it


def test_a_share_that_is_set_holds_the_weights():
    machine = with_memory(12)
    shared = replace(chosen("grpo", SMALL, machine), vllm=True)
    by_hand = replace(shared, trl={"vllm_gpu_memory_utilization": 0.5})
    planned = plan("grpo", by_hand, SMALL, machine, RowLengths())
    assert planned.gib.of == 6 and not planned.vllm
    assert not {"weights", "kv_cache", "vllm"} & planned.gib.terms.keys()
    assert planned.gib.total < plan("grpo", shared, SMALL, machine, RowLengths()).gib.total
