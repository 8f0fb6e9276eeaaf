"""Finished shards of a prep -> what their rows became, in the order of the rows; or why not."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentlite.config.metavars import as_typed
from agentlite.config.resolve import OWN_FILE, resolve
from agentlite.config.settings import PrepSettings
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.records import Tool
from agentlite.core.row_files import read_rows, write_rows
from agentlite.data.formats import files_of
from agentlite.data.ingest import with_progress
from agentlite.data.ingest_row import IngestedRow
from agentlite.data.taken_rows import in_turns, read_taken
from agentlite.rendering.protocol_mix import protocols_of
from agentlite.stages.plan_as_command import as_command
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Done, Plan, RunTarget

COMMAND = "prep --shard"  # of its plan: no stage takes a shard for a finished prep
ALL = "*"  # --gather alone
TAKEN, CATALOGUE = "taken.msgpack", "catalogue.jsonl"
# settings on which depends what becomes of a row alone; all others can be given to --gather anew
OF_ROWS = (
    "sources",
    "trajectories",
    "keep",
    "format",
    "repair",
    "retry_rejects",
    "tools",
    "personal",
    "duplicates",
    "model",
    "protocol",
    "system",
    "max_length",
    "long_rows",
    "retrieve",
    "retriever",
    "retrieve_by",
    "accepted_answer",
    "no_call_answer",
    "model_name",
    "model_author",
)
NOT_COMPARED = ("shard", "gather", "workers", "sources")


class ShardNumber(NamedTuple):
    """One of several shards; the first is 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def folder(self) -> str:
        return f"prep-{self.number}-of-{self.of}"


class Shards(NamedTuple):
    """All shards of a prep, in their order: `settings` and `inputs` as their plans have them, the
    settings with what was given to --gather.
    """

    folders: Sequence[Path]
    settings: PrepSettings
    inputs: Mapping[str, str]
    planned: Mapping[str, Any]
    figures: Mapping[str, Any]

    def rows(self) -> Iterator[IngestedRow]:
        """What became of each row, in the order of one process."""
        files = [read_taken(folder / TAKEN) for folder in self.folders]
        return with_progress(in_turns(files), "prep: rows gathered:")

    def catalogue(self) -> dict[str, Tool]:
        rows = read_rows(self.folders[0] / CATALOGUE)
        return {row["name"]: msgspec.convert(row, Tool) for row in rows}


class _FoundShard(NamedTuple):
    folder: Path
    plan: Plan
    number: ShardNumber

    @property
    def command(self) -> str:
        return as_command(self.plan, self.folder.parent, self.folder)

    def other(self, number: int) -> "_FoundShard":
        """Another one of the same prep, in the folder that it has if nobody names one."""
        other = self.number._replace(number=number)
        settings = {**self.plan.settings, "shard": str(other)}
        plan = replace(self.plan, settings=settings)
        return _FoundShard(self.folder.with_name(other.folder), plan, other)


