"""A completion with the gold of its step, or a whole dialog: the facts that components look at."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from agentlite.core.records import Call, Gold, GoldCall, Parsed, Tool
from agentlite.scoring.rewards.call_matching import CallMatch, CallUse, ordered, uses

OPTIMAL_STEPS = 5  # of a whole dialog, where the gold has no number


class TraceStep(NamedTuple):
    """One executed step of a whole dialog."""

    call: Call
    ok: bool
    timed_out: bool = False


class Attempt(Struct, frozen=True, dict=True):
    """All that a component may look at; what several of them need is computed once.

    With a `trace` the whole dialog is scored: its calls are those of the trace, and `parsed` is the
    last text.
    """

    parsed: Parsed
    gold: Gold
    tools: Sequence[Tool]
    finished: bool = True
    text: str = ""
    trace: tuple[TraceStep, ...] | None = None

    @property
    def readable(self) -> bool:
        return self.finished and not self.parsed.problem

    @cached_property
    def made(self) -> Sequence[Call]:
        """The calls, sorted: the order in which they were made changes no component."""
        return ordered(
            self.parsed.calls if self.trace is None else [step.call for step in self.trace]
        )

    @cached_property
    def uses(self) -> Mapping[str, CallUse]:
        """The expected calls and those made, by tool."""
        return uses(ordered(self.gold.calls), self.made, self.tools)

    @cached_property
    def matches(self) -> list[tuple[GoldCall, CallMatch | None]]:
        """Every expected call with the call that is assigned to it, if there is one."""
        return [match for use in self.uses.values() for match in use.matches]

    @cached_property
    def carried_out(self) -> int:
        """How many expected calls of a whole dialog succeeded, each at another step."""
        succeeded = ordered([step.call for step in self.trace or () if step.ok])
        return sum(
            use.served() for use in uses(ordered(self.gold.calls), succeeded, self.tools).values()
        )

    @property
    def failed_steps(self) -> int:
        return sum(not step.ok for step in self.trace or ())

    @property
    def optimal_steps(self) -> int:
        return self.gold.optimal_steps or OPTIMAL_STEPS
