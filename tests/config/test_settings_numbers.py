"""Every number of every command: a clear refusal, or a plan that JSON can hold."""

import math
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Meta

from agentlite.config import resolve
from agentlite.config.fields import MAX_INT, MAX_SEED
from agentlite.config.resolve import UserSettings
from agentlite.config.settings import COMMANDS, fields
from agentlite.core.errors import USAGE, UserError

ODD = [
    "inf",
    "-inf",
    "nan",
    ".inf",
    ".nan",
    "1e308",
    "-1e308",
    "1e400",
    "-1",
    "-0.0",
    "1e-320",
    "1" + "0" * 20,
    "-1" + "0" * 20,
    "1" + "0" * 400,
    "0x10",
    "1_000",
    "٣",
    "",
    " ",
    "1.5",
]


def numbers(kind: Any) -> list[tuple[type, tuple[Meta, ...]]]:
    """The int and float types within a type, with their bounds."""
    found = [
        (inner, marks)
        for part in get_args(kind)
        if not isinstance(part, Meta)
        for inner, marks in numbers(part)
    ]
    marks = tuple(mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, Meta))
    if kind in (int, float):
        found.append((kind, ()))
    return [(inner, (*own, *marks)) for inner, own in found]


NUMERIC = [
    (command, key)
    for command in COMMANDS
    for key, field in fields(command).items()
    if numbers(field.kind)
]


def test_every_numeric_setting_has_two_bounds_unless_it_is_checked_where_it_is_used():
    assert len(NUMERIC) > 90
    for command, key in NUMERIC:
        for inner, marks in numbers(fields(command)[key].kind):
            bounds = {
                name
                for mark in marks
                for name in ("ge", "gt", "le", "lt")
                if getattr(mark, name) is not None
            }
            is_checked_later = key in ("weights", "task_weights")
            assert is_checked_later or len(bounds) == 2, (command, key, inner, bounds)


def resolved(command: str, key: str, text: str) -> Any:
    """The values, as a flag and as --set give it; none where both are refused."""
    found, refusals = [], []
    by_flag = UserSettings({key: text}, profile="cpu")
    for given_ in (by_flag, UserSettings(sets=(f"{command}.{key}={text}",))):
        try:
            settings = resolve.resolve(command, given_).settings
        except UserError as error:
            refusals.append((error.exit_code, bool(error.location and error.problem)))
            continue
        plain = resolve.plain_settings(settings)
        # what JSON cannot hold comes back as null
        assert msgspec.convert(plain[key], fields(command)[key].kind) == getattr(settings, key)
        found.append(getattr(settings, key))
    assert {*refusals} <= {(USAGE, True)}
    return found


@pytest.mark.long
@given(
    at=st.sampled_from(NUMERIC),
    text=st.sampled_from(ODD) | st.integers().map(str) | st.floats().map(str) | st.text(max_size=8),
)
@example(("sft", "learning_rate"), "inf")
@example(("sft", "seed"), "-1")
@example(("grpo", "max_steps"), "1" + "0" * 23)
@example(("prep", "task_weights"), "a=inf")
@example(("pairs", "weights"), '{"exact": 1e999}')
@example(("retriever", "sizes"), "1,1e30")
def test_any_number_is_refused_or_can_be_planned_with(at, text):
    for value in resolved(*at, text):
        if isinstance(value, int | float):
            assert math.isfinite(value) and abs(value) <= max(MAX_INT, MAX_SEED)
