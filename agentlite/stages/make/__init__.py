"""Tools + an environment -> dialogs.jsonl: calls that were carried out, with words for them."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlite.config import resolve
from agentlite.config.settings import MakeSettings, default
from agentlite.core import console, server_usage
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.records import plain
from agentlite.core.row_files import write_json, write_rows
from agentlite.environments.making.checks import DialogFault, copy_key, drops, faults
from agentlite.environments.making.dialog import DIALOGS, in_plain_words, row_of
from agentlite.environments.making.walk import Walker
from agentlite.environments.registry import Environment, environment
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import WorldError, WorldLimits
from agentlite.stages.acting import split_of_task
from agentlite.stages.make.judged import MadeDialog, find_judges, judged, verdict_figures
from agentlite.stages.make.play import PlayedDialog, play, players, verified_by
from agentlite.stages.make.quality import quality
from agentlite.stages.make.search import BLUEPRINTS, SearchSetup, Slot, counts, find, not_found
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.encoder_source import find_encoder
from agentlite.workspace.run_folder import Plan, Result, RunTarget

FILTERED = "filtered.jsonl"
LEAST_CHARACTERS = 3  # of a row's JSON, for one token


def run(settings: MakeSettings, target: RunTarget) -> Result:
    """Raises UserError 2, 3, 4, 74 or 75; the blueprints that were found are kept."""
    world = _environment(settings)
    tasks = _tasks(settings, world)
    wanted = counts(settings.shares, settings.num_dialogs)
    acting = players(settings, world, target.run, target.begun)
    judges = find_judges(settings)
    files = {name: file_digest(path) for name, path in world.files.items()}
    inputs = {**files, **(acting.inputs if acting else {})}
    inputs |= {judge.name: judge.digest for judge in judges}
    encoder = find_encoder(settings.encoder, target.run) if settings.encoder else None
    inputs |= {"encoder": encoder.digest} if encoder else {}
    plan = Plan(
        "make",
        resolve.plan_settings("make", settings),
        inputs,
        run_folder.versions(),
    )
    limits = WorldLimits(settings.call_seconds, settings.world_memory)
    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        _check_tools(settings, world, tasks, limits)
        figures: dict[str, Any] = {"folder": status, "tasks": len(tasks), "wanted": wanted}
        return Result("make", "dry run", str(target.folder), figures, [], 0.0)
    with (
        console.stdout_to_stderr(),
        run_folder.open_stage(target.folder, plan, force=target.force) as stage,
        server_usage.counted(stage.folder, settings.token_budget) as usage,
    ):
        if stage.status != "done":
            _check_tools(settings, world, tasks, limits)
            setup = SearchSetup(world, tasks, limits, settings.extra_tools, settings.seed)
            if not acting:
                setup = setup._replace(accepts=lambda slot: not _in_plain(settings, slot).faults)
            stage.set_aside_changed(BLUEPRINTS)
            stage.expect(BLUEPRINTS, settings.num_dialogs)
            with console.progress("make: blueprints", settings.num_dialogs) as advance:
                slots = find(setup, wanted, stage.folder / BLUEPRINTS, advance)
            _refuse_nothing(settings, slots)
            found = [slot for slot in slots if slot.blueprint]
            played = (
                play(acting, slots, tasks, stage)
                if acting
                else (_in_plain(settings, slot) for slot in found)
            )
            made, verdicts = judged(settings, judges, [*with_faults(played)], slots, stage.folder)
            write_rows(stage.folder / DIALOGS, (row for row, found in made if not drops(found)))
            write_rows(
                stage.folder / FILTERED,
                (
                    {**row, "faults": [fault._asdict() for fault in found]}
                    for row, found in made
                    if drops(found)
                ),
            )
            figures = _figures(wanted, slots, made) | verdict_figures(judges, verdicts)
            _refuse_none_kept(settings, figures)
            kept = [row for row, found in made if not drops(found)]
            figures |= {"quality": quality(kept, slots, encoder)}
            write_json(stage.folder / "stats.json", figures)
            files_of_judges = [judge.file for judge in judges]
            stage.finish([BLUEPRINTS, DIALOGS, FILTERED, "stats.json", *files_of_judges], figures)
            if acting:
                acting.forget_turns(stage.folder)
        following = _next(target.out, stage.done.figures["longest"])
        return stage.result(target.next(following), usage.figures())


def _next(out: str, longest: int) -> str:
    """The command that reads the dialogs, with room for the longest of them."""
    room = default("prep", "max_length")
    needed = longest // LEAST_CHARACTERS
    length = f" --max-length {-(-needed // 1024) * 1024}" if needed > room else ""
    return f"agentlite prep --from {shlex.quote(out)}{length}"


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['wanted']} dialogs"


def _environment(settings: MakeSettings) -> Environment:
    """Raises UserError 2 if none is named, or one that cannot carry out a call."""
    if not settings.env:
        raise UserError(
            "has no tools to begin with.",
            "Name them: --env shop.py:Shop, --env 'mcp:python server.py', "
            "or --env bfcl:multi_turn_base.",
            location="agentlite make",
        )
    if settings.env.startswith("mock:"):
        raise UserError(
            "has tools that nothing carries out.",
            "Name a class, an MCP server or bfcl:multi_turn_base.",
            location=f"--env {settings.env}",
        )
    tasks_file = Path(settings.tasks) if settings.tasks else None
    return environment(settings.env, tasks_file, needs_tasks=False)


def _tasks(settings: MakeSettings, world: Environment) -> list[EnvironmentTask]:
    """Those of the split, all where the environment has none of its own. Raises UserError 2."""
    tasks = list(world.tasks())
    if settings.split != "all" and (len(tasks) != 1 or settings.tasks):
        tasks = [task for task in tasks if split_of_task(settings, task) == settings.split]
    if not tasks:
        raise UserError(
            "holds no task of this split.",
            "Take all with --split all, or write one line for each task.",
            location=settings.tasks or f"--env {settings.env}",
        )
    return tasks


def _check_tools(
    settings: MakeSettings,
    world: Environment,
    tasks: Sequence[EnvironmentTask],
    limits: WorldLimits,
) -> None:
    """Raises UserError 2 for tools that no dialog can be made from."""
    location = f"--env {settings.env}"
    with Walker(world, limits) as walker:
        try:
            tools = walker.begin(tasks[0])
        except WorldError as error:
            raise UserError(
                f"its world cannot be built: {error}.",
                "Correct it; or give --tasks FILE, with the columns that its reset takes.",
                location=location,
            ) from error
    silent = [tool.name for tool in tools if not tool.description.strip()]
    if len(silent) == len(tools):
        raise UserError(
            f"none of its {len(tools)} tools has a description, and questions are made from these.",
            "Describe each tool in one sentence: in the docstring of its method, or as the "
            "description of the MCP tool.",
            location=location,
        )


def _refuse_nothing(settings: MakeSettings, slots: Sequence[Slot]) -> None:
    """Raises UserError 4 where no walk has led anywhere; notes kinds that were found less often."""
    missing = not_found(slots)
    if sum(missing.values()) == len(slots):
        raise UserError(
            "no calls were found that succeed and return the same each time.",
            "Give --tasks FILE, so that the world holds something; add enum, default or examples "
            "to the parameters; or take another kind: --shares single=1.",
            location=f"--env {settings.env}",
            exit_code=REJECTS,
        )
    if missing:
        listed = ", ".join(f"{kind} {count}" for kind, count in missing.items())
        console.notice(f"make: dialogs for which no calls were found: {listed}")


def _in_plain(settings: MakeSettings, slot: Slot) -> PlayedDialog:
    """A dialog that no model plays."""
    assert slot.blueprint
    tools = {tool.name: tool for tool in slot.tools}
    messages = in_plain_words(slot.blueprint, tools, settings.seed)
    offered = [tools[name] for name in slot.blueprint.tools]
    found = faults(slot.blueprint, messages, offered, slot.replay)
    return PlayedDialog(slot, messages, found, verified_by(slot.blueprint), 0)


def with_faults(played: Iterable[PlayedDialog]) -> Iterator[MadeDialog]:
    """The row of each dialog with what is wrong with it."""
    copies: set[str] = set()
    for one in played:
        assert one.slot.blueprint
        tools = [tool for tool in one.slot.tools if tool.name in one.slot.blueprint.tools]
        found = [*one.faults]
        if one.messages and (key := copy_key(one.messages)) in copies:
            found.append(DialogFault("copy", "another dialog says and calls the same"))
        elif one.messages and not drops(found):
            copies.add(key)
        row = row_of(one.slot.blueprint, one.messages, tools, one.verified)
        row["meta"] |= {"tokens": one.tokens} if one.tokens else {}
        yield row, found


def _figures(
    wanted: Mapping[str, int],
    slots: Sequence[Slot],
    made: Sequence[MadeDialog],
) -> dict[str, Any]:
    kept = [row for row, found in made if not drops(found)]
    dropped = Counter(
        kind
        for _, found in made
        if drops(found)
        for kind in {fault.kind for fault in found if fault.message is None}
    )
    calls = [
        call["function"]["name"]
        for row in kept
        for message in row["messages"]
        for call in message.get("tool_calls", ())
    ]
    unlearned = Counter(fault.kind for _, found in made if not drops(found) for fault in found)
    return {
        "wanted": sum(wanted.values()),
        "kept": len(kept),
        "kinds": dict(Counter(row["meta"]["kind"] for row in kept)),
        "not_found": not_found(slots),
        "filtered": dict(dropped.most_common()),
        "not_learned": dict(unlearned.most_common()),
        "verified": dict(Counter(name for row in kept for name in row["meta"]["verified"])),
        "turns": sum(one["role"] == "user" for row in kept for one in row["messages"]),
        "calls": len(calls),
        "tools_called": len({*calls}),
        "longest": max((len(plain([row["messages"], row["tools"]])) for row in kept), default=0),
    }


def _refuse_none_kept(settings: MakeSettings, figures: Mapping[str, Any]) -> None:
    if not figures["kept"]:
        reasons = ", ".join(f"{kind} {count}" for kind, count in figures["filtered"].items())
        raise UserError(
            f"every dialog was filtered: {reasons}.",
            f"Read {FILTERED} in the stage's folder, which says why."
            + (
                " Take a stronger model, or show it the right calls: --hint gold --force."
                if settings.endpoint
                else ""
            ),
            location=f"--env {settings.env}",
            exit_code=REJECTS,
        )
