"""The dialogs of a finished prep as tasks: who asks what, and what `RecordedWorld.reset` takes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.records import Call, Message, Record, from_row
from agentlite.core.row_files import read_rows
from agentlite.environments.gold_calls import wire
from agentlite.environments.tasks import EnvironmentTask


class _UserTurn(NamedTuple):
    """What the user says, and the calls behind it with their results; None: none is recorded."""

    words: str
    calls: Sequence[tuple[Call, str | None]]


def recorded_tasks(files: Mapping[str, Path]) -> Iterator[EnvironmentTask]:
    """Dialogs with tools that a user begins, each in the split that prep gave it."""
    for split, path in files.items():
        for record in map(from_row, read_rows(path)):
            if record.tools and record.turns and _first(record):
                yield _task(record, split)


def _first(record: Record) -> Sequence[Message]:
    """The messages before the first answer; none where the user is not among them."""
    first = record.messages[: record.turns[0]]
    return first if any(message.role == "user" for message in first) else ()


def _task(record: Record, split: str) -> EnvironmentTask:
    turns = list(_user_turns(record))
    made = [answered for turn in turns for answered in turn.calls]
    gold = tuple(tuple(call for call, _ in turn.calls) for turn in turns)
    is_known = all(_is_known(record, turn) for turn in record.turns)
    row: dict[str, Any] = {
        "tools": [tool.schema for tool in record.tools],
        "user_turns": [turn.words for turn in turns[1:]],
        "recorded": wire(call for call, _ in made),
        "results": [result for _, result in made],
        "gold": wire(call for call, _ in made) if is_known else None,
    }
    steps = [gold.optimal_steps for gold in record.gold.values() if gold.optimal_steps]
    return EnvironmentTask(
        record.id,
        tuple(_first(record)),
        row,
        gold if is_known else None,
        split=split,
        optimal_steps=max(steps, default=None),
    )


def _user_turns(record: Record) -> Iterator[_UserTurn]:
    words: list[str] = []
    calls: list[tuple[Call, str | None]] = []
    behind = False  # an answer
    for number, message in enumerate(record.messages):
        if message.role == "user":
            if behind:
                yield _UserTurn("\n\n".join(words), calls)
                words, calls, behind = [], [], False
            words.append(message.content)
        elif message.role == "assistant":
            behind = True
            calls += zip_longest(message.calls, _results(record, number, len(message.calls)))
    yield _UserTurn("\n\n".join(words), calls)


def _results(record: Record, turn: int, count: int) -> list[str]:
    """Of the calls of a turn, in their order."""
    behind = record.messages[turn + 1 : turn + 1 + count]
    return [message.content for message in behind if message.role == "tool"]


def _is_known(record: Record, turn: int) -> bool:
    """Whether the calls that are recorded at a turn are the right ones."""
    due = record.expected(turn).calls
    return (
        record.has_gold(turn)
        and [call.name for call in due] == [call.name for call in record.messages[turn].calls]
        and not record.unknown_arguments(turn)
    )
