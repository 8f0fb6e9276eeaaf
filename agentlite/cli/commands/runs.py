"""Workspaces -> a line for each stage in them; with --rm, room made where a stage is finished."""

import shlex
from pathlib import Path

import click
import msgspec

from agentlite.cli.options import AS_JSON, DEBUG, RUN
from agentlite.cli.run_listing import Freed, ListedStage, free, in_words, inventory
from agentlite.core.console import print_table
from agentlite.workspace.run_folder import DEFAULT_RUN


def runs(
    folders: tuple[str, ...], run: str, names: tuple[str, ...], as_json: bool, debug: bool
) -> None:
    """Prints the stages, or what was freed."""
    places = [Path(folder) for folder in folders or (run,)]
    if names:
        _told_freed([one for place in places for one in free(place, names)], as_json)
    else:
        _told_stages([one for place in places for one in inventory(place)], as_json)


def _told_freed(freed: list[Freed], as_json: bool) -> None:
    if as_json:
        told = {"command": "runs", "freed": freed, "bytes": sum(one.bytes for one in freed)}
        print(msgspec.json.encode(told).decode())
        return
    for one in freed:
        print(f"{one.run}/{one.stage}: {in_bytes(one.bytes) or 'nothing'} freed")


def _told_stages(found: list[ListedStage], as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode({"command": "runs", "stages": found}).decode())
        return
    several = len({one.run for one in found}) > 1
    rows = [
        [
            f"{one.run}/{one.stage}" if several else one.stage,
            in_words(one.state, one.detail),
            one.figure,
            in_bytes(one.bytes),
            in_bytes(one.checkpoint_bytes),
            in_time(one.age),
        ]
        for one in found
    ]
    print_table([["stage", "state", "", "size", "checkpoints", "age"], *rows], words=3)
    idle = [one for one in found if one.state == "done" and one.checkpoint_bytes]
    if idle:
        count = in_bytes(sum(one.checkpoint_bytes for one in idle))
        where = "" if several or idle[0].run == DEFAULT_RUN else f"{shlex.quote(idle[0].run)} "
        names = " ".join(f"--rm {one.stage}" for one in idle)
        what = f": agentlite runs {where}{names}" if not several else ""
        print(f"{count} are checkpoints of finished stages, which nothing needs any more{what}")


def in_bytes(count: float) -> str:
    """61144 -> 61 kB; nothing for none."""
    units = ["B", "kB", "MB", "GB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.{1 if units[0] == 'GB' else 0}f} {units[0]}" if count else ""


def in_time(seconds: float) -> str:
    """5400 -> 2 h: the largest unit that there is one of."""
    units = (("days", 86400), ("h", 3600), ("min", 60), ("s", 1))
    name, length = next((unit for unit in units if seconds >= unit[1]), units[-1])
    return f"{seconds / length:.0f} {name}"


COMMAND = click.Command(
    "runs",
    params=[
        click.Argument(["folders"], nargs=-1, metavar="[DIR]..."),
        RUN,
        click.Option(
            ["--rm", "names"],
            multiple=True,
            metavar="STAGE",
            help="free the checkpoints of a finished stage; what it made stays; repeatable",
        ),
        AS_JSON,
        DEBUG,
    ],
    callback=runs,
)
