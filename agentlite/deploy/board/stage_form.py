"""A stage's settings -> a form for the board; what was filled in -> the command that it runs."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from agentlite.config.metavars import as_typed, choices, metavar
from agentlite.config.pipeline import STAGES
from agentlite.config.resolve import Given, resolve, weightings
from agentlite.config.settings import (
    default,
    default_in_words,
    describe,
    fields,
    flag_of,
    is_common,
    section_of,
)
from agentlite.core.errors import UserError, nearest
from agentlite.workspace.stage_name import refuse_odd_name

ARGUMENTS = {"prep": "sources", "make": "what"}  # settings that stand without an option
MAPPINGS = ("trl", "peft")  # written with --set
OPTIONS = {  # of every stage, beside its settings
    "out": "name of the stage's folder in the workspace",
    "force": "start over, and discard earlier results",
    "dry_run": "check everything, write nothing",
    "profile": "settings for a machine; auto chooses by model and free memory",
}
SWITCHES = ("force", "dry_run")
LONGEST = 10_000  # characters of a value


def form(command: str) -> dict[str, Any]:
    """The fields of a stage's form, from its settings alone."""
    _check_command(command)
    return {
        "command": command,
        "help": STAGES[command].help,
        "fields": [_field(command, key) for key in fields(command)],
        "options": [
            {"key": key, "help": text, "choices": ["true", "false"] if key in SWITCHES else []}
            for key, text in OPTIONS.items()
        ],
    }


def words(command: str, run: str, values: Mapping[str, str]) -> list[str]:
    """The words of the command, without `agentlite`. `values`: the fields that were filled in, each
    as it is typed on the command line; a field of several has one on each line. Raises UserError 2
    for a field that the stage does not have, or a value that it does not take.
    """
    _check_command(command)
    given = {key: value for key, value in values.items() if value != ""}
    for key, value in given.items():
        if key not in fields(command) and key not in OPTIONS:
            known = [*fields(command), *OPTIONS]
            raise UserError(f"no setting '{key}'. {nearest(key, known)}", location=command)
        if len(value) > LONGEST or "\0" in value:
            raise UserError("the value is too long, or has a NUL.", location=f"{command}.{key}")
    refuse_odd_name(given.get("out", command), command)
    _check_values(command, given)
    argument = given.get(ARGUMENTS.get(command, ""), "")
    made = [word for key, value in given.items() for word in _option(command, key, value)]
    # behind `--` a file may have a name that begins like an option
    behind = ["--", *_lines(argument)] if argument else []
    return [command, *(["--run", run] if run else []), *made, *behind]


def as_typed_command(words: Sequence[str]) -> str:
    """As a person would type it."""
    return shlex.join(["agentlite", *words])


def _check_command(command: str) -> None:
    if command not in STAGES:
        raise UserError(f"no stage '{command}'. {nearest(command, STAGES)}", location="form")


def _check_values(command: str, given: Mapping[str, str]) -> None:
    """Reads the settings as the command will."""
    settings = {key: value for key, value in given.items() if key in fields(command)}
    flags: dict[str, Any] = {
        key: _lines(value) if _is_repeated(command, key) else value
        for key, value in settings.items()
        if key not in MAPPINGS
    }
    sets = tuple(f"{command}.{key}={settings[key]}" for key in MAPPINGS if key in settings)
    resolve(command, Given(weightings(flags), sets, (), given.get("profile", "") or "auto"))


def _option(command: str, key: str, value: str) -> list[str]:
    if key == ARGUMENTS.get(command):
        return []
    if key in MAPPINGS:
        return ["--set", f"{command}.{key}={value}"]
    if key in OPTIONS:
        name = f"--{key.replace('_', '-')}"
        if key in SWITCHES:
            return [name] if value == "true" else []
        return [f"{name}={value}"]
    name = flag_of(command, key).name or f"--{key.replace('_', '-')}"
    # with `=`, so that a value that begins with a dash is no option
    return [f"{name}={one}" for one in (_lines(value) if _is_repeated(command, key) else [value])]


def _is_repeated(command: str, key: str) -> bool:
    return flag_of(command, key).repeat or key == ARGUMENTS.get(command) == "sources"


def _lines(value: str) -> list[str]:
    return [line.strip() for line in value.splitlines() if line.strip()]


def _field(command: str, key: str) -> dict[str, Any]:
    kind = fields(command)[key]
    usual = default(command, key)
    shown = json.dumps(usual) if isinstance(usual, dict) and usual else _typed(usual)
    return {
        "key": key,
        "help": describe(command, key),
        "section": section_of(command, key) or "Data and model",
        "common": is_common(command, key) or key == ARGUMENTS.get(command),
        "choices": choices(kind) if not _is_several(kind) else (),
        "kind": metavar(kind, repeat=flag_of(command, key).repeat),
        "default": default_in_words(command, key) or shown,
        "several": _is_repeated(command, key),
    }


def _typed(value: Any) -> str:
    import msgspec

    return "" if value is msgspec.NODEFAULT else as_typed(value)


def _is_several(kind: Any) -> bool:
    """Whether a value is a list of words rather than one of them."""
    from typing import get_origin

    from agentlite.config.metavars import without_marks

    return get_origin(without_marks(kind)) in (tuple, dict)
