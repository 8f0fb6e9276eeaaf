"""A filled form is the command that a person would type: the same settings, and no other words."""

import shlex
from contextlib import suppress

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlite.cli.main import group
from agentlite.config.pipeline import STAGES
from agentlite.config.settings import fields
from agentlite.core.errors import UserError
from agentlite.deploy.board.stage_form import as_typed_command, form, words
from agentlite.workspace.stage_name import refuse_odd_name

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\x0b\x0c"), min_size=1)


def read(typed: list[str]) -> tuple[str, dict[str, object]]:
    """What the command line makes of the words."""
    name, *rest = typed
    command = group.get_command(click.Context(group), name)
    assert command
    context = command.make_context(name, rest)
    return name, {key: value for key, value in context.params.items() if value not in (None, ())}


@pytest.mark.parametrize("stage", STAGES)
def test_a_form_has_every_setting_with_its_help_and_an_empty_one_changes_none(stage):
    made = form(stage)
    assert [one["key"] for one in made["fields"]] == [*fields(stage)]
    assert all(one["help"] for one in made["fields"])
    if stage in ("prep", "make"):
        return  # these need an argument
    name, given_to_it = read(words(stage, "runs/a", dict.fromkeys(fields(stage), "")))
    usual = read([stage, "--run", "runs/a"])[1]
    assert (name, given_to_it) == (stage, usual)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(text=TEXT.filter(lambda text: text.strip() == text and text))
def test_no_text_in_a_field_becomes_another_option(text):
    values = {"model": text, "report_to": "wandb"}
    with suppress(UserError):  # a text that no stage may be called
        refuse_odd_name(text, "sft")
        values["out"] = text
    typed = words("sft", "runs/a", values)
    _, read_back = read(typed)
    assert (read_back["model"], read_back["run"]) == (text, "runs/a")
    assert read_back.get("out") == values.get("out")
    assert read_back["force"] is False
    assert shlex.split(as_typed_command(typed)) == ["agentlite", *typed]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(names=st.lists(TEXT.filter(lambda text: text.strip() == text and text), min_size=1))
def test_no_name_of_a_file_becomes_an_option(names):
    names = [line for name in names for line in name.splitlines() if line.strip() == line and line]
    _, read_back = read(words("prep", "runs/a", {"sources": "\n".join(names), "force": "true"}))
    assert list(read_back["sources"]) == names and read_back["force"] is True  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"lora_r": "64", "force": "true", "dry_run": "false"}, ["--lora-r=64", "--force"]),
        ({"trl": "{weight_decay: 0.01}"}, ["--set", "sft.trl={weight_decay: 0.01}"]),
        ({"load_in_4bit": "false"}, ["--load-in-4bit=false"]),
    ],
)
def test_values_are_written_as_they_are_typed(values, expected):
    assert words("sft", "", values) == ["sft", *expected]


def test_a_field_of_several_has_one_on_each_line():
    typed = words("eval", "r", {"model": "a\n\n b \n"})
    assert typed == ["eval", "--run", "r", "--model=a", "--model=b"]


@pytest.mark.parametrize(
    ("stage", "values", "problem"),
    [
        ("sft", {"lora_r": "many"}, "does not fit INT"),
        ("sft", {"lora-r": "4"}, "no setting 'lora-r'"),
        ("sft", {"run": "/"}, "no setting 'run'"),
        ("sft", {"debug": "true"}, "no setting"),
        ("serve", {}, "no stage 'serve'"),
        ("grpo", {"loss_type": "nothing"}, "is not one of"),
        ("sft", {"model": "a\0b"}, "NUL"),
        ("sft", {"trl": "{a: ["}, "YAML"),
    ],
)
def test_what_the_command_would_refuse_is_refused_in_its_words(stage, values, problem):
    with pytest.raises(UserError, match=problem):
        words(stage, "r", values)
