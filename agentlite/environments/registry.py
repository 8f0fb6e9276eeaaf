"""An environment by its name, `KIND:REST` or `file.py:Class`: the class of its worlds; tasks."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from agentlite.core.errors import UserError, nearest
from agentlite.core.user_code import Named
from agentlite.environments import bfcl_tasks, bfcl_world, mcp_world
from agentlite.environments.mcp_client import is_url
from agentlite.environments.mcp_tasks import bare_server, mcp_tasks
from agentlite.environments.mock_tasks import mock_tasks, read_tools_file
from agentlite.environments.mock_world import MockWorld
from agentlite.environments.tasks import EnvironmentTask, read_tasks
from agentlite.environments.world import LIMITS, World, WorldLimits

CLASS = "class {}:"
KINDS = ("bfcl", "mcp", "mock")


class Environment(NamedTuple):
    """`named`: the class of its worlds; None where a model stands for the tools. `tasks`: in their
    own order; raises UserError with the place of one that cannot be read. `files`: what a run in it
    depends on, by what it is. `users`: what says what a user says: the record, the class, or the
    task; a model may play the user in the last two.
    """

    name: str
    named: Named | None
    tasks: Callable[[], Iterator[EnvironmentTask]]
    files: Mapping[str, Path]
    users: Literal["record", "class", "task"] = "task"

    def world(self, limits: WorldLimits = LIMITS) -> World | MockWorld:
        return MockWorld() if self.named is None else World(self.named, limits)


def environment(
    name: str,
    tasks_file: Path | None = None,
    extra_tools: int | None = None,
    needs_tasks: bool = True,
) -> Environment:
    """`needs_tasks`: if not, a world without a file of tasks has one, which is empty. Raises
    UserError 2 for a name of no kind, a file that is not there, a missing `tasks_file` and one too
    many, and `extra_tools` where the world says which tools it has.
    """
    kind, _, rest = name.partition(":")
    if not rest.strip() or (kind not in KINDS and not _is_class(name)):
        raise UserError(
            f"'{name}' names no environment.",
            "Name `bfcl:multi_turn_base`, a class in a file, as `shop.py:Shop`, an MCP server, "
            "`mcp:COMMAND` or `mcp:URL`, or a list of tools, `mock:tools.json`.",
            location="--env",
        )
    if kind == "bfcl":
        if tasks_file is not None:
            raise UserError(
                f"{name} has its own tasks.", "Leave --tasks out.", location=f"--tasks {tasks_file}"
            )
        return _bfcl(name, rest, extra_tools)
    if extra_tools is not None:
        raise UserError(
            f"{name} offers the tools that it has.",
            "Leave --extra-tools out: it is for BFCL's. A class may have a method `tools` that "
            "returns those on offer.",
            location="--extra-tools",
        )
    if kind == "mcp":
        if is_url(rest) and "@" in rest.split("/")[2]:
            raise UserError(
                "the address holds a name or a password, and it is written to the plan.",
                "Leave them out: --env mcp:http://localhost:8000/mcp.",
                location="--env",
            )
    elif not Path(file := rest if kind == "mock" else name.rpartition(":")[0]).is_file():
        raise UserError("there is no such file.", f"--env {name}", location=file)
    if tasks_file is None and (needs_tasks or kind == "mock"):
        raise UserError(
            f"{name} needs tasks.",
            'Write them as JSON lines, each {"prompt": "...", ...}, and name the file: --tasks '
            "tasks.jsonl",
            location="--env",
        )
    given = {"tasks": tasks_file} if tasks_file else {}
    tasks: Callable[[], Iterator[EnvironmentTask]]
    if kind == "mcp":
        named = Named(mcp_world.__file__, mcp_world.McpWorld.__name__, CLASS)
        tasks = partial(mcp_tasks, rest, tasks_file) if tasks_file else partial(bare_server, rest)
        return Environment(name, named, tasks, given)
    if kind == "mock":
        assert tasks_file
        tasks = partial(mock_tasks, read_tools_file(Path(rest)), tasks_file)
        return Environment(name, None, tasks, {"tools": Path(rest), **given})
    file, _, made_by = name.rpartition(":")
    tasks = partial(read_tasks, tasks_file) if tasks_file else _bare_class
    named = Named(file, made_by, CLASS)
    return Environment(name, named, tasks, {"env": Path(file), **given}, users="class")


def _bare_class() -> Iterator[EnvironmentTask]:
    yield EnvironmentTask("", (), {})


def _is_class(name: str) -> bool:
    file, _, made_by = name.rpartition(":")
    return file.endswith(".py") and made_by.isidentifier()


def _bfcl(name: str, category: str, extra_tools: int | None) -> Environment:
    """`extra_tools`: how many tools its tasks offer that their gold does not call; all if None."""
    if category not in bfcl_tasks.CATEGORIES:
        fix = nearest(category, bfcl_tasks.CATEGORIES, prefix="bfcl:")
        raise UserError(f"BFCL has no dialogs '{category}'.", fix, location=f"--env {name}")
    named = Named(bfcl_world.__file__, bfcl_world.BfclWorld.__name__, CLASS)
    # they come with a package: the category, which is a setting, says which
    return Environment(name, named, partial(bfcl_tasks.tasks, category, extra_tools), {}, "record")
