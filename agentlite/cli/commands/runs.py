"""`agentlite runs`: a line for each stage of a workspace."""

import shlex
from pathlib import Path
from typing import Annotated

import msgspec

from agentlite.cli.options import Command, RunOptions
from agentlite.cli.run_listing import CHECKPOINTS, in_time, in_words, inventory
from agentlite.config.fields import ARGUMENT, Folder
from agentlite.core.console import print_table


class RunsOptions(RunOptions, frozen=True, kw_only=True):
    folders: Annotated[tuple[Folder, ...], ARGUMENT] = ()


def runs(options: RunsOptions) -> None:
    workspaces = [Path(folder) for folder in options.folders or (options.run,)]
    stages = [row for folder in workspaces for row in inventory(folder)]
    if options.as_json:
        print(msgspec.json.encode({"command": "runs", "stages": stages}).decode())
        return
    several = len({stage.run for stage in stages}) > 1
    rows = [
        [
            f"{stage.run}/{stage.stage}" if several else stage.stage,
            in_words(stage.state, stage.detail),
            stage.figure,
            in_bytes(stage.bytes),
            in_bytes(stage.checkpoint_bytes),
            in_time(stage.age),
        ]
        for stage in stages
    ]
    print_table([["stage", "state", "", "size", "checkpoints", "age"], *rows], text_columns=3)
    if idle := [stage for stage in stages if stage.state == "done" and stage.checkpoint_bytes]:
        count = in_bytes(sum(stage.checkpoint_bytes for stage in idle))
        folders = shlex.join(str(Path(stage.run, stage.stage, CHECKPOINTS)) for stage in idle)
        print(f"{count} are checkpoints of finished stages, which nothing needs any more:")
        print(f"  rm -r {folders}")


def in_bytes(count: float) -> str:
    """61144 -> 61 kB; nothing for none."""
    units = ["B", "kB", "MB", "GB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.{1 if units[0] == 'GB' else 0}f} {units[0]}" if count else ""


COMMAND = Command("runs", RunsOptions, runs)
