"""Tools + an environment -> dialogs.jsonl: calls that were carried out, with words for them."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentlite.config.settings import MakeSettings, default
from agentlite.core import console
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.records import plain
from agentlite.core.row_files import write_json, write_rows
from agentlite.environments.registry import Environment, environment
from agentlite.environments.synthesis.dialog import (
    DIALOGS,
    gives_away,
    in_plain_words,
    made_calls,
    row_of,
)
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import World, WorldError, WorldLimits
from agentlite.stages.agent import split_of_task
from agentlite.stages.frame import Figures, Work, plan_of, run_stage
from agentlite.stages.make.search import BLUEPRINTS, SearchSetup, Slot, counts, find
from agentlite.workspace.digests import file_digest
from agentlite.workspace.stage_folder import Result, RunTarget

LEAST_CHARACTERS = 3  # of a row's JSON, for one token


def run(settings: MakeSettings, target: RunTarget) -> Result:
    """The blueprints that were found are kept, whatever ends it."""
    world = _environment(settings)
    tasks = _tasks(settings, world)
    wanted = counts(settings.shares, settings.num_dialogs)
    inputs = {name: file_digest(path) for name, path in world.files.items()}
    setup = SearchSetup(
        partial(World, world.named, WorldLimits(settings.call_seconds, settings.world_memory)),
        tasks,
        settings.extra_tools,
        settings.seed,
        settings.env,
        accepts=lambda slot: not gives_away(slot.plan, _messages(settings, slot), slot.offered),
    )

    def work() -> Work:
        _check_tools(setup)
        stage = yield {"tasks": len(tasks), "wanted": wanted}
        stage.set_aside_changed(BLUEPRINTS)
        stage.expect(BLUEPRINTS, settings.num_dialogs)
        with console.progress("make: blueprints", settings.num_dialogs) as advance:
            slots = find(setup, wanted, stage.folder / BLUEPRINTS, advance)
        _refuse_nothing(settings, slots)
        plans = {slot.plan.id: slot for slot in slots if slot.blueprint}
        rows = [
            row_of(slot.plan, _messages(settings, slot), slot.offered) for slot in plans.values()
        ]
        write_rows(stage.folder / DIALOGS, rows)
        figures = dialog_figures(slots, rows)
        write_json(stage.folder / "stats.json", figures)
        return [BLUEPRINTS, DIALOGS, "stats.json"], figures

    def next_command(figures: Figures) -> str:
        """Reads the dialogs, with room for the longest of them."""
        needed = figures["longest"] // LEAST_CHARACTERS
        longer = f" --max-length {-(-needed // 1024) * 1024}"
        room = longer if needed > default("prep", "max_length") else ""
        return f"agentlite prep --from {shlex.quote(target.out)}{room}"

    return run_stage(
        plan_of("make", settings, inputs),
        target,
        work(),
        next_command=next_command,
        keep=[BLUEPRINTS],
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['wanted']} dialogs"


def _environment(settings: MakeSettings) -> Environment:
    """One that can carry out a call."""
    if not settings.env:
        raise UserError(
            "has no tools.",
            "Name a class, an MCP server or BFCL's: --env shop.py:Shop, "
            "--env 'mcp:python server.py', or --env bfcl:multi_turn_base.",
            location="agentlite make",
        )
    tasks_file = Path(settings.tasks) if settings.tasks else None
    return environment(settings.env, tasks_file, needs_tasks=False, env_keep=settings.env_keep)


def _tasks(settings: MakeSettings, world: Environment) -> list[EnvironmentTask]:
    """Those of the split, all where the environment has none of its own."""
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


def _check_tools(setup: SearchSetup) -> None:
    """Refuses tools that no dialog can be made from."""
    location = f"--env {setup.location}"
    with setup.world() as first:
        try:
            first.reset(setup.tasks[0].row)
        except WorldError as error:
            raise UserError(
                f"its world cannot be built: {error}.",
                "Correct it; or give --tasks FILE, with the columns that its reset takes.",
                location=location,
            ) from error
        if not any(tool.description.strip() for tool in first.tools):
            raise UserError(
                f"none of its {len(first.tools)} tools has a description, and questions are made "
                "from these.",
                "Describe each tool in one sentence: in the docstring of its method, or as the "
                "description of the MCP tool.",
                location=location,
            )


def _refuse_nothing(settings: MakeSettings, slots: Sequence[Slot]) -> None:
    """Refuses tools with which no walk has led anywhere; notes kinds that were found less often."""
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


def _messages(settings: MakeSettings, slot: Slot) -> list[dict[str, Any]]:
    return in_plain_words(slot.plan, slot.by_name, settings.seed)


def not_found(slots: Sequence[Slot]) -> dict[str, int]:
    """Dialogs without a blueprint, by kind."""
    return dict(Counter(slot.kind for slot in slots if slot.blueprint is None))


def dialog_figures(slots: Sequence[Slot], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many there are, of which kinds, and what they hold."""
    messages = [message for row in rows for message in row["messages"]]
    calls = made_calls(messages)
    return {
        "wanted": len(slots),
        "kept": len(rows),
        "kinds": dict(Counter(row["meta"]["kind"] for row in rows)),
        "not_found": not_found(slots),
        "verified": dict(Counter(name for row in rows for name in row["meta"]["verified"])),
        "turns": sum(message["role"] == "user" for message in messages),
        "calls": len(calls),
        "tools_called": len({call.name for call in calls}),
        "longest": max((len(plain([row["messages"], row["tools"]])) for row in rows), default=0),
    }
