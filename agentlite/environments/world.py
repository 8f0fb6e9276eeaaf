"""A world in a process of its own: reset, called, asked for its scores; what it breaks is its own.

A process is started for each world, with a time limit for each question and a memory limit. So
worlds never see each other, and one that hangs or dies costs its own rollout.
"""

from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import RowError
from agentlite.core.records import Call, Tool
from agentlite.core.user_code import TOOK_LONGER, UserCode, UserFunction
from agentlite.data.formats.tool_calls import read_tools
from agentlite.environments import world_process

MOST_TEXT = 100_000  # characters of a result that a model is shown


class WorldLimits(NamedTuple):
    """`seconds` for each call, reset and score; `memory` in GiB for each process of the world."""

    seconds: float = 10.0
    memory: float = 4.0


LIMITS = WorldLimits()


class CallResult(NamedTuple):
    """What came back, as the model reads it; whether the call failed, and whether the world has
    nothing left to do. `hung`: nothing came back in time, and the world was stopped.
    """

    text: str
    failed: bool
    done: bool = False
    hung: bool = False


class WorldError(Exception):
    """The world cannot be built, has died or did not answer in time; the text says which."""


class World:
    """One world for one rollout. A context: at its end the process and all it started are gone.

    `tools` are those on offer now; a reset or a user's turn may change them.
    """

    def __init__(self, world_class: UserFunction, limits: WorldLimits = LIMITS):
        self.world_class = world_class
        self.code = UserCode([world_class], world_process.answer, *limits)
        self.tools: tuple[Tool, ...] = ()

    def __enter__(self) -> "World":
        return self

    def check_class(self) -> None:
        """Raises UserError 2 where its file cannot be imported or has no such class."""
        self.code.start()
        self.code.stop()

    def __exit__(self, kind: object, *error: object) -> None:
        """It may close what it has opened, unless what ended it was an error, or an interrupt: then
        nothing waits for it. Either way the process is killed, with its group.
        """
        try:
            if kind is None and self.code.child is not None:
                self.code.ask(self.world_class.name, ["close"])
        finally:
            self.code.stop()

    def reset(self, row: dict[str, Any]) -> str | None:
        """A fresh world for a task's row. The text that it returns is added to the first user
        message. A second one is made in the process of the first, which is closed.

        Raises WorldError, and UserError where the class cannot be imported.
        """
        if self.code.child is None:
            self.code.start()  # imports the file of the class, which has a longer limit of its own
        self._ask("__init__")
        return self._hear("reset", row)

    def call(self, call: Call) -> CallResult:
        """Raises WorldError where the world dies; a call that fails, or hangs, is a result."""
        try:
            text, failed, done = self._ask("call", call.name, call.arguments)
        except WorldError as error:
            # `_ask` puts its question in front: "call took longer than 10 s"
            if not str(error).startswith(f"call {TOOK_LONGER}"):
                raise
            console.notice(f"{call.name}: the {error}; its world is stopped")
            return CallResult(f"Error: TimeoutError: the {error}", failed=True, hung=True)
        if len(text) > MOST_TEXT:
            text = f"{text[:MOST_TEXT]} ... ({len(text) - MOST_TEXT:,} more characters)"
        return CallResult(text, failed, done)

    def next_user(self, answer: str) -> str | None:
        """What the user says to a turn without a call; None: the dialog is over."""
        return self._hear("next_user", answer)

    def scores(self) -> dict[str, float]:
        """By name; `env` is what `get_reward` gives."""
        return dict(self._ask("scores"))

    def turn_scores(self) -> list[dict[str, float]]:
        """Those of each turn of the user's; [] where the world does not say."""
        return list(self._ask("turn_scores"))

    def state(self) -> Any:
        """Equal as long as no call has changed anything; None where the world has no `state`."""
        return self._ask("state")

    def _ask(self, method: str, *arguments: object) -> Any:
        if self.code.child is None:
            raise WorldError("the world has ended")
        value, problem = self.code.ask(self.world_class.name, [method, *arguments])
        if problem:
            raise WorldError(f"{method} {problem}")
        return value

    def _hear(self, method: str, argument: object) -> str | None:
        """What the world says; the tools on offer may be others from then on."""
        text, tools = self._ask(method, argument)
        try:
            self.tools = read_tools(tools)
        except RowError as error:
            raise WorldError(f"a tool cannot be read: {error.reason}") from error
        return None if text is None else str(text)
