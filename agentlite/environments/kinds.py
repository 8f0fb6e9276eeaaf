"""An environment by its name, `bfcl:CATEGORY` or `file.py:Class`: its class, and its tasks."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentlite.core.errors import UserError, nearest
from agentlite.core.user_code import Named
from agentlite.environments import bfcl_tasks, bfcl_world
from agentlite.environments.tasks import EnvironmentTask, read_tasks
from agentlite.environments.world import LIMITS, World, WorldLimits

CLASS = "class {}:"


class Environment(NamedTuple):
    """`tasks_file`: None where the environment brings its own tasks. `extra_tools`: how many tools
    its tasks offer that their gold does not call; all if None.
    """

    name: str
    named: Named
    tasks_file: Path | None = None
    extra_tools: int | None = None

    def tasks(self) -> Iterator[EnvironmentTask]:
        """In their own order. Raises UserError with the place of a task that cannot be read."""
        if self.tasks_file is None:
            return bfcl_tasks.tasks(self.name.partition(":")[2], self.extra_tools)
        return read_tasks(self.tasks_file)

    def world(self, limits: WorldLimits = LIMITS) -> World:
        return World(self.named, limits)


def environment(
    name: str, tasks_file: Path | None = None, extra_tools: int | None = None
) -> Environment:
    """Raises UserError 2 for a name of no kind, a file that is not there, a missing `tasks_file`
    and one too many, and `extra_tools` where the tools are the methods of a class.
    """
    kind, _, rest = name.partition(":")
    if kind == "bfcl" and rest:
        if rest not in bfcl_tasks.CATEGORIES:
            fix = nearest(rest, bfcl_tasks.CATEGORIES, prefix="bfcl:")
            raise UserError(f"BFCL has no dialogs '{rest}'.", fix, location=f"--env {name}")
        if tasks_file is not None:
            raise UserError(
                f"{name} has its own tasks.", "Leave --tasks out.", location=f"--tasks {tasks_file}"
            )
        named = Named(bfcl_world.__file__, bfcl_world.BfclWorld.__name__, CLASS)
        return Environment(name, named, extra_tools=extra_tools)
    file, _, made_by = name.rpartition(":")
    if not file.endswith(".py") or not made_by.isidentifier():
        raise UserError(
            f"'{name}' names no environment.",
            "Name `bfcl:multi_turn_base`, or a class in a file: `shop.py:Shop`.",
            location="--env",
        )
    if not Path(file).is_file():
        raise UserError("there is no such file.", f"--env {file}:{made_by}", location=file)
    if extra_tools is not None:
        raise UserError(
            f"the tools of {name} are its methods: it has no others.",
            "Leave --extra-tools out, or write a method `tools` that returns those on offer.",
            location="--extra-tools",
        )
    if tasks_file is None:
        raise UserError(
            f"{name} needs tasks.",
            'Write them as JSON lines, each {"prompt": "...", ...}, and name the file: --tasks '
            "tasks.jsonl",
            location="--env",
        )
    return Environment(name, Named(file, made_by, CLASS), tasks_file)
