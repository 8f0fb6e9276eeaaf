"""Shell completion of a value: its choices, stages of the workspace, files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from agentlite.config.metavars import choices, metavar

OF_STAGES = ("MODEL", "STAGE", "STAGE|FILE")


def offered(context: click.Context, kind: Any, incomplete: str) -> list[CompletionItem]:
    """`kind`: the type of the value. Click alone would offer nothing, not even files."""
    values = [value for value in _values(context, kind) if value.startswith(incomplete)]
    # first: bash asks for files only if nothing comes after
    files = CompletionItem(incomplete, type="file")
    return [files, *map(CompletionItem, values)]


def _values(context: click.Context, kind: Any) -> Iterator[str]:
    yield from choices(kind)
    if metavar(kind, repeat=True) in OF_STAGES:
        from agentlite.workspace.run_folder import stages_in

        yield from (folder.name for folder in stages_in(Path(context.params["run"])))
