"""What a rollout leaves on disk: its dialog, turn by turn, and its scores."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from agentlite.core.records import Ending
from agentlite.core.row_files import read_structs
from agentlite.workspace import lookup

# the user has nothing more to say; the world is done; the limit of turns; no room for another
# answer; the dialog cannot be written in the model's protocol; a call did not return in time; the
# world is lost; the server of a model has no answer
EndedBy = Literal["user", "done", "turns", "length", "unwritten", "hung", "world", "unanswered"]
LOST: tuple[EndedBy, ...] = ("world", "unanswered")  # no score: it says nothing about the model

TRAJECTORIES = "trajectories.jsonl"
NOT_SAMPLED = -1  # in place of a turn's number: the model only read this id


class RolloutKey(NamedTuple):
    """Which task, and which of its rollouts."""

    task: str
    sample: int


class ModelTurn(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model said at a turn, raw; what its calls returned; what the user said to it.

    `problem`: why the protocol could not read a call in the text; "" where it could. `offered`: the
    names of the tools on offer, in a dialog in which they changed; None in any other.

    `ids`: of the text as it was sampled, its end included; none from a server. `prompt_ids`: what
    the model read before it: the whole prompt if the turn `opens` a row, and otherwise what came
    behind the ids of the turn before.
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
    opens: bool = True
    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()


class TokenRow(NamedTuple):
    """Turns of a rollout that the model read as one text: its first prompt, and the ids behind it.
    `turns`: of each of these the number of the turn it was sampled at, or NOT_SAMPLED.
    """

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    turns: tuple[int, ...]

    @property
    def mask(self) -> list[int]:
        """1 where an id was sampled."""
        return [int(turn != NOT_SAMPLED) for turn in self.turns]


class Trajectory(Struct, frozen=True):
    """A rollout that has ended: its dialog, all its tools as OpenAI writes them, and its scores.

    `split`: that of its task; "" where all tasks were taken.

    `problem`: which call hung, why the world was lost, the dialog could not be written, or there is
    no answer; "" where none of them was. `by_turn`: the scores of each turn of the user's, where
    the world says. `rewards`: what the functions of the user give; only `grpo` keeps them.
    `reward_problem`: why one gave nothing. Rows of older versions have other keys besides.
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
    by_turn: list[dict[str, float]] = []
    rewards: dict[str, float] = {}
    reward_problem: str = ""

    @property
    def key(self) -> RolloutKey:
        return RolloutKey(self.task, self.sample)

    def tools_at(self, turn: ModelTurn) -> list[dict[str, Any]]:
        """The tools on offer at a turn."""
        names = turn.offered
        return [tool for tool in self.tools if names is None or tool["function"]["name"] in names]

    def token_rows(self) -> list[TokenRow]:
        """All ids that the model read and sampled. A rollout is one row, or several where the
        template writes a turn otherwise once it is history. Where turn 0 samples `a a` to the
        prompt `p p p`, `r r` is read behind it, and turn 1 samples `b`:

            prompt p p p    ids a a r r b    turns 0 0 -1 -1 1    mask 1 1 0 0 1
        """
        rows: list[TokenRow] = []
        for turn in self.turns:
            if turn.opens or not rows:
                rows.append(TokenRow(turn.prompt_ids, turn.ids, (turn.turn,) * len(turn.ids)))
            else:
                prompt, ids, turns = rows[-1]
                turns += (NOT_SAMPLED,) * len(turn.prompt_ids) + (turn.turn,) * len(turn.ids)
                rows[-1] = TokenRow(prompt, ids + turn.prompt_ids + turn.ids, turns)
        return rows

    @property
    def calls(self) -> int:
        return sum(len(turn.results) for turn in self.turns)

    @property
    def failed_calls(self) -> int:
        return sum(failed for turn in self.turns for _, failed in turn.results)


def is_rollout(folder: Path) -> bool:
    """Whether a stage has trajectories: one of `rollout`, or of `grpo` in an environment."""
    return lookup.is_stage(folder) and (
        (folder / TRAJECTORIES).exists() or lookup.read_plan(folder).command == "rollout"
    )


def finished_trajectories(folder: Path) -> Path:
    """The trajectories of a stage, which must be whole and unchanged."""
    lookup.finished_stage(folder, "" if is_rollout(folder) else "rollout")
    return folder / TRAJECTORIES


def read_trajectories(path: Path) -> Iterable[Trajectory]:
    return read_structs(path, Trajectory) if path.exists() else ()
