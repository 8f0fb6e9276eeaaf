"""Rows of trajectories.jsonl, as `agentlite rollout` writes them -> Record."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.plain_words import misfit
from agentlite.core.records import Message, Record, Tool
from agentlite.data.formats import openai
from agentlite.data.formats.check_call import check_arguments
from agentlite.data.formats.extra_fields import meta_of
from agentlite.rendering.result_marks import result_mark

EXAMPLE = '{"task": "one", "sample": 0, "split": "", "messages": [{"role": "user", "content": "Buy a fig."}, {"role": "assistant", "content": "I cannot."}], "tools": [], "turns": [{"task": "one", "sample": 0, "turn": 0, "text": "I cannot.", "ended": "turn", "new_tokens": 4, "results": [], "user": null, "problem": ""}], "ended": "user", "scores": {"env": 0.0}, "problem": ""}'  # noqa: E501  (a row is one line)
FIELDS = dict.fromkeys(("task", "sample", "messages", "tools", "turns", "ended", "scores"), object)
UNUSABLE = ("world", "unanswered", "unwritten")  # ends of a rollout whose dialog is not whole


class TurnOutcome(Struct, frozen=True):
    """What became of a turn: it decides whether the turn is learned."""

    ended: str
    results: list[tuple[str, bool]] = []
    problem: str = ""
    offered: list[str] | None = None

    @property
    def failed(self) -> bool:
        """A call failed, or the protocol could not read the text."""
        return self.ended == "cut" or bool(self.problem) or any(bad for _, bad in self.results)


class RolloutOutcome(Struct, frozen=True):
    """What became of a rollout: the fields of a row without its dialog."""

    task: str
    sample: int
    turns: list[TurnOutcome]
    ended: str
    scores: dict[str, float]
    problem: str = ""
    simulated_user: dict[str, Any] | None = None


def read(row: dict[str, Any]) -> Record:
    """The dialog up to the model's last turn. A turn that failed, that invents the result of a
    call, or whose call breaks its schema though the world took it, stays in it and is not learned.
    Raises RowError F313 for a rollout without a turn to learn.
    """
    try:
        outcome = msgspec.convert(row, RolloutOutcome)
    except msgspec.ValidationError as error:
        raise RowError("E201", misfit(error)) from error
    if outcome.ended in UNUSABLE:
        raise RowError("F313", f"ended by '{outcome.ended}': {outcome.problem or 'no reason'}")
    if any(turn.offered is not None for turn in outcome.turns):
        raise RowError("F313", "the tools on offer changed on the way: no row can say that")
    record = openai.read({key: row.get(key) for key in ("messages", "tools")})
    if not record.turns or not outcome.turns:
        raise RowError("F313", "no turn of the model")
    # a client of `serve` may have sent answers of others before the first of the model's
    ours = record.turns[max(0, len(record.turns) - len(outcome.turns)) :]
    if len(ours) != len(outcome.turns):
        problem = f"{len(record.turns)} assistant messages, but {len(outcome.turns)} turns"
        raise RowError("E201", problem)
    messages = list(record.messages[: record.turns[-1] + 1])
    tools = {tool.name: tool for tool in record.tools}
    for place in record.turns[: -len(ours)]:
        messages[place] = replace(messages[place], loss=False)
    for place, turn in zip(ours, outcome.turns, strict=True):
        learned = not turn.failed and is_to_learn(messages[place], tools)
        messages[place] = replace(messages[place], loss=learned)
    if not any(messages[place].loss for place in ours):
        raise RowError(
            "F313", "every turn of the model failed, broke a schema or invented a result"
        )
    rollout = {key: row[key] for key in ("task", "sample", "scores", "ended")}
    if outcome.simulated_user:
        rollout["user_errors"] = len(outcome.simulated_user["faults"])
    meta = meta_of(row, *FIELDS, "problem", "simulated_user", "tool_faults", rollout=rollout)
    return replace(record, messages=tuple(messages), meta=meta)


def is_to_learn(message: Message, tools: Mapping[str, Tool]) -> bool:
    """Whether a turn of a model, none of whose calls failed, invents no result and breaks no
    schema.
    """
    if result_mark(message.content, {*tools}):
        return False
    try:
        for call in message.calls:
            if call.name in tools:  # otherwise it failed: validate() says where it did not
                check_arguments(call, tools[call.name])
    except RowError:
        return False
    return True
