"""What options are: a type that help shows, a default, a section; and those that commands share."""

import os
from typing import TYPE_CHECKING, Any

import click
from click.formatting import join_options

from agentlite.config.metavars import Folder, as_typed, metavar

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

WORKSPACE, SETTINGS, OUTPUT = "Workspace", "Settings", "Output"


class OptionType(click.types.StringParamType):
    """A type of settings, or of an option: shown in help, read and refused in the same words.

    `is_read`: whether the value is read here. That of a setting is read with all others, by
    agentlite.config.resolve."""

    def __init__(self, kind: Any, *, is_read: bool = True, repeat: bool = False):
        self.kind, self.is_read, self.shown = kind, is_read, metavar(kind, repeat=repeat)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return self.shown

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not self.is_read or not isinstance(param, Option) or value == param.default:
            return value
        from agentlite.config.resolve import Place, read_value

        name = param.opts[0]
        place = Place(name, f"{name} ", param.default, param.help or "")
        return read_value(value, self.kind, place)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list["CompletionItem"]:
        from agentlite.cli.completion import offered

        return offered(ctx, self.kind, incomplete)


class Option(click.Option):
    """An option with its section on the full page of help. `common`: on the short one as well.
    `words`: its default, where the value itself says nothing."""

    def __init__(
        self,
        names: list[str],
        kind: Any = None,
        *,
        section: str,
        common: bool = False,
        words: str = "",
        is_read: bool = True,
        **rest: Any,
    ):
        if kind is not None:
            repeat = rest.get("multiple", False)
            rest["type"] = OptionType(kind, is_read=is_read, repeat=repeat)
        super().__init__(names, **rest)
        self.section, self.common, self.words = section, common, words

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        names, _ = join_options(self.opts)
        head = names if self.is_flag else f"{names} {self.make_metavar(ctx)}"
        facts = [
            "repeatable" if self.multiple else "",
            f"env: {self.envvar}" if self.envvar else "",
            f"default: {shown}" if (shown := self.default_shown(ctx)) else "",
        ]
        brackets = f"  [{'; '.join(filter(None, facts))}]" if any(facts) else ""
        return head, f"{self.help}{brackets}"

    def default_shown(self, ctx: click.Context) -> str:
        """As it is typed, or in words; "" for none."""
        if self.is_flag:
            return ""
        value = os.environ.get(str(self.envvar)) if self.envvar else None
        given = self.default if isinstance(self.default, str | int | float | tuple) else None
        return as_typed(value or given) or self.words


RUN = Option(
    ["--run"],
    Folder,
    section=WORKSPACE,
    common=True,
    default="runs/default",
    envvar="AGENTLITE_RUN",
    help="workspace: the folder that holds the folders of all stages",
)
AS_JSON = Option(
    ["--json", "as_json"],
    section=OUTPUT,
    is_flag=True,
    help="print one JSON object, for errors as well",
)
DEBUG = Option(["--debug"], section=OUTPUT, is_flag=True, help="show the traceback of an error")
