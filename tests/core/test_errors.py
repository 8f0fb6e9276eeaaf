"""The fix that an unknown name gets; the share of rows that may be wrong."""

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from agentlite.cli.main import COMMANDS
from agentlite.config.pipeline import STAGES
from agentlite.config.settings import fields
from agentlite.core import errors
from agentlite.core.errors import OTHER_NAMES, UserError, closest, exceeds_share, suggest


def test_an_unknown_name_gets_the_closest_one_or_else_all_or_another_way_out():
    assert suggest("grop", ["dpo", "grpo"]) == "Did you mean 'grpo'?"
    assert suggest("lora_rr", ["lora_r"], prefix="sft.") == "Did you mean 'sft.lora_r'?"
    assert suggest("xyz", ["dpo", "grpo"]) == "Known: dpo, grpo."
    assert suggest("xyz", ["dpo"], fallback="Look there.") == "Look there."
    assert suggest("xyz", ["dpo"], fallback="") == ""
    assert closest("xyz", []) == ""


def test_the_exit_codes_are_those_that_scripts_know():
    assert UserError("x").exit_code == errors.USAGE == 2
    assert (errors.OTHER_PLAN, errors.REJECTS, errors.MODEL, errors.DIVERGED) == (3, 4, 5, 6)
    assert (errors.OUT_OF_MEMORY, errors.NETWORK, errors.GATE) == (7, 8, 9)
    assert (errors.DISK, errors.LOCKED) == (74, 75)


def test_other_names_are_of_one_thing_each_and_names_of_ours_stay_what_they_are():
    commands = {name: command.other_names for name, command in COMMANDS.items()}
    for table in (OTHER_NAMES, commands):
        others = [other for names in table.values() for other in names.split()]
        assert len({*others}) == len(others)
    assert not {*others} & {*COMMANDS}
    for known in ([*COMMANDS], *([*fields(command)] for command in STAGES)):
        assert [closest(name, known) for name in known] == known


@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(0, 1000), st.integers(0, 1))
@example(100, 29, 290, 1)  # .29 * 100 is less than 29
@example(50, 29, 580, 0)
def test_a_share_that_is_just_reached_is_not_too_many(count, wrong, thousandths, spare):
    share = float(f"{thousandths / 1000:.3f}")
    more = wrong > spare and Fraction(wrong, count) > Fraction(thousandths, 1000)
    assert exceeds_share(wrong, count, share, spare) == more
