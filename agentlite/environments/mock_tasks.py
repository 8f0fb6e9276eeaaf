"""A file of tools + rows of tasks -> what `MockWorld.reset` takes."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentlite.core.errors import RowError, UserError
from agentlite.core.plain_words import utf8_text
from agentlite.core.records import plain
from agentlite.core.user_code import one_line
from agentlite.environments.gold_calls import wire
from agentlite.environments.mock_world import read_mock_tools
from agentlite.environments.tasks import EnvironmentTask, read_tasks, user_turns_of

EXAMPLE = (
    'Write [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", '
    '"properties": {"city": {"type": "string"}}}, "returns": {"type": "string"}}}].'
)


def read_tools_file(path: Path) -> list[dict[str, Any]]:
    """Raises UserError 2 for a file that is not a JSON list of tools."""

    def refused(reason: str) -> UserError:
        return UserError(f"{reason}.", EXAMPLE, location=str(path))

    try:
        tools = json.loads(utf8_text(path.read_bytes(), str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise refused(f"cannot be read as JSON: {one_line(str(error))}") from error
    if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools) or not tools:
        raise refused("is not a list of tools")
    try:
        read_mock_tools(tools)
    except RowError as error:
        raise refused(error.reason) from error
    return tools


def mock_tasks(tools: Sequence[dict[str, Any]], path: Path) -> Iterator[EnvironmentTask]:
    """Raises UserError 2 with the line of a task that cannot be read."""
    return read_tasks(path, lambda task: _with_tools(tools, task))


def _with_tools(tools: Sequence[dict[str, Any]], task: EnvironmentTask) -> EnvironmentTask:
    """Raises RowError E201."""
    world = task.row.get("world", "")
    row = {
        "tools": tools,
        "world": world if isinstance(world, str) else plain(world),
        "user_turns": user_turns_of(task),
        "gold": None if task.gold is None else wire(call for turn in task.gold for call in turn),
    }
    return task._replace(row=row)
