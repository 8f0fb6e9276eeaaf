"""Tasks of an environment: what the user asks first, and the row that its world is reset with."""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call, Message, canonical, digest
from agentlite.core.row_files import read_structs, write_rows
from agentlite.data.curation.traits import normalize
from agentlite.data.formats.openai import ROLES
from agentlite.data.formats.raw_rows import read_raw
from agentlite.data.formats.tool_calls import read_call

TASKS = "tasks.jsonl"  # of a stage: the tasks whose rollouts it has


class EnvironmentTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`id`: the task's own, or a digest of its row. `messages`: the first; none where the world's
    reset says what the user asks. `gold`: the right calls, by turn of the user; None where nobody
    knows them. `group`: tasks of one group are in the same split. `optimal_steps`: the fewest calls
    with which it can be done, where the task says so. `location`: its file and line; "" where no
    file of tasks has it.
    """

    id: str
    messages: tuple[Message, ...] = ()
    row: dict[str, Any] = {}
    gold: tuple[tuple[Call, ...], ...] | None = None
    group: str = ""
    split: str = ""
    optimal_steps: int | None = None
    location: str = ""

    @property
    def name(self) -> str:
        """As errors name it: its id may be a digest, which stands nowhere."""
        return f"{self.id} ({self.location})" if self.location else self.id

    @property
    def fewest_calls(self) -> int | None:
        """As the task says, or as many as are right; None where nobody knows."""
        if self.optimal_steps is not None or self.gold is None:
            return self.optimal_steps
        return sum(map(len, self.gold))


def write_tasks(folder: Path, tasks: Iterable[EnvironmentTask]) -> None:
    """What the rewards of a rollout need to know of its task."""
    keys = ("id", "row", "gold", "optimal_steps")
    rows = map(msgspec.to_builtins, tasks)
    write_rows(folder / TASKS, ({key: row[key] for key in keys} for row in rows))


def stored_tasks(folder: Path) -> dict[str, EnvironmentTask]:
    """By id; none where a stage has trajectories without tasks."""
    path = folder / TASKS
    tasks = read_structs(path, EnvironmentTask) if path.exists() else ()
    return {task.id: task for task in tasks}


def read_tasks(
    path: Path, complete: Callable[[EnvironmentTask], EnvironmentTask] = lambda task: task
) -> Iterator[EnvironmentTask]:
    """Rows as TRL has them: `prompt`, a text or messages; and columns of the environment's.
    `complete`: the task as its kind of environment takes it, or RowError.
    """
    for raw in read_raw(str(path), io.BytesIO()):
        if raw.error:
            raise UserError(
                f"{raw.error.reason}.",
                "Write each task as a JSON object on a line of its own, in UTF-8: "
                '{"prompt": "..."}.',
                location=raw.location,
            )
        try:
            yield complete(msgspec.structs.replace(task_of(raw.value), location=raw.location))
        except RowError as error:
            raise UserError(
                f"{error.reason}.",
                'A task is {"prompt": "..."}, or a list of messages there, with the columns that '
                "the environment's reset takes.",
                location=raw.location,
            ) from error


def task_of(row: dict[str, Any]) -> EnvironmentTask:
    """Raises RowError E201."""
    prompt = row.get("prompt", [])
    prompt_rows = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not isinstance(prompt_rows, list):
        raise RowError("E201", "prompt is not a text or a list of messages")
    messages = tuple(map(_prompt_message, prompt_rows))
    gold = None
    if "gold" in row:
        # [[{"name": ..., "arguments": {...}}, ...], ...]: the calls of each turn of the user's
        turns = row["gold"]
        if not isinstance(turns, list) or not all(isinstance(turn, list) for turn in turns):
            raise RowError(
                "E201", "gold is not a list with a list of calls for each turn of the user"
            )
        gold = tuple(tuple(map(read_call, turn)) for turn in turns)
    steps = row.get("optimal_steps")
    if steps is not None and (type(steps) is not int or steps < 1):
        raise RowError("E201", "optimal_steps is not a whole number above 0")
    task_id = row.get("id")
    return EnvironmentTask(
        task_id if isinstance(task_id, str) and task_id else digest(canonical(row)),
        messages,
        row,
        gold,
        # one question has one split, also where case, blanks or punctuation differ
        group=normalize(" ".join(m.content for m in messages if m.role == "user")),
        optimal_steps=steps,
    )


def _prompt_message(message: Any) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("content"), str):
        raise RowError("E201", "a message of prompt has no role and text")
    role = ROLES.get(message.get("role", ""))
    if role not in ("system", "user"):
        raise RowError("E201", "a message of prompt has another role than system or user")
    return Message(role, message["content"])
