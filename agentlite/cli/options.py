"""The options of a command: a struct whose fields have types, sections and help, as settings have;
and how they are read and shown."""

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import click
import msgspec
from click.formatting import join_options
from msgspec import Struct

from agentlite.config.fields import COMMON, Field, Flag, Section, fields_of
from agentlite.config.metavars import Folder, as_typed, metavar, without_marks

WORKSPACE, SETTINGS, OUTPUT = Section("Workspace"), Section("Settings"), Section("Output")


class OptionType(click.types.StringParamType):
    """A type of settings, or of an option: shown in help, read and refused in the same words.

    `is_read`: whether the value is read here. That of a setting is read with all others, by
    agentlite.config.resolve."""

    def __init__(self, kind: Any, *, is_read: bool = True, repeat: bool = False):
        self.shown, self.is_read = metavar(kind, repeat=repeat), is_read
        # a repeated option is given one value after the other
        self.kind = get_args(without_marks(kind))[0] if repeat else kind

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return self.shown

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not self.is_read or not isinstance(param, Option) or value == param.default:
            return value
        from agentlite.config.resolve import Place, read_value

        name = param.opts[0]
        place = Place(name, f"{name} ", param.default, param.help or "")
        return read_value(value, self.kind, place)


class Option(click.Option):
    """The option of a field, with its section on the full page of help.

    `is_read`: whether its value is read here, see OptionType."""

    def __init__(self, key: str, field: Field, *, is_read: bool = True, **rest: Any):
        if not rest.get("is_flag"):
            rest["type"] = OptionType(field.kind, is_read=is_read, repeat=field.flag.repeat)
        super().__init__(
            [*field.names(key), key],
            multiple=field.flag.repeat,
            envvar=field.flag.variable or None,
            help=field.help,
            **rest,
        )
        self.section, self.common = field.section, field.is_common
        # in words, or as it is typed; "" for none
        self.default_shown = "" if rest.get("is_flag") else field.words or as_typed(field.default)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        names, _ = join_options(self.opts)
        head = names if self.is_flag else f"{names} {self.make_metavar(ctx)}"
        facts = [
            "repeatable" if self.multiple else "",
            f"env: {self.envvar}" if self.envvar else "",
            f"default: {self.default_shown}" if self.default_shown else "",
        ]
        brackets = f"  [{'; '.join(filter(None, facts))}]" if any(facts) else ""
        return head, f"{self.help}{brackets}"


class CommandOptions(Struct, frozen=True, kw_only=True):
    """What every command can be told."""

    as_json: Annotated[bool, Flag(name="--json"), OUTPUT] = False
    """print one JSON object, for errors as well"""
    debug: Annotated[bool, OUTPUT] = False
    """show the traceback of an error"""


class RunOptions(CommandOptions, frozen=True, kw_only=True):
    """What every command can be told that works in a workspace."""

    run: Annotated[Folder, Flag(variable="AGENTLITE_RUN"), WORKSPACE, COMMON] = "runs/default"
    """workspace: the folder that holds the folders of all stages"""


def parameters(options: type[Struct]) -> Iterator[click.Parameter]:
    """The arguments and options of a struct; what is peculiar to a command comes first."""
    fields = fields_of(options)
    own_first = [key for struct in options.__mro__ for key in inspect.get_annotations(struct)]
    for key in dict.fromkeys(own_first):
        field = fields[key]
        rest: dict[str, Any] = {"default": field.default}
        if field.default is msgspec.NODEFAULT:
            rest = {"required": True}
        elif field.flag.repeat:
            rest = {}
        if field.is_argument:
            several = isinstance(field.default, tuple)
            if several:
                rest = {"nargs": -1}
            yield click.Argument([key], type=OptionType(field.kind, repeat=several), **rest)
        elif field.default is False:
            yield Option(key, field, is_flag=True)
        else:
            yield Option(key, field, **rest)
