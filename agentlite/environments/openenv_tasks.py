"""Tasks for an OpenEnv server: rows of a file -> what `OpenEnvWorld.reset` takes."""

from collections.abc import Iterator
from pathlib import Path

from agentlite.core.errors import RowError
from agentlite.environments.gold_calls import wire
from agentlite.environments.tasks import EnvironmentTask, read_tasks, user_turns_of


def openenv_tasks(server: str, path: Path) -> Iterator[EnvironmentTask]:
    """`server`: a URL. Raises UserError 2 with the line of a task that cannot be read."""
    return read_tasks(path, lambda task: _with_server(server, task))


def _with_server(server: str, task: EnvironmentTask) -> EnvironmentTask:
    """Raises RowError E201."""
    reset = task.row.get("reset", {})
    if not isinstance(reset, dict):
        raise RowError("E201", "reset is not an object with what the environment's reset takes")
    row = {
        "server": server,
        "reset": reset,
        "prompted": task.asks,
        "user_turns": user_turns_of(task),
        "gold": None if task.gold is None else wire(call for turn in task.gold for call in turn),
    }
    return task._replace(row=row)
