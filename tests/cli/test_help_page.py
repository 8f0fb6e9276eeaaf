"""Help: every option has its type and its default as they are, on two pages that fit the screen."""

import inspect
import re
from collections import Counter
from itertools import cycle

import click
import pytest
from click.testing import CliRunner
from support.examples import sample

from agentlite.cli.main import COMMANDS, group
from agentlite.cli.options import MOST_OPTIONS, Command, CommandOptions, Option, read_option
from agentlite.config import resolve, settings
from agentlite.config.fields import COMMON, choices, fields_of, is_struct
from agentlite.config.resolve import UserSettings
from agentlite.config.settings import COMMANDS as STAGES
from agentlite.config.settings import fields
from agentlite.core.errors import UserError


def context(name: str) -> click.Context:
    parent = click.Context(group, info_name="agentlite", **group.context_settings)
    command = group.get_command(parent, name)
    assert isinstance(command, Command)
    return click.Context(command, info_name=name, parent=parent)


def options(name: str) -> list[Option]:
    command = context(name).command
    return [one for one in command.params if isinstance(one, Option)]


def page(name: str, *words: str, width: int = 80) -> str:
    shown = CliRunner().invoke(
        group, [name, *words], prog_name="agentlite", terminal_width=width, catch_exceptions=False
    )
    assert shown.exit_code == 0
    return shown.output


def is_setting(name: str, option: Option) -> bool:
    return name in STAGES and option.name in fields(name)


PROPER = {"DeepSpeed", "GiB", "Jaccard", "OpenAI-compatible", "Python"}
EVERY = [(name, option) for name in COMMANDS for option in options(name)]
SETTINGS = [(name, option) for name, option in EVERY if is_setting(name, option)]
TAKING = [(name, option) for name, option in EVERY if not option.is_flag]


def test_every_option_names_the_type_of_its_value_and_its_meaning():
    for name in COMMANDS:
        ctx = context(name)
        for option in options(name):
            head, _ = option.get_help_record(ctx)
            metavar = head.rpartition(" ")[2]
            assert option.is_flag == metavar.startswith("-"), head
            assert metavar not in ("VALUE", "TEXT,...", "BOOLEAN", "INTEGER"), head
            assert option.is_flag or metavar.upper() == metavar or "[" in metavar or "." in metavar
            first = str(option.help).split()[0]
            assert first.islower() or first in PROPER or first[:2].isupper(), first
            assert not str(option.help).endswith(".") and len(str(option.help)) < 160, option.help


def with_subclasses(struct):
    return [struct, *(one for below in struct.__subclasses__() for one in with_subclasses(below))]


DESCRIBED = [*filter(is_struct, vars(settings).values()), *with_subclasses(CommandOptions)]


@pytest.mark.parametrize("struct", [one for one in DESCRIBED if one.__struct_fields__])
def test_each_word_of_a_page_of_help_is_the_help_of_one_of_its_fields(struct):
    page = re.sub(r"(?s)\A.*?(?=^\w.*:\n|\Z)", "", inspect.getdoc(struct), flags=re.MULTILINE)
    sections = re.findall(r"^\w.*:$", page, re.MULTILINE)
    told = Counter(" ".join(sections).split())
    for key in re.findall(r"^    (\w+): ", page, re.MULTILINE):
        field = fields_of(struct)[key]
        told += Counter([f"{key}:", *field.help.split()])
        told += Counter(f"[{field.words}]".split() if field.words else [])
    assert told == Counter(page.split())


@pytest.mark.long
def test_the_short_page_has_about_a_dozen_options_and_names_the_full_one():
    for name in COMMANDS:
        pages = (page(name, option) for option in ("--help", "--help-all"))
        # many choices take two lines
        short, full = (text.replace("|\n      ", "|") for text in pages)
        own = (one.get_help_record(context(name))[0] for one in options(name))
        every = [*own, "--help-all", "-h, --help"]
        shown = [one for one in every if f"\n  {one}" in short]
        assert len(shown) - 1 <= MOST_OPTIONS
        assert [one for one in every if f"\n  {one}" in full] == every
        missing = len(every) - len(shown) - 1  # --help-all itself
        line = f"\n{missing} more options: agentlite {name} --help-all\n"
        assert (line in short) == bool(missing) and "more options" not in full
        assert short.index("Examples:") < short.index("Options:")


