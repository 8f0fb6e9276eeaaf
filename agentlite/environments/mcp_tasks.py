"""Tasks for an MCP server: rows of a file -> what `McpWorld.reset` takes."""

from collections.abc import Iterator
from pathlib import Path

from agentlite.core.errors import RowError
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.gold_calls import wire
from agentlite.environments.tasks import EnvironmentTask, read_tasks


def mcp_tasks(server: str, path: Path) -> Iterator[EnvironmentTask]:
    """`server`: a command or a URL. Raises UserError 2 with the line of a task that cannot be
    read.
    """
    return read_tasks(path, lambda task: _with_server(server, task))


def _with_server(server: str, task: EnvironmentTask) -> EnvironmentTask:
    """Raises RowError E201 and E206."""
    if not task.messages:
        raise RowError("E201", "a task of an MCP server has no prompt")
    user_turns, first = task.row.get("user_turns", []), task.row.get("reset_calls", [])
    if not isinstance(user_turns, list) or not all(isinstance(one, str) for one in user_turns):
        raise RowError("E201", "user_turns is not a list of texts")
    if not isinstance(first, list):
        raise RowError("E201", "reset_calls is not a list of calls")
    row = {
        "server": server,
        "user_turns": user_turns,
        "reset_calls": wire(map(read_call, first)),
        "gold": None if task.gold is None else wire(call for turn in task.gold for call in turn),
    }
    return task._replace(row=row)
