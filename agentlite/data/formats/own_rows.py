"""What agentlite itself writes, rows of prep and trajectories of rollout -> Record."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record, Tool, from_row
from agentlite.data.formats import openai
from agentlite.data.formats.check_call import check_arguments
from agentlite.data.formats.format import Format, Row, meta_of
from agentlite.data.formats.json_decode import json_value
from agentlite.data.formats.tool_calls import json_schema
from agentlite.rendering.foreign_text import result_mark

# ends of a rollout whose dialog is not whole
UNUSABLE = ("hung", "world", "unanswered", "unwritten")


class RolloutMeta(Struct):
    """What the meta of a record that was a rollout says of it."""

    task: str
    sample: int
    scores: dict[str, float]


class TrajectoryRow(RolloutMeta):
    """What a row of trajectories has beside its dialog."""

    ended: str
    turns: list[dict[str, Any]]


def read_prepared_row(row: Row) -> Record:
    """A row of prep. Raises RowError E211, or what is wrong with a JSON text."""
    try:
        # nothing else looks at the types
        record = msgspec.convert(msgspec.to_builtins(from_row(row)), Record)
        json_value(json.dumps(msgspec.to_builtins(record, str_keys=True)))
    except RecursionError as error:
        raise RowError("E119", "nested too deep") from error
    msgspec.convert(record.meta.get("joined", []), list[str])
    if "rollout" in record.meta:
        msgspec.convert(record.meta["rollout"], RolloutMeta)
    tools = [
        replace(tool, parameters=json_schema(tool.parameters, tool.name)) for tool in record.tools
    ]
    return replace(record, tools=tuple(tools))


def read_trajectory(row: Row) -> Record:
    """The dialog up to the model's last turn. A turn that failed, that invents the result of a
    call, or whose call breaks its schema though the world took it, stays in it and is not learned.
    Raises RowError F313 for a rollout without a turn to learn.
    """
    msgspec.convert(row, TrajectoryRow)
    turns = row["turns"]
    if row["ended"] in UNUSABLE:
        raise RowError("F313", f"ended by '{row['ended']}': {row.get('problem') or 'no reason'}")
    if any(turn.get("offered") is not None for turn in turns):
        raise RowError("F313", "the tools on offer changed on the way: no row can say that")
    # only the dialog: the other keys of such a row say how the rollout went
    record = openai.read({key: row.get(key) for key in ("messages", "tools")})
    if not record.turns or not turns:
        raise RowError("F313", "no turn of the model")
    if len(record.turns) < len(turns):
        raise RowError("E201", f"{len(record.turns)} assistant messages, but {len(turns)} turns")
    # a client of `serve` may have sent answers of others before the first of the model's
    earlier_turns, model_turns = record.turns[: -len(turns)], record.turns[-len(turns) :]
    messages = list(record.messages[: model_turns[-1] + 1])
    tools = {tool.name: tool for tool in record.tools}
    for index in earlier_turns:
        messages[index] = replace(messages[index], loss=False)
    for index, turn in zip(model_turns, turns, strict=True):
        # a call failed, or the protocol could not read the text
        # results: (text, whether the call failed) for each call
        has_failed = (
            turn["ended"] == "cut"
            or turn.get("problem")
            or any(is_failed for _, is_failed in turn.get("results") or ())
        )
        is_learned = not has_failed and is_to_learn(messages[index], tools)
        messages[index] = replace(messages[index], loss=is_learned)
    if not any(messages[index].loss for index in model_turns):
        raise RowError("F313", "every turn failed, broke a schema or invented a result")
    rollout = {key: row[key] for key in ("task", "sample", "scores", "ended")}
    # the last two: of older versions
    keys = (*TRAJECTORY.keys, "problem", "simulated_user", "tool_faults")
    return replace(record, messages=tuple(messages), meta=meta_of(row, *keys, rollout=rollout))


def is_to_learn(message: Message, tools: Mapping[str, Tool]) -> bool:
    """Whether a turn without a failed call invents no result and breaks no schema."""
    if result_mark(message.content, {*tools}):
        return False
    try:
        for call in message.calls:
            if call.name in tools:  # otherwise it failed: validate() says where it did not
                check_arguments(call, tools[call.name])
    except RowError:
        return False
    return True


AGENTLITE = Format(
    "agentlite",
    read_prepared_row,
    {"messages": list}
    | dict.fromkeys(("parent", "source", "task", "split", "tools", "gold", "meta"), str),
)
TRAJECTORY = Format(
    "trajectory",
    read_trajectory,
    dict.fromkeys(("task", "sample", "messages", "tools", "turns", "ended", "scores"), object),
)