def test_a_stage_shows_its_own_options_and_where_it_writes():
    for name in STAGES:
        short = page(name, "--help")
        assert all(f"\n  {one} " in short for one in ("--run", "--out", "--force", "--dry-run"))
        own = [option for option in options(name) if is_setting(name, option)]
        assert 6 <= sum(COMMON in option.field.marks for option in own) <= 11


def test_help_fits_the_screen():
    for name, width in zip(COMMANDS, cycle([40, 60, 80, 200])):
        for text in (page(name, "--help", width=width), page(name, "--help-all", width=width)):
            examples = {line.strip() for line in COMMANDS[name].examples.splitlines()}
            long = [
                line
                for line in text.splitlines()
                if len(line) > width and line.strip() not in examples and " " in line.strip()
            ]
            assert not long


# --- defaults ---


def test_a_default_that_is_shown_as_a_value_can_be_typed_and_changes_nothing():
    for name, option in SETTINGS:
        field = fields(name)[option.name]
        if field.words or field.default in (None, "", (), {}):
            assert option.default_shown == field.words
        else:
            given = resolve.resolve(name, UserSettings({option.name: option.default_shown}))
            assert getattr(given.settings, option.name) == field.default, (name, option.name)


# --- values: what is shown is taken, and nothing else ---


WRONG = {"INT": "many", "FLOAT": "fast", "INT,...": "1,x"}


def read(name: str, option: Option, value: str) -> None:
    if is_setting(name, option):
        resolve.resolve(name, UserSettings({option.name: value}))
    else:
        given = (value,) if option.multiple else value
        read_option(str(option.name), option.field, given)


def test_a_wrong_value_is_refused_with_the_type_that_help_shows():
    for name, option in sample(100, TAKING):
        ctx = context(name)
        head, _ = option.get_help_record(ctx)
        metavar = head.rpartition(" ")[2]
        wrong = WRONG.get(metavar) or ("x" if metavar.startswith("[") and "|" in metavar else "")
        if not wrong or option.name == "profile":
            continue
        with pytest.raises((UserError, click.UsageError)) as refused:
            read(name, option, wrong)
        said = str(refused.value)
        if metavar in WRONG:
            assert f" does not fit {metavar}: " in said
            assert "For example --" in said or "Write it as --" in said
        else:
            assert "is not one of" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_can_be_typed_with_what_its_help_shows(name):
    """With each of its choices, or with its metavar, in which 3 stands for INT and .1 for FLOAT."""
    ctx = context(name)
    needed = [str(one.name) for one in ctx.command.params if one.required]
    for option in options(name):
        shown = "" if option.is_flag else str(option.make_metavar(ctx))
        metavar = shown.replace("INT", "3").replace("FLOAT", ".1").replace(",...", "")
        kind = None if option.is_flag else option.field.kind
        for value in choices(kind) or [metavar]:
            words = [*needed, option.opts[0], *filter(None, [value])]
            given = ctx.command.make_context(name, words, parent=ctx.parent).params
            if is_setting(name, option):
                resolve.resolve(name, UserSettings({option.name: given[option.name]}))


def test_a_switch_may_stand_alone_or_with_its_value():
    command = click.Command("c", params=[one for one in options("sft") if one.name == "full"])
    for words, value in (([], None), (["--full"], "true"), (["--full", "false"], "false")):
        assert command.make_context("c", words).params["full"] == value


def test_the_first_page_fits_60_lines():
    shown = CliRunner().invoke(group, ["--help"], prog_name="agentlite", terminal_width=80)
    assert len(shown.output.splitlines()) <= 60
