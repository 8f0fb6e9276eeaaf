"""Calls that were carried out, with their results -> the steps of an execution trace."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from agentlite.core.call_results import says_error
from agentlite.core.records import Call, Message

# in the words of a call that failed: TimeoutError, ReadTimeout, timed out
TIMED_OUT = re.compile(r"time[ -]?out|timed[ -]?out", re.IGNORECASE)
LOOKED_AT = 300  # characters of a result: what failed says so at once


class TraceStep(NamedTuple):
    """One executed call of a whole dialog, and what it returned."""

    call: Call
    ok: bool
    timed_out: bool = False
    result: str = ""


def trace_step(call: Call, result: str, failed: bool) -> TraceStep:
    """Only a call that failed can have run out of time: the words of any other are its result."""
    timed_out = failed and bool(TIMED_OUT.search(result[:LOOKED_AT]))
    return TraceStep(call, not failed, timed_out, result)


def recorded_steps(
    messages: Sequence[Message], failed: Collection[str] = ()
) -> tuple[TraceStep, ...]:
    """The calls of a recorded dialog that have a result, in the order of the results. `failed`: ids
    of calls of which the data says that they failed.
    """
    calls = {call.id: call for message in messages for call in message.calls}
    return tuple(
        trace_step(
            calls[message.call_id],
            message.content,
            message.call_id in failed or says_error(message.content),
        )
        for message in messages
        if message.role == "tool" and message.call_id in calls
    )
