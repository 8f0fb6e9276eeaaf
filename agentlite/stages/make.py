"""Tools + an environment -> dialogs.jsonl: calls that were carried out, with words for them."""

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from agentlite.config.settings import MakeSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.row_files import Appender, read_rows, write_json, write_rows
from agentlite.data.curation.mix import scale_counts
from agentlite.environments.registry import environment
from agentlite.environments.synthesis.blueprint import (
    KINDS,
    Blueprint,
    Search,
    carry_out,
    draft_blueprint,
)
from agentlite.environments.synthesis.dialog import DIALOGS, gives_away, plain_dialog, row_of
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import World, WorldError, WorldLimits
from agentlite.stages.frame import Work, plan_of, run_stage
from agentlite.stages.rollout import split_of_task
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import Result, RunTarget

BLUEPRINTS = "blueprints.jsonl"
DOUBLE_KINDS = ("single", "several_turns")  # twice as many as of each other kind
TRIES = 120  # walks for one blueprint
MOST_LOST = 20  # worlds, in these
SHARE_UNITS = 1_000_000  # of a whole, in which shares are counted

NewWorld = Callable[[], World]  # in a process of its own


def run(settings: MakeSettings, target: RunTarget) -> Result:
    """The blueprints that were found are kept, whatever ends it."""
    if not settings.env:
        raise UserError(
            "has no tools.",
            "Name a class, an MCP server or BFCL's: --env shop.py:Shop, "
            "--env 'mcp:python server.py', or --env bfcl:multi_turn_base.",
            location="agentlite make",
        )
    file = Path(settings.tasks) if settings.tasks else None
    env = environment(settings.env, file, needs_tasks=False, env_keep=settings.env_keep)
    tasks = list(env.tasks())
    # all where the environment has none of its own
    if settings.split != "all" and (len(tasks) != 1 or settings.tasks):
        tasks = [task for task in tasks if split_of_task(settings, task) == settings.split]
    if not tasks:
        raise UserError(
            "holds no task of this split.",
            "Take all with --split all, or write one line for each task.",
            location=settings.tasks or f"--env {settings.env}",
        )
    counts = dialog_counts(settings.shares, settings.num_dialogs)
    new_world = partial(
        World, env.world_class, WorldLimits(settings.call_seconds, settings.world_memory)
    )

    def work() -> Work:
        stage = yield {"tasks": len(tasks), "wanted": counts}
        stage.set_aside_changed(BLUEPRINTS)
        stage.expect_rows(BLUEPRINTS, settings.num_dialogs)
        with console.progress("make: blueprints", settings.num_dialogs) as advance:
            path = stage.folder / BLUEPRINTS
            results = find_blueprints(settings, new_world, tasks, counts, path, advance)
        not_found = Counter(kind for kind, blueprint in results if not blueprint)
        _refuse_none_found(settings, not_found)
        blueprints = {blueprint.id: blueprint for _, blueprint in results if blueprint}.values()
        rows = [row_of(b, plain_dialog(b, settings.seed)) for b in blueprints]
        write_rows(stage.folder / DIALOGS, rows)
        calls = [planned.call for blueprint in blueprints for planned in blueprint.calls]
        figures = {
            "wanted": len(results),
            "kept": len(rows),
            "kinds": dict(Counter(blueprint.kind for blueprint in blueprints)),
            "not_found": dict(not_found),
            "verified": dict(Counter(name for row in rows for name in row["meta"]["verified"])),
            "turns": sum(m["role"] == "user" for row in rows for m in row["messages"]),
            "calls": len(calls),
            "tools_called": len({call.name for call in calls}),
        }
        write_json(stage.folder / "stats.json", figures)
        return [BLUEPRINTS, DIALOGS, "stats.json"], figures

    return run_stage(
        plan_of("make", settings, {name: file_digest(path) for name, path in env.files.items()}),
        target,
        work(),
        next_command=f"agentlite prep --from {shlex.quote(target.out)}",
        keep=[BLUEPRINTS],
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['kept']} of {figures['wanted']} dialogs"


