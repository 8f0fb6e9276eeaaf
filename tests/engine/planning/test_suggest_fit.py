"""The settings that would fit: for which weights, rows and machines they are."""

from typing import Any

import pytest

from agentlite.config import resolve
from agentlite.engine.planning.gpus import Machine, with_memory
from agentlite.engine.planning.memory import GIB
from agentlite.engine.planning.model_shape import find_shape
from agentlite.engine.planning.suggest_fit import FittingRows, fitting
from agentlite.engine.planning.time_and_disk import CARDS

SEVEN, SMALL = find_shape("Qwen/Qwen2.5-7B-Instruct"), find_shape("smollm2-135m")


def settings_of(command: str, **changed: Any) -> Any:
    return resolve.resolve(command, resolve.Given(changed, profile="rtx4090")).settings


def pasted(one: FittingRows) -> dict[str, str]:
    words = one.paste.replace("--set ", "").split()
    return dict(word.partition(".")[2].split("=") for word in words)


def test_without_a_card_there_are_weights_of_32_bit_alone() -> None:
    machine = Machine(False, CARDS["cpu"], 8 * GIB)
    [one] = fitting("sft", settings_of("sft", load_in_4bit=False), SMALL, machine)
    assert one.bits == 32 and one.batch_size and pasted(one)["load_in_4bit"] == "false"


def test_short_rows_fit_in_larger_number_and_the_longest_that_fits_is_the_same() -> None:
    machine, settings = with_memory(12), settings_of("sft", max_length=2048)
    by_limit, by_data = (fitting("sft", settings, SEVEN, machine, one)[0] for one in (0, 300))
    assert (by_limit.length, by_data.length) == (2048, 300)
    assert by_data.batch_size > by_limit.batch_size
    assert by_data.max_length == by_limit.max_length


@pytest.mark.parametrize(("rows", "accumulated"), [(2, 8), (3, 5), (16, 1)])
def test_a_micro_batch_is_the_whole_step_where_that_fits(rows: int, accumulated: int) -> None:
    settings = settings_of("sft", batch_size=rows, gradient_accumulation=accumulated)
    one = fitting("sft", settings, SMALL, with_memory(24))[1]
    assert one.batch_size >= rows * accumulated
    found = pasted(one)
    assert found["batch_size"] == str(rows * accumulated) and found["gradient_accumulation"] == "1"


def test_a_step_is_cut_into_equal_parts() -> None:
    """Of 15 rows, of which 4 to 14 fit, three or five are a micro-batch."""
    settings = settings_of("sft", batch_size=15, gradient_accumulation=1, max_length=2048)
    one = fitting("sft", settings, SEVEN, with_memory(12))[0]
    assert 5 <= one.batch_size < 15
    assert (pasted(one)["batch_size"], pasted(one)["gradient_accumulation"]) == ("5", "3")