def parse(text: str) -> ShardNumber:
    """`3/64`. Raises UserError 2."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(
            f"'{text}' is not one of several shards.",
            "Write --shard 1/3, --shard 2/3 and --shard 3/3 for three of them.",
            location="--shard",
        )
    return ShardNumber(int(number), int(count))


def own_folder(settings: PrepSettings, target: RunTarget) -> RunTarget:
    """The target with a folder for each shard, unless the user names one. Raises UserError 2 for
    a shard that is also to be gathered.
    """
    if settings.shard and settings.gather:
        raise UserError(
            "a command reads a shard or gathers shards, not both.",
            "Leave out --shard or --gather.",
            location="--shard",
        )
    is_default = settings.shard and target.out == "prep"
    return target._replace(out=parse(settings.shard).folder) if is_default else target


def plan_of(plan: Plan, shard: str) -> Plan:
    """The plan of a shard, from that of the whole prep."""
    settings = {**plan.settings, "shard": str(parse(shard))}
    return replace(plan, command=COMMAND, settings=settings)


def write_catalogue(path: Path, catalogue: Mapping[str, Tool]) -> None:
    write_rows(path, (msgspec.to_builtins(tool) for tool in catalogue.values()))


def find(settings: PrepSettings, target: RunTarget) -> Shards:
    """The shards in the folders that the user names, or all in the workspace. Raises UserError 2 or
    3 if one is missing, unfinished, there twice, or of another prep.
    """
    found = sorted((_found(folder) for folder in _folders(settings, target)), key=_place)
    first = found[0]
    for other in found[1:]:
        _refuse_unlike(first, other)
    for one, other in pairwise(found):
        if one.number == other.number:
            raise UserError(
                f"{one.folder} and {other.folder} are both shard {one.number}.",
                "Name one of the two: agentlite prep --gather FOLDER...",
                location="--gather",
                exit_code=OTHER_PLAN,
            )
    numbers = {one.number.number for one in found}
    if missing := [n for n in range(1, first.number.of + 1) if n not in numbers]:
        others = len(missing) - 1
        more = f" {others} more {'is' if others == 1 else 'are'} missing." if others else ""
        lacking = first.other(missing[0])
        raise UserError(
            f"shard {lacking.number} is missing.{more}",
            f"Run it, or name its folder: {lacking.command}",
            location=str(lacking.folder),
        )
    done = [_done(one) for one in found]
    _refuse_uneven(found, done)
    planned = {key: value for key, value in first.plan.settings.items() if key != "shard"}
    return Shards(
        [one.folder for one in found],
        _with_given(msgspec.convert(planned, PrepSettings), settings, target),
        first.plan.inputs,
        planned,
        done[0].figures,
    )


def refuse_other_rows(shards: Shards, settings: Mapping[str, Any], model: str) -> None:
    """Raises UserError 3 if --gather is given a setting that says what becomes of a row, and the
    shards have another one. `settings`: as the plan will have them; `model`: its digest.
    """
    of_rows = [*OF_ROWS]
    if len(protocols_of(str(shards.planned["protocol"]))) > 1:  # the seed chooses among them
        of_rows.append("seed")
    for key in of_rows:
        if settings[key] != shards.planned[key]:
            raise UserError(
                f"the shards were read with {_shown(shards.planned[key])}, not with "
                f"{_shown(settings[key])}.",
                "Leave it out; or run the shards again with it and with --force.",
                location=f"--{key.replace('_', '-')}",
                exit_code=OTHER_PLAN,
            )
    if model != shards.inputs["model"]:
        raise UserError(
            f"{settings['model']} is not the model that the shards were read with: it has changed "
            "since.",
            "Put it back as it was; or run the shards again with --force.",
            location="--model",
            exit_code=OTHER_PLAN,
        )


def _folders(settings: PrepSettings, target: RunTarget) -> list[Path]:
    # `--gather A B C`: to the command line the first is a value, and the others are sources
    if names := [name for name in (*settings.gather, *settings.sources) if name != ALL]:
        named = [run_folder.find_stage(name, target.run) for name in names]
        return [*{folder.resolve(): folder for folder in named}.values()]
    folders = [
        folder
        for folder in run_folder.stages_in(target.run)
        if (plan := run_folder.read(folder).plan) and plan.command == COMMAND
    ]
    if not folders:
        raise UserError(
            "holds no shard of a prep.",
            "Make all of them: agentlite prep dialogs.jsonl --shard 1/3, and so on; or name their "
            "folders: agentlite prep --gather FOLDER...",
            location=str(target.run),
        )
    return folders


def _found(folder: Path) -> _FoundShard:
    if not run_folder.is_stage(folder):
        raise UserError(
            "is not a shard of a prep.",
            "Name the folder that `agentlite prep --shard` wrote.",
            location=str(folder),
        )
    plan = run_folder.read_plan(folder)
    if plan.command != COMMAND:
        raise UserError(
            f"is a stage of `agentlite {plan.command}`, not a shard.",
            "Name the folders that `agentlite prep --shard` wrote.",
            location=str(folder),
        )
    written, own = plan.versions.get("agentlite"), run_folder.versions().get("agentlite")
    if written != own:
        raise UserError(
            f"was written by agentlite {written}, and this is {own}.",
            "Gather with the version that read the rows, or run the shards again with --force.",
            location=str(folder),
            exit_code=OTHER_PLAN,
        )
    return _FoundShard(folder, plan, parse(str(plan.settings["shard"])))


def _place(shard: _FoundShard) -> tuple[int, str]:
    return shard.number.number, str(shard.folder)


def _refuse_unlike(first: _FoundShard, other: _FoundShard) -> None:
    """Raises UserError 3 for shards of different preps."""
    if first.number.of != other.number.of:
        raise UserError(
            f"is shard {other.number}, and {first.folder} is shard {first.number}.",
            "Gather shards of the same number: agentlite prep --gather FOLDER...",
            location=str(other.folder),
            exit_code=OTHER_PLAN,
        )
    plans = [
        Plan("prep", {**one.plan.settings, "shard": ""}, one.plan.inputs) for one in (first, other)
    ]
    if changes := run_folder.differences(*plans):
        raise UserError(
            f"was run with other settings or inputs than {first.folder}: {'; '.join(changes)}.",
            f"Run it as the other one: {first.other(other.number.number).command} --force",
            location=str(other.folder),
            exit_code=OTHER_PLAN,
        )


def _done(shard: _FoundShard) -> Done:
    """Raises UserError 2, 3 or 75 for a shard that is not finished, or was changed since."""
    stored = run_folder.read(shard.folder).trusted()
    if stored.done is None:
        run_folder.refuse_running(shard.folder)
        raise UserError(
            f"shard {shard.number} is not finished.",
            f"Run it again: {shard.command}",
            location=str(shard.folder),
        )
    if changed := stored.changed():
        raise UserError(
            f"{changed[0]} has changed since the shard was finished.",
            f"Run it again: {shard.command} --force",
            location=str(shard.folder),
            exit_code=OTHER_PLAN,
        )
    return stored.done


def _refuse_uneven(found: Sequence[_FoundShard], done: Sequence[Done]) -> None:
    """Raises UserError 3 if rows cannot have been dealt out so: machines that read the same file
    differently.
    """
    rows = [one.figures["rows"] for one in done]
    total, count = sum(rows), len(rows)
    for number, (shard, held) in enumerate(zip(found, rows, strict=True)):
        if held != (total - number + count - 1) // count:
            raise UserError(
                f"holds {held} rows, and {found[0].folder} {rows[0]}: the sources were not read "
                "alike.",
                f"Run it again where the others ran: {shard.command} --force",
                location=str(shard.folder),
                exit_code=OTHER_PLAN,
            )


def _with_given(stored: PrepSettings, given: PrepSettings, target: RunTarget) -> PrepSettings:
    """The settings of the shards with what was given with --gather. A file of settings that lies in
    the folder counts for the shards, not here: a shard may have been given something else.
    """
    resolved = resolve("prep", target.given)
    changes = {
        key: getattr(given, key)
        for key, origin in resolved.origin.items()
        if resolved.was_set(key) and origin != OWN_FILE and key not in NOT_COMPARED
    }
    if "tools" in changes:
        changes["tools"] = tuple(file for name in changes["tools"] for file in files_of(name))
    return replace(stored, **changes, gather=(ALL,))


def _shown(value: Any) -> str:
    return as_typed(value) or "the default"