def dialog_counts(shares: Mapping[str, float], number: int) -> dict[str, int]:
    """How many dialogs of each kind: the largest remainders are rounded up."""
    shares = shares or {kind: 2.0 if kind in DOUBLE_KINDS else 1.0 for kind in KINDS}
    unknown = [kind for kind in shares if kind not in KINDS]
    total = sum(shares.values())
    if unknown or not total:
        problem = f"'{unknown[0]}' is not a kind." if unknown else "all shares are 0."
        raise UserError(problem, f"The kinds: {', '.join(KINDS)}.", location="--shares")
    units = {kind: round(SHARE_UNITS * share / total) for kind, share in shares.items()}
    return scale_counts(units, number)


def find_blueprints(
    settings: MakeSettings,
    new_world: NewWorld,
    tasks: Sequence[EnvironmentTask],
    counts: Mapping[str, int],
    path: Path,
    advance: Callable[[int], None],
) -> list[tuple[str, Blueprint | None]]:
    """By kind, a blueprint for each dialog of `counts`; None where no walk leads to one. Those
    on disk are not looked for again.
    """
    results: list[tuple[str, Blueprint | None]] = []
    keys: set[str] = set()  # of the blueprints so far, of which none is to be a copy
    with Appender(path) as file, new_world() as world:
        stored = {(row["kind"], row["number"]): row["blueprint"] for row in read_rows(path)}
        for kind, number in ((kind, n) for kind, count in counts.items() for n in range(count)):
            if (kind, number) in stored:
                blueprint = msgspec.convert(stored[kind, number], Blueprint | None)
            else:
                blueprint = _walk(settings, new_world, world, tasks, (kind, number), keys)
                content = msgspec.to_builtins(blueprint)
                file.append({"kind": kind, "number": number, "blueprint": content})
            if blueprint:
                keys.add(blueprint.key)
            results.append((kind, blueprint))
            advance(len(results))
    return results


def _walk(
    settings: MakeSettings,
    new_world: NewWorld,
    world: World,
    tasks: Sequence[EnvironmentTask],
    dialog: tuple[str, int],
    keys: Collection[str],
) -> Blueprint | None:
    """The first blueprint that a walk leads to, if any does. `dialog`: its kind, and its number
    among the dialogs of the kind.
    """
    kind, number = dialog
    lost = 0
    for trial in range(TRIES):
        # by dialog and trial alone: a run that is carried on walks as if it had not stopped
        rng = Random(f"{settings.seed} {kind} {number} {trial}")
        task = rng.choice(tasks)
        try:
            blueprint = draft_blueprint(kind, Search(world, task, rng), settings.extra_tools)
            if not blueprint or blueprint.key in keys:
                continue
            # a class that keeps something from one world to the next is seen in another process
            with new_world() as second_world:
                outcome = carry_out(second_world, task, [p.call for p in blueprint.calls])
        except WorldError as error:
            lost += 1
            if lost == MOST_LOST:
                raise UserError(
                    f"{lost} worlds were lost; the last: {error}.",
                    "Correct the environment; or give --tasks FILE with what its reset takes.",
                    location=f"--env {settings.env}",
                    exit_code=REJECTS,
                ) from error
            continue
        is_confirmed = outcome == ([p.result for p in blueprint.calls], blueprint.state)
        if is_confirmed and not gives_away(blueprint, plain_dialog(blueprint, settings.seed)):
            return blueprint
    return None


def _refuse_none_found(settings: MakeSettings, missing: Mapping[str, int]) -> None:
    """Refuses tools with which no walk has led anywhere; notes kinds that were found less often."""
    if sum(missing.values()) == settings.num_dialogs:
        raise UserError(
            "no calls were found that succeed and return the same each time.",
            "Give --tasks FILE, so that the world holds something; add enum, default or examples "
            "to the parameters; or take another kind: --shares single=1.",
            location=f"--env {settings.env}",
            exit_code=REJECTS,
        )
    if missing:
        kinds = ", ".join(f"{kind} {count}" for kind, count in missing.items())
        console.notice(f"make: dialogs for which no calls were found: {kinds}")
