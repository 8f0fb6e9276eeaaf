"""A walk where a model stands for the tools: it makes up arguments and results, each asked once."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from agentlite.core.json_schema import misfit
from agentlite.core.records import Call, Tool, plain
from agentlite.environments.kinds import Environment
from agentlite.environments.making.values import KnownValue, arguments, known, with_outputs
from agentlite.environments.making.walk import PlannedCall, Walker, WorldState
from agentlite.environments.mock_world import MockWorld
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.world import CallResult, WorldError

CALLS_IN_A_REPLY = 8  # calls whose arguments one reply has
NOT_USABLE = ("it calls a tool", "it is cut off", "it is empty", "it is not JSON")
MISFIT = "result: it breaks its schema"
ARGUMENTS = """An assistant can call this tool for its users:
{tool}
{world}
Write the arguments of {count} calls that {count} different users need. Take names, places, dates and numbers as they are in real life, and other ones in each call. Leave a parameter that is not required out of about half of the calls. All arguments must fit the schema.
Answer with a JSON list of {count} objects and nothing else."""  # noqa: E501  (a paragraph of the prompt is one line)

Ask = Callable[[SimulatorQuestion], SimulatorReply]


class NeedsReply(Exception):
    """A walk has come to a question that nobody has answered yet. It is walked again from its
    beginning once there is a reply: walks are the same each time.
    """

    def __init__(self, question: SimulatorQuestion):
        self.question = question


class MockWalker(Walker):
    """`ask`: the reply to a question; raises NeedsReply. `replies`: how many replies with arguments
    a tool may have. `faults`: the kinds of replies that could not be used, since it was emptied.
    """

    tries = 3
    is_simulated = True

    def __init__(self, environment: Environment, ask: Ask, replies: int, seed: int):
        self.world = environment.world()
        self.ask, self.replies, self.seed = ask, replies, seed
        self.faults: list[str] = []

    def call(self, call: Call) -> CallResult:
        assert isinstance(self.world, MockWorld)
        before = len(self.world.faults)
        answered = self.world.call(call)
        try:
            question = next(answered)
            while True:
                question = answered.send(self._reply(question))
        except StopIteration as end:
            self.faults += [_kind(fault) for fault in self.world.faults[before:]]
            result: CallResult = end.value
            return result

    def arguments(
        self, tool: Tool, pool: Sequence[KnownValue], rng: Random
    ) -> dict[str, KnownValue] | None:
        if not tool.parameters.get("properties"):
            return {}
        if given := self._made_up(tool, rng.randrange(self.replies)):
            return with_outputs(rng.choice(given), tool, pool, rng)
        # the schema may list values itself; what only its type suggests cannot be tried here
        chosen = arguments(tool, pool, rng)
        return chosen if chosen and not any(one.guessed for one in chosen.values()) else None

    def undo(self, task: EnvironmentTask, made: Sequence[PlannedCall]) -> None:
        """The model that stands for the tools must not be shown a call that is not kept."""
        self.carry_out(task, [one.call for one in made])

    def place(self, task: EnvironmentTask, before: WorldState | None = None) -> WorldState:
        """Always the same one, since a mock world has no state to compare."""
        try:
            world = msgspec.json.decode(task.row["world"])
        except (msgspec.DecodeError, RecursionError):
            world = None
        return before or WorldState("", known(world))

    def carry_out(
        self, task: EnvironmentTask, calls: Sequence[Call]
    ) -> tuple[list[CallResult], str]:
        self.begin(task)
        return [self.call(call) for call in calls], ""

    def _made_up(self, tool: Tool, number: int) -> list[dict[str, Any]]:
        """The arguments in one of the replies about a tool, those that fit."""
        assert isinstance(self.world, MockWorld)
        about = plain(Tool(tool.name, tool.description, tool.parameters).function)
        world = f"The world: {self.world.about}\n" if self.world.about else ""
        text = ARGUMENTS.format(tool=about, world=world, count=CALLS_IN_A_REPLY)
        sampling = (("temperature", 0.7), ("seed", self.seed * 1000 + number))
        reply = self._reply(
            SimulatorQuestion("teacher", ({"role": "user", "content": text},), sampling)
        )
        read = _list_in(reply.words)
        fitting = [one for one in read if not misfit(one, tool.parameters)]
        if not fitting:
            self.faults.append("arguments that do not fit" if read else "no list of arguments")
        return fitting

    def _reply(self, question: SimulatorQuestion) -> SimulatorReply:
        reply = self.ask(question)
        if reply.problem:
            raise WorldError(reply.problem)
        return reply


def _list_in(text: str) -> list[dict[str, Any]]:
    """The objects of the JSON list in a text, whatever stands around it."""
    start, end = text.find("["), text.rfind("]")
    try:
        read = msgspec.json.decode(text[start : end + 1])
    except (msgspec.DecodeError, RecursionError):
        return []
    return [one for one in read if isinstance(one, dict)] if isinstance(read, list) else []


def _kind(fault: str) -> str:
    """`weather: it is not JSON: ...` -> result: it is not JSON."""
    reason = fault.partition(": ")[2]
    return next((f"result: {one}" for one in NOT_USABLE if reason.startswith(one)), MISFIT)
