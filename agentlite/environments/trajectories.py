"""What a rollout leaves on disk: a row for each turn while it goes on, and one at its end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.core.records import Ending
from agentlite.core.row_files import read_rows

# the user has nothing more to say; the limit of turns; no room for another answer; the dialog
# cannot be written in the model's protocol; the world is lost
EndedBy = Literal["user", "turns", "length", "unwritten", "world"]


class RolloutKey(NamedTuple):
    """Which task, and which of its rollouts."""

    task: str
    sample: int


class ModelTurn(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model said at a turn, raw; what its calls returned; what the user said to it.

    `problem`: why the protocol could not read a call in the text; "" where it could. `offered`: the
    names of the tools on offer, in a dialog in which they changed; None in any other.
    """

    task: str
    sample: int
    turn: int
    text: str
    ended: Ending
    new_tokens: int
    results: tuple[tuple[str, bool], ...] = ()
    user: str | None = None
    problem: str = ""
    offered: tuple[str, ...] | None = None

    @property
    def key(self) -> RolloutKey:
        return RolloutKey(self.task, self.sample)


class Trajectory(Struct, frozen=True, forbid_unknown_fields=True):
    """A rollout that has ended: its dialog, all its tools as OpenAI writes them, and its scores.

    `split`: that of its task; "" where all tasks were taken.

    `problem`: why the world was lost, or the dialog could not be written; "" where neither was.
    """

    task: str
    sample: int
    split: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    turns: list[ModelTurn]
    ended: EndedBy
    scores: dict[str, float]
    problem: str = ""

    @property
    def key(self) -> RolloutKey:
        return RolloutKey(self.task, self.sample)

    def tools_at(self, turn: ModelTurn) -> list[dict[str, Any]]:
        """The tools on offer at a turn."""
        names = turn.offered
        return [one for one in self.tools if names is None or one["function"]["name"] in names]

    @property
    def calls(self) -> int:
        return sum(len(turn.results) for turn in self.turns)

    @property
    def failed_calls(self) -> int:
        return sum(failed for turn in self.turns for _, failed in turn.results)


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    for row in read_rows(path) if path.exists() else ():
        yield msgspec.convert(row, Trajectory)


def read_turns(path: Path) -> dict[RolloutKey, list[ModelTurn]]:
    """The turns of each rollout, in order. A turn that comes again stands for that one and all
    behind it: the rollout was begun anew there.
    """
    turns: dict[RolloutKey, list[ModelTurn]] = {}
    for row in read_rows(path) if path.exists() else ():
        one = msgspec.convert(row, ModelTurn)
        earlier = turns.setdefault(one.key, [])
        turns[one.key] = [*earlier[: one.turn], one]
    return turns
