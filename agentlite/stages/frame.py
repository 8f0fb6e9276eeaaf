"""The frame of a stage: its plan; then a dry run, the work, or nothing; then the next command."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from agentlite.config.resolve import plain_settings, plan_settings
from agentlite.core import console, distributed
from agentlite.core.errors import UserError
from agentlite.workspace import lookup, stage_folder
from agentlite.workspace.lookup import Plan, Result, RunTarget
from agentlite.workspace.stage_folder import StageFolder

Figures = Mapping[str, Any]
Files = Iterable[str]
# Reads, and yields what a dry run says; it gets the folder, fills it, and returns what it wrote.
Work = Generator[Figures, StageFolder, tuple[Files, Figures]]
Sent = TypeVar("Sent")
Returned = TypeVar("Returned")


def plan_of(
    command: str,
    settings: Struct,
    inputs: Mapping[str, str],
    only: Iterable[str] = (),
    **changed: object,
) -> Plan:
    """The settings that decide what comes out, or `only` some; `changed` in place of or beside
    them; and a digest of each input.
    """
    plain = plain_settings(settings)
    planned = {key: plain[key] for key in only} or plan_settings(command, settings)
    return Plan(command, {**planned, **changed}, dict(inputs), stage_folder.package_versions())


def run_stage(
    plan: Plan,
    target: RunTarget,
    work: Work,
    *,
    next_command: str | Callable[[Figures], str],
    before_work: Callable[[], None] = lambda: None,
    is_open: Callable[[Figures], bool] = lambda _: False,
    works_when_done: bool = False,
    keep: Sequence[str] = (),
) -> Result:
    """Says what there is to do, or does what is left of it.

    A dry run ends where `work` yields. `next_command`: "" for none, or made from the figures.
    `before_work` refuses what needs a library, before the folder is opened. `is_open`: whether the
    figures of a finished stage say that something is left to do after all. `works_when_done`: the
    work is done also where the folder is up to date, and may find nothing new. `keep`: patterns of
    files for which a folder is kept after a mistake of the user; without one, the corrected command
    starts over and needs no --force.
    """
    if target.dry_run:
        with console.stdout_to_stderr():
            status = "new" if target.force else stage_folder.status_for(target.folder, plan)
            forecast = {"folder": status, **next(work)}
            work.close()
        return Result(plan.command, "dry run", str(target.folder), forecast, [], 0.0)
    # this comparison refuses early, without the lock; open_stage compares again under it
    if target.force or stage_folder.status_for(target.folder, plan) != "done":
        before_work()
    with (
        console.stdout_to_stderr(),
        stage_folder.open_stage(
            target.folder, plan, force=target.force, command_line=target.command_line(plan.command)
        ) as stage,
    ):
        if stage.status == "done" and is_open(stage.done.figures):
            stage.reopen()
        if stage.status != "done" or works_when_done:
            try:
                next(work)  # it reads, and yields what only a dry run tells
                files, figures = resume(work, stage)
                stage.finish(files, dict(figures))
            except UserError:
                is_kept = any(any(stage.folder.glob(pattern)) for pattern in keep)
                if distributed.is_first() and not is_kept and not lookup.is_finished(stage.folder):
                    stage.fail()
                raise
        if callable(next_command):
            next_command = next_command(stage.done.figures)
        return stage.result(target.next(next_command) if next_command else "")


def resume(work: Generator[Any, Sent, Returned], sent: Sent) -> Returned:
    """Does the second half of a work that has yielded, with what that waits for."""
    try:
        work.send(sent)
    except StopIteration as end:
        returned: Returned = end.value
        return returned
    raise AssertionError("a work yields once")
