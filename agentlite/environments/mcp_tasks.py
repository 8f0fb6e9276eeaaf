"""Tasks for an MCP server: rows of a file -> what `McpWorld.reset` takes."""

from collections.abc import Iterator
from pathlib import Path

from agentlite.core.errors import RowError
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.gold_calls import wire
from agentlite.environments.tasks import EnvironmentTask, read_tasks, user_turns_of


def mcp_tasks(server: str, path: Path) -> Iterator[EnvironmentTask]:
    """`server`: a command or a URL. Raises UserError 2 with the line of a task that cannot be
    read.
    """
    return read_tasks(path, lambda task: _with_server(server, task))


def bare_server(server: str) -> Iterator[EnvironmentTask]:
    """The one task of a server that nobody has written tasks for: nothing is asked in it."""
    row = {"server": server, "user_turns": list[str](), "reset_calls": [], "gold": None}
    yield EnvironmentTask("", (), row)


def _with_server(server: str, task: EnvironmentTask) -> EnvironmentTask:
    """Raises RowError E201 and E206."""
    first = task.row.get("reset_calls", [])
    if not isinstance(first, list):
        raise RowError("E201", "reset_calls is not a list of calls")
    row = {
        "server": server,
        "user_turns": user_turns_of(task),
        "reset_calls": wire(map(read_call, first)),
        "gold": None if task.gold is None else wire(call for turn in task.gold for call in turn),
    }
    return task._replace(row=row)
