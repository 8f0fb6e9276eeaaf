"""An environment by its name, `KIND:REST` or `file.py:Class`: the class of its worlds; tasks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError, nearest
from agentlite.core.records import Call
from agentlite.core.user_code import Named
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments import bfcl_tasks, bfcl_world, mcp_world
from agentlite.environments.mcp_world import is_url
from agentlite.environments.tasks import EnvironmentTask, read_tasks
from agentlite.environments.world import LIMITS, World, WorldLimits
from agentlite.scoring.metrics.bfcl import MULTI_TURN

KINDS = ("bfcl", "mcp")
NO_TASK = EnvironmentTask("")


class Environment(NamedTuple):
    """`named`: the class of its worlds. `tasks`: in their own order; raises UserError with the
    place of one that cannot be read. `files`: what a run in it depends on, by what it is.
    """

    named: Named
    tasks: Callable[[], Iterator[EnvironmentTask]]
    files: Mapping[str, Path]

    def world(self, limits: WorldLimits = LIMITS) -> World:
        return World(self.named, limits)


def environment(
    name: str,
    tasks_file: Path | None = None,
    extra_tools: int | None = None,
    needs_tasks: bool = True,
    env_keep: Sequence[str] = (),
) -> Environment:
    """`extra_tools`: how many tools BFCL's tasks offer that their gold does not call; all if None.
    `needs_tasks`: if not, a world without a file of tasks has one, which is empty.
    `env_keep`: variables that an MCP server gets.
    """
    kind, _, rest = name.partition(":")
    file, _, class_name = name.rpartition(":")
    is_class = file.endswith(".py") and class_name.isidentifier()
    if not rest.strip() or (kind not in KINDS and not is_class):
        raise UserError(
            f"'{name}' names no environment.",
            "Name `bfcl:multi_turn_base`, a class in a file, as `shop.py:Shop`, or an MCP server, "
            "`mcp:COMMAND` or `mcp:URL`.",
            location="--env",
        )
    if kind == "bfcl":
        return _bfcl(name, rest, tasks_file, extra_tools)
    if extra_tools is not None:
        raise UserError(
            f"{name} offers the tools that it has.",
            "Leave extra_tools out: it is for BFCL's. A class may have a method `tools` that "
            "returns those on offer.",
            location="extra_tools",
        )
    files = {"tasks": tasks_file} if tasks_file else {}
    complete: Callable[[EnvironmentTask], EnvironmentTask]
    if kind == "mcp":
        if is_url(rest) and "@" in rest.split("/")[2]:
            raise UserError(
                "the address holds a name or a password, and it is written to the plan.",
                "Leave them out: --env mcp:http://localhost:8000/mcp.",
                location="--env",
            )
        named = Named(mcp_world.__file__, mcp_world.McpWorld.__name__)
        complete = partial(_mcp, rest, env_keep)
    elif Path(file).is_file():
        named, complete = Named(file, class_name), lambda task: task
        files = {"env": Path(file), **files}
    else:
        raise UserError("there is no such file.", f"--env {name}", location=file)
    if needs_tasks and not tasks_file:
        raise UserError(
            f"{name} needs tasks.",
            'Write them as JSON lines, each {"prompt": "...", ...}, and name the file: --tasks '
            "tasks.jsonl",
            location="--env",
        )

    def tasks() -> Iterator[EnvironmentTask]:
        """Without a file, one in which nothing is asked."""
        return read_tasks(tasks_file, complete) if tasks_file else iter([complete(NO_TASK)])

    return Environment(named, tasks, files)


def _bfcl(
    name: str, category: str, tasks_file: Path | None, extra_tools: int | None
) -> Environment:
    if tasks_file is not None:
        raise UserError(
            f"{name} has its own tasks.", "Leave --tasks out.", location=f"--tasks {tasks_file}"
        )
    if category not in MULTI_TURN:
        fix = nearest(category, MULTI_TURN, prefix="bfcl:")
        raise UserError(f"BFCL has no dialogs '{category}'.", fix, location=f"--env {name}")
    named = Named(bfcl_world.__file__, bfcl_world.BfclWorld.__name__)
    # no file: the tasks come with a package, and the category, which is a setting, says which
    return Environment(named, partial(bfcl_tasks.tasks, category, extra_tools), {})


def _mcp(server: str, env_keep: Sequence[str], task: EnvironmentTask) -> EnvironmentTask:
    """With the row that `McpWorld.reset` takes. Raises RowError."""
    first = task.row.get("reset_calls", [])
    if not isinstance(first, list):
        raise RowError("E201", "reset_calls is not a list of calls")
    turns = task.row.get("user_turns", [])
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise RowError("E201", "user_turns is not a list of texts")
    gold = None if task.gold is None else _wire(chain.from_iterable(task.gold))
    row = {
        "server": server,
        "reset_calls": _wire(map(read_call, first)),
        "env_keep": list(env_keep),
        "user_turns": turns,
        "gold": gold,
    }
    return replace(task, row=row)


def _wire(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """As a world gets them."""
    return [{"name": call.name, "arguments": call.arguments} for call in calls]
