"""An environment by its name, `KIND:REST` or `file.py:Class`: the class of its worlds; tasks."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError, nearest
from agentlite.core.plain_words import utf8_text
from agentlite.core.records import plain
from agentlite.core.user_code import Named, one_line
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments import bfcl_tasks, bfcl_world, mcp_world
from agentlite.environments.gold_calls import wire
from agentlite.environments.mcp_world import is_url
from agentlite.environments.mock_world import MockWorld, read_mock_tools
from agentlite.environments.tasks import EnvironmentTask, read_tasks
from agentlite.environments.world import LIMITS, World, WorldLimits

CLASS = "class {}:"
KINDS = ("bfcl", "mcp", "mock")
NO_TASK = EnvironmentTask("")
TOOLS_EXAMPLE = (
    'Write [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", '
    '"properties": {"city": {"type": "string"}}}, "returns": {"type": "string"}}}].'
)


class Environment(NamedTuple):
    """`named`: the class of its worlds; None where a model stands for the tools. `tasks`: in their
    own order; raises UserError with the place of one that cannot be read. `files`: what a run in it
    depends on, by what it is. `has_user`: the class may read a task's column `user` itself.
    """

    name: str
    named: Named | None
    tasks: Callable[[], Iterator[EnvironmentTask]]
    files: Mapping[str, Path]
    has_user: bool = False

    def world(self, limits: WorldLimits = LIMITS) -> World | MockWorld:
        return MockWorld() if self.named is None else World(self.named, limits)


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
            "Name `bfcl:multi_turn_base`, a class in a file, as `shop.py:Shop`, an MCP server, "
            "`mcp:COMMAND` or `mcp:URL`, or a list of tools, `mock:tools.json`.",
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
    files: dict[str, Path] = {}
    if kind == "mcp":
        if is_url(rest) and "@" in rest.split("/")[2]:
            raise UserError(
                "the address holds a name or a password, and it is written to the plan.",
                "Leave them out: --env mcp:http://localhost:8000/mcp.",
                location="--env",
            )
    else:
        files = {"tools": Path(rest)} if kind == "mock" else {"env": Path(file)}
        for path in files.values():
            if not path.is_file():
                raise UserError("there is no such file.", f"--env {name}", location=str(path))
    if tasks_file:
        files["tasks"] = tasks_file
    elif needs_tasks or kind == "mock":
        raise UserError(
            f"{name} needs tasks.",
            'Write them as JSON lines, each {"prompt": "...", ...}, and name the file: --tasks '
            "tasks.jsonl",
            location="--env",
        )
    complete: Callable[[EnvironmentTask], EnvironmentTask]
    if kind == "mcp":
        named: Named | None = Named(mcp_world.__file__, mcp_world.McpWorld.__name__, CLASS)
        complete = partial(_mcp, rest, env_keep)
    elif kind == "mock":
        named, complete = None, partial(_mock, read_tools_file(Path(rest)))
    else:
        named, complete = Named(file, class_name, CLASS), lambda task: task

    def tasks() -> Iterator[EnvironmentTask]:
        """Without a file, one in which nothing is asked."""
        return read_tasks(tasks_file, complete) if tasks_file else iter([complete(NO_TASK)])

    return Environment(name, named, tasks, files, has_user=kind not in KINDS)


def _bfcl(
    name: str, category: str, tasks_file: Path | None, extra_tools: int | None
) -> Environment:
    if tasks_file is not None:
        raise UserError(
            f"{name} has its own tasks.", "Leave --tasks out.", location=f"--tasks {tasks_file}"
        )
    if category not in bfcl_tasks.CATEGORIES:
        fix = nearest(category, bfcl_tasks.CATEGORIES, prefix="bfcl:")
        raise UserError(f"BFCL has no dialogs '{category}'.", fix, location=f"--env {name}")
    named = Named(bfcl_world.__file__, bfcl_world.BfclWorld.__name__, CLASS)
    # no file: the tasks come with a package, and the category, which is a setting, says which
    return Environment(name, named, partial(bfcl_tasks.tasks, category, extra_tools), {})


def _mcp(server: str, env_keep: Sequence[str], task: EnvironmentTask) -> EnvironmentTask:
    """With the row that `McpWorld.reset` takes. Raises RowError."""
    first = task.row.get("reset_calls", [])
    if not isinstance(first, list):
        raise RowError("E201", "reset_calls is not a list of calls")
    calls = wire(map(read_call, first))
    return _with_row(task, server=server, reset_calls=calls, env_keep=list(env_keep))


def _mock(tools: list[dict[str, Any]], task: EnvironmentTask) -> EnvironmentTask:
    """With the row that `MockWorld.reset` takes. Raises RowError."""
    world = task.row.get("world", "")
    return _with_row(task, tools=tools, world=world if isinstance(world, str) else plain(world))


def _with_row(task: EnvironmentTask, **columns: Any) -> EnvironmentTask:
    """`columns`, with what the user says behind its first turn, and the right calls."""
    turns = task.row.get("user_turns", [])
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise RowError("E201", "user_turns is not a list of texts")
    if turns and task.user is not None:
        raise RowError("E201", "a task has user_turns or a user, and not both")
    gold = None if task.gold is None else wire(call for calls in task.gold for call in calls)
    return replace(task, row={**columns, "user_turns": turns, "gold": gold})


def read_tools_file(path: Path) -> list[dict[str, Any]]:
    """A JSON list of tools."""
    problem = ""
    try:
        tools = json.loads(utf8_text(path.read_bytes(), str(path)))
        if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
            read_mock_tools(tools)
            return tools
        problem = "is not a list of tools"
    except RowError as error:
        problem = error.reason
    except (OSError, ValueError, RecursionError) as error:
        problem = f"cannot be read as JSON: {one_line(str(error))}"
    raise UserError(f"{problem}.", TOOLS_EXAMPLE, location=str(path))
