"""Shell completion: commands, options, a setting's values, stages of the workspace, files."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OF_STAGES = ("model", "data", "candidates", "coreset_model", "names", "retriever")


class Text(click.types.StringParamType):
    """A string; Click alone would offer nothing for it, not even files."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list["CompletionItem"]:
        from click.shell_completion import CompletionItem

        values = [value for value in _values(ctx, param.name or "") if value.startswith(incomplete)]
        files = CompletionItem(
            incomplete, type="file"
        )  # first: bash asks for files only if nothing comes after
        return [files, *map(CompletionItem, values)]


def completed(command: click.Command) -> click.Command:
    """The same command, with values that a shell can complete."""
    for parameter in command.params:
        if parameter.type is click.STRING:
            parameter.type = Text()
    return command


def _values(context: click.Context, name: str) -> Iterator[str]:
    from agentlite.config.resolve import config_folder
    from agentlite.config.settings import COMMANDS, fields, plain_type

    command = context.command.name or ""
    is_setting = command in COMMANDS and name in fields(command)
    kind = plain_type(command, name) if is_setting else None
    if kind is bool:
        yield from ("true", "false")
    elif get_origin(kind) is Literal:
        yield from get_args(kind)
    elif name == "profile":
        yield from ("auto", *sorted(path.stem for path in config_folder().glob("*.yaml")))
    elif name in OF_STAGES:
        from agentlite.workspace.run_folder import stages_in

        yield from (folder.name for folder in stages_in(Path(context.params["run"])))
