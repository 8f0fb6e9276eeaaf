"""A model acts in worlds: it answers, its calls are carried out, its user goes on, until an end."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Ending, Parsed, canonical, digest, plain
from agentlite.data.openai_messages import Opened, opened, wire_calls, wire_message
from agentlite.environments.continuation import SeenTokens, next_prompt, seen_with
from agentlite.environments.gold_calls import call_key, wire
from agentlite.environments.kinds import Environment
from agentlite.environments.mock_world import MockWorld
from agentlite.environments.simulated_user import SimulatedUser
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply, Simulators
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, EndedBy, ModelTurn, RolloutKey, Trajectory
from agentlite.environments.user_audit import UserProfile
from agentlite.environments.world import CallResult, World, WorldError, WorldLimits
from agentlite.rendering import Protocol
from agentlite.rendering.template import Template

HINT = (
    "\n\n[A note that the user does not see. The right calls that are left to make now: {}. Make "
    "them, and do not mention this note.]"
)
NO_HINT = (
    "\n\n[A note that the user does not see. No call is left to make now. Answer the user, and do "
    "not mention this note.]"
)


class RolloutSetup(NamedTuple):
    """What all rollouts of a run have in common. `room`: tokens of a prompt, at most. `max_turns`:
    turns with calls between two of the user's, as BFCL counts them. `system`: the text of a dialog
    without a system turn. `states`: whether each turn has the state of its world.

    `users`: by task, the users that a model plays; each has `user_turns` turns behind its first.
    `hint`: whether the model is shown which right calls are left to make. `offered`: by task, the
    names of the tools that are on offer, of those that its world has; all where it is not named.
    """

    environment: Environment
    protocol: Protocol
    template: Template
    room: int
    max_turns: int
    limits: WorldLimits
    system: str = ""
    states: bool = False
    users: Mapping[str, UserProfile] = {}
    user_turns: int = 10
    hint: bool = False
    offered: Mapping[str, Sequence[str]] = {}


class RolloutPrompt(NamedTuple):
    """The request to a model at a turn of a rollout. `ids`: all that it reads, with its own earlier
    turns as it sampled them.
    """

    key: RolloutKey
    turn: int
    opened: Opened
    ids: list[int]


class RolloutAnswer(NamedTuple):
    """`prompt`: the index of what it answers. `ids`: as they were sampled, the end included; none
    from a server. `problem`: why there is no answer; "" where there is one.
    """

    prompt: int
    text: str
    ended: Ending
    new_tokens: int
    ids: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()
    problem: str = ""


class _OpenPrompt(NamedTuple):
    """A prompt; `new`: of its ids those behind the answer before, all if the prompt `opens` a
    row. `state`: a digest of the world's.
    """

    text: str
    ids: list[int]
    new: tuple[int, ...]
    opens: bool
    state: str = ""


Answers = Callable[[Sequence[RolloutPrompt]], Iterable[RolloutAnswer]]
OpenTurn = Generator[SimulatorQuestion, SimulatorReply, ModelTurn]


def roll(
    setup: RolloutSetup,
    waiting: Iterable[tuple[EnvironmentTask, int]],
    earlier: Mapping[RolloutKey, Sequence[ModelTurn]],
    answers: Answers,
    batch_size: int,
    simulators: Simulators | None = None,
) -> Iterator[ModelTurn | Trajectory]:
    """Every turn as it is done, and every trajectory as it ends; `batch_size` rollouts go on
    together. `waiting`: tasks with the numbers of their rollouts. `earlier`: the turns of rollouts
    that were stopped; their worlds are built again by the same calls.

    `simulators`: the models that stand for tools and users, where the setup has any. A turn that
    has a question for one of them comes twice: as it was answered, and when it is whole.
    """
    left = iter(waiting)
    live: list[_Rollout] = []
    try:
        while True:
            while len(live) < batch_size and (following := next(left, None)):
                task, sample = following
                stored = earlier.get(RolloutKey(task.id, sample), ())
                live.append(_carried_on(setup, task, sample, stored, simulators))
            if not live:
                return
            prompts = [prompt for one in live if not one.question and (prompt := one.prompt())]
            acting = {one.key: one for one in live}
            for answer in answers(prompts) if prompts else ():
                rollout = acting[prompts[answer.prompt].key]
                if answer.problem:
                    rollout.end("unanswered", answer.problem)
                else:
                    yield rollout.take(answer)
            # the calls of a turn one after the other, those of all rollouts at the same time
            while simulators and (curious := [one for one in live if one.question]):
                questions = [one.question for one in curious if one.question]
                for number, reply in simulators.ask(questions):
                    if turn := curious[number].hear(reply):
                        yield turn
            for one in [one for one in live if one.ended]:
                live.remove(one)
                yield one.finish()
    finally:
        for one in live:
            one.world.stop()


class _Rollout:
    """One that is under way."""

    def __init__(self, setup: RolloutSetup, task: EnvironmentTask, sample: int):
        self.setup, self.task = setup, task
        self.key = RolloutKey(task.id, sample)
        self.world: World | MockWorld = setup.environment.world(setup.limits)
        if not isinstance(self.world, MockWorld):
            self.world.only = setup.offered.get(task.id)
        profile = setup.users.get(task.id)
        self.user = None if profile is None else SimulatedUser(profile, setup.user_turns)
        self.messages: list[dict[str, Any]] = []
        self.turns: list[ModelTurn] = []
        self.tools: dict[str, dict[str, Any]] = {}  # by name: all that were ever on offer
        self.offered: list[tuple[str, ...]] = []  # their names, by turn
        self.in_a_row = 0  # turns with calls since the user spoke
        self.made: list[list[Call]] = [[]]  # by turn of the user's
        self.unfinished: OpenTurn | None = None  # a turn that waits for its question to be answered
        self.question: SimulatorQuestion | None = None
        self.waiting: _OpenPrompt | None = None  # at this turn
        self.seen: SeenTokens | None = None  # up to the end of the last answer
        self.ended: EndedBy | None = None
        self.problem = ""

    def begin(self) -> None:
        """A fresh world, and what the user says first."""
        try:
            first = self.world.reset(self.task.row)
        except WorldError as error:
            self.end("world", str(error))
            return
        self.messages = [wire_message(message) for message in self.task.messages]
        if self.setup.system and not any(one["role"] == "system" for one in self.messages):
            self.messages.insert(0, {"role": "system", "content": self.setup.system})
        if first:
            self._add_to_user(first)
        if not any(one["role"] == "user" and one["content"].strip() for one in self.messages):
            self.end("world", "the task has no prompt, and reset returned no text")

    def _add_to_user(self, text: str) -> None:
        """Behind the last message of the user's, as TRL does it; or as the first."""
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1] = {"role": "user", "content": self.messages[-1]["content"] + text}
        else:
            self.messages.append({"role": "user", "content": text})

    def prompt(self) -> RolloutPrompt | None:
        """None if the rollout has ended."""
        if self.ended:
            return None
        tools = [tool.schema for tool in self.world.tools]
        try:
            dialog = opened(self._shown(), tools, self.setup.protocol, self.setup.template)
        except RowError as error:
            self.end("unwritten", f"{error.code} {error.reason}")
            return None
        self.waiting = _OpenPrompt(
            dialog.text, *next_prompt(self.seen, dialog, self.setup.template)
        )
        if len(self.waiting.ids) > self.setup.room:
            self.end("length")
            return None
        if self.setup.states:
            try:
                self.waiting = self.waiting._replace(state=digest(canonical(self.world.state())))
            except WorldError as error:
                self.end("world", str(error))
                return None
        return RolloutPrompt(self.key, len(self.turns), dialog, self.waiting.ids)

    def _shown(self) -> list[dict[str, Any]]:
        """The dialog as the model reads it: with the hint behind the last words of the user's. The
        stored dialog does not have it.
        """
        last = max(
            (n for n, one in enumerate(self.messages) if one["role"] == "user"), default=None
        )
        if not self.setup.hint or self.task.gold is None or last is None:
            return self.messages
        due = wire(self._due(self.task.gold))
        shown = [*self.messages]
        text = shown[last]["content"] + (HINT.format(plain(due)) if due else NO_HINT)
        shown[last] = {"role": "user", "content": text}
        return shown

    def _due(self, gold: Sequence[Sequence[Call]]) -> list[Call]:
        """The right calls of this turn of the user's that were not made in it. A user who says more
        than was foreseen is still at the last turn.
        """
        turn = min(len(self.made), len(gold)) - 1
        made = Counter(call_key(one) for calls in self.made[turn:] for one in wire(calls))
        due = []
        for call in gold[turn] if gold else ():
            [key] = map(call_key, wire([call]))
            if made[key]:
                made[key] -= 1
            else:
                due.append(call)
        return due

    def take(self, answer: RolloutAnswer) -> ModelTurn:
        """Carries out the calls of an answer; or hands an answer without any to the user. Text that
        cannot be read as a call, or was cut, counts as words. Where that asks a question, the turn
        is not whole before `hear` returns it.
        """
        offered = {tool.name: tool.schema for tool in self.world.tools}
        self.tools |= offered
        self.offered.append(tuple(offered))
        assert self.waiting
        if self.setup.hint:  # the ids are of a prompt that is not kept
            answer = answer._replace(ids=())
        turn = ModelTurn(
            *self.key,
            len(self.turns),
            answer.text,
            answer.ended,
            answer.new_tokens,
            opens=self.waiting.opens,
            prompt_ids=self.waiting.new if answer.ids else (),
            ids=answer.ids,
            state=self.waiting.state,
        )
        before = SeenTokens(self.waiting.text, self.waiting.ids)
        self.seen = seen_with(before, answer.text, answer.ended, answer.ids, self.setup.template)
        parsed = self.setup.protocol.read(answer.text, self.world.tools)
        self.turns.append(turn)
        self.unfinished = self._followed(turn, parsed)
        return self._go_on() or turn

    def hear(self, reply: SimulatorReply) -> ModelTurn | None:
        """The answer to this rollout's question. The turn, if it is whole now."""
        if reply.problem:
            self.question = None
            self.end("unanswered", reply.problem)
            return None
        return self._go_on(reply)

    def _go_on(self, reply: SimulatorReply | None = None) -> ModelTurn | None:
        """Up to the next question, or to the end of the turn, which is returned."""
        assert self.unfinished
        try:
            # a generator begins with next, and takes an answer with send
            self.question = self.unfinished.send(reply) if reply else next(self.unfinished)
        except StopIteration as whole:
            self.question, self.unfinished = None, None
            self.turns[-1] = whole.value
            return self.turns[-1]
        return None

    def _followed(self, turn: ModelTurn, parsed: Parsed) -> OpenTurn:
        """The turn with what came of it."""
        try:
            if parsed.calls and not parsed.problem and turn.ended != "cut":
                results = yield from self._carried_out(parsed.content, parsed.calls)
                return replace(turn, results=results)
            readable = not parsed.problem and turn.ended != "cut"
            heard = yield from self._heard(parsed.content if readable else turn.text)
            return replace(turn, problem=parsed.problem, user=heard)
        except WorldError as error:
            self.end("world", str(error))
            return turn

    def _carried_out(
        self, words: str, calls: Sequence[Call]
    ) -> Generator[SimulatorQuestion, SimulatorReply, tuple[tuple[str, bool], ...]]:
        made = sum(len(turn.results) for turn in self.turns)
        numbered = [
            replace(call, id=f"call{made + number:05}") for number, call in enumerate(calls)
        ]
        self.messages.append(
            {"role": "assistant", "content": words or None, "tool_calls": wire_calls(numbered)}
        )
        results = []
        done = False
        for call in numbered:
            self.made[-1].append(call)
            result = yield from self._result(call)
            results.append((result.text, result.failed))
            done = done or result.done
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
        self.in_a_row += 1
        if done:
            self.end("done")
        elif self.in_a_row > self.setup.max_turns:
            self.end("turns")
        return tuple(results)

    def _result(self, call: Call) -> Generator[SimulatorQuestion, SimulatorReply, CallResult]:
        if isinstance(self.world, MockWorld):
            return (yield from self.world.call(call))
        return self.world.call(call)

    def _heard(self, words: str) -> Generator[SimulatorQuestion, SimulatorReply, str | None]:
        self.messages.append({"role": "assistant", "content": words})
        self.in_a_row = 0
        self.made.append([])
        reply = self.world.next_user(words)  # asked for a simulated user too: tools may change
        if self.user:
            reply = yield from self.user.reply(self.messages, [*self.tools])
        if reply is None:
            self.end("turns" if self.user and self.user.is_stopped else "user")
        else:
            self.messages.append({"role": "user", "content": reply})
        return reply

    def end(self, ended: EndedBy, problem: str = "") -> None:
        self.ended, self.problem = ended, problem

    def finish(self) -> Trajectory:
        """The scores of a rollout that was lost are not known."""
        assert self.ended
        scores: dict[str, float] = {}
        by_turn: list[dict[str, float]] = []
        with self.world:
            if self.ended not in LOST:
                try:
                    scores, by_turn = self.world.scores(), self.world.turn_scores()
                except WorldError as error:
                    self.end("world", str(error))
        turns = self.turns
        if len({*self.offered}) > 1:
            both = zip(turns, self.offered, strict=True)
            turns = [replace(turn, offered=names) for turn, names in both]
        tools = self.tools or {tool.name: tool.schema for tool in self.world.tools}
        return Trajectory(
            *self.key,
            self.task.split,
            self.messages,
            list(tools.values()),
            turns,
            self.ended,
            scores,
            self.problem,
            by_turn,
            self.user.turns if self.user else None,
            self.world.faults,
        )


def _carried_on(
    setup: RolloutSetup,
    task: EnvironmentTask,
    sample: int,
    earlier: Sequence[ModelTurn],
    simulators: Simulators | None,
) -> _Rollout:
    """A rollout where it was stopped. Its world is built again by the same calls, and the same
    replies of simulators; where one of them returns something else, the rollout begins anew.
    """
    one = _Rollout(setup, task, sample)
    one.begin()
    for stored in earlier:
        answer = RolloutAnswer(0, stored.text, stored.ended, stored.new_tokens, stored.ids)
        if one.prompt() is None:
            break
        taken = turn = one.take(answer)
        while simulators and one.question and (reply := simulators.known(one.question)):
            turn = one.hear(reply) or turn
        if one.question and stored == taken:
            return one  # stopped at this question
        # a turn that was stored while it waited is whole now
        if stored not in (taken, turn):
            break
    else:
        return one
    one.world.stop()
    return _carried_on(setup, task, sample, (), simulators)
