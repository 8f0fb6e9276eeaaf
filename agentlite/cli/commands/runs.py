"""`agentlite runs`: a line for each stage of a workspace; --rm frees disk."""

import shlex
from pathlib import Path
from typing import Annotated

import msgspec

from agentlite.cli.help_page import Command
from agentlite.cli.options import WORKSPACE, RunOptions
from agentlite.cli.run_listing import Freed, ListedStage, free, in_time, in_words, inventory
from agentlite.config.fields import ARGUMENT, Flag
from agentlite.config.metavars import Folder, StageName
from agentlite.core.console import print_table
from agentlite.workspace.stage_folder import DEFAULT_RUN


class RunsOptions(RunOptions, frozen=True, kw_only=True):
    folders: Annotated[tuple[Folder, ...], ARGUMENT] = ()
    names: Annotated[tuple[StageName, ...], Flag(name="--rm", repeat=True), WORKSPACE] = ()
    """free the checkpoints of a finished stage; its results stay"""


def runs(options: RunsOptions) -> None:
    """Prints the stages, or what was freed."""
    workspaces = [Path(folder) for folder in options.folders or (options.run,)]
    if names := options.names:
        freed = [row for folder in workspaces for row in free(folder, names)]
        _print_freed(freed, options.as_json)
    else:
        _print_stages([row for folder in workspaces for row in inventory(folder)], options.as_json)


def _print_freed(freed: list[Freed], as_json: bool) -> None:
    if as_json:
        summary = {"command": "runs", "freed": freed, "bytes": sum(stage.bytes for stage in freed)}
        print(msgspec.json.encode(summary).decode())
        return
    for stage in freed:
        print(f"{stage.run}/{stage.stage}: {in_bytes(stage.bytes) or 'nothing'} freed")


def _print_stages(stages: list[ListedStage], as_json: bool) -> None:
    if as_json:
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
    print_table([["stage", "state", "", "size", "checkpoints", "age"], *rows], words=3)
    idle = [stage for stage in stages if stage.state == "done" and stage.checkpoint_bytes]
    if idle:
        count = in_bytes(sum(stage.checkpoint_bytes for stage in idle))
        where = "" if several or idle[0].run == DEFAULT_RUN else f"{shlex.quote(idle[0].run)} "
        names = " ".join(f"--rm {shlex.quote(stage.stage)}" for stage in idle)
        what = f":\n  agentlite runs {where}{names}" if not several else ""
        print(f"{count} are checkpoints of finished stages, which nothing needs any more{what}")


def in_bytes(count: float) -> str:
    """61144 -> 61 kB; nothing for none."""
    units = ["B", "kB", "MB", "GB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.{1 if units[0] == 'GB' else 0}f} {units[0]}" if count else ""


COMMAND = Command("runs", RunsOptions, runs)
