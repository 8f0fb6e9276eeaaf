"""A model acts in worlds: it answers, its calls are carried out, its user goes on, until an end."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import (
    Call,
    Ending,
    Message,
    Tool,
    canonical,
    digest,
    plain,
    wire_calls,
    wire_message,
)
from agentlite.core.tool_results import no_tool
from agentlite.data.openai_messages import Opened, opened
from agentlite.environments.gold_calls import call_key, wire
from agentlite.environments.registry import Environment
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, EndedBy, ModelTurn, RolloutKey, Trajectory
from agentlite.environments.world import CallResult, WorldError, WorldLimits
from agentlite.rendering import Protocol, encode_answer
from agentlite.rendering.protocol import thought_and_words
from agentlite.rendering.template import Template

HINT = (
    "\n\n[A note that the user does not see. The right calls that are left to make now: {}. Make "
    "them, and do not mention this note.]"
)
NO_HINT = (
    "\n\n[A note that the user does not see. No call is left to make now. Answer the user, and do "
    "not mention this note.]"
)
USER_TURNS = 10  # of a user who is asked, behind its first
GOLD = "gold"  # the name of the model that makes the right calls
# what it says to the user behind its calls, and where no call is right: the data has no words
DONE = Message("assistant", "Done.")
CANNOT = Message("assistant", "I cannot do that with the tools and the information that I have.")


class UserPrompt(NamedTuple):
    """The request to the user of a task: the dialog so far, as the model's side of it is stored."""

    task: str
    messages: Sequence[Mapping[str, Any]]


class UserReply(NamedTuple):
    """`prompt`: the index of what it replies to. `words`: None ends the dialog. `problem`: why
    there is no reply; "" where there is one.
    """

    prompt: int
    words: str | None
    problem: str = ""


Users = Callable[[Sequence[UserPrompt]], Iterable[UserReply]]


class RolloutSetup(NamedTuple):
    """What all rollouts of a run have in common. `room`: tokens of a prompt, at most. `max_turns`:
    turns with calls between two of the user's, as BFCL counts them. `system`: the text of a dialog
    without a system turn. `states`: whether each turn has the state of its world.

    `users`: what gives all words of the users, the first as well; None where the task and its world
    have them. `hint`: whether the model is shown which right calls are left to make. `offered`: by
    task, the names of the tools that are on offer, of those that its world has; all where it is not
    named.
    """

    environment: Environment
    protocol: Protocol
    template: Template
    room: int
    max_turns: int
    limits: WorldLimits
    system: str = ""
    states: bool = False
    users: Users | None = None
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


Answers = Callable[[Sequence[RolloutPrompt]], Iterable[RolloutAnswer]]
Request = RolloutPrompt | UserPrompt
Reply = RolloutAnswer | UserReply


class UnansweredError(Exception):
    """Nobody answers what a rollout asks; the text says why."""


def roll(
    setup: RolloutSetup,
    waiting: Iterable[tuple[EnvironmentTask, int]],
    earlier: Mapping[RolloutKey, Sequence[ModelTurn]],
    answers: Answers,
    batch_size: int,
) -> Iterator[ModelTurn | Trajectory]:
    """Every turn as it is done, and every trajectory as it ends; `batch_size` rollouts go on
    together. `waiting`: tasks with the numbers of their rollouts. `earlier`: the turns of rollouts
    that were stopped; their worlds are built again by the same calls.
    """
    left = iter(waiting)
    live: list[_Rollout] = []
    try:
        while True:
            while len(live) < batch_size and (following := next(left, None)):
                task, sample = following
                stored = earlier.get(RolloutKey(task.id, sample), ())
                live.append(_Rollout(setup, task, sample, stored))
            if not live:
                return
            asking: dict[RolloutKey, _Rollout] = {}
            prompts: list[RolloutPrompt] = []
            for rollout in live:
                while stored_answer := rollout.stored_answer():
                    yield from rollout.hear(stored_answer)
                if isinstance(rollout.request, RolloutPrompt):
                    asking[rollout.key] = rollout
                    prompts.append(rollout.request)
            for answer in answers(prompts) if prompts else ():
                yield from asking[prompts[answer.prompt].key].hear(answer)
            heard = [(each, each.request) for each in live if isinstance(each.request, UserPrompt)]
            for reply in setup.users([prompt for _, prompt in heard]) if setup.users else ():
                yield from heard[reply.prompt][0].hear(reply)
            for rollout in [*live]:
                if rollout.trajectory:
                    live.remove(rollout)
                    yield rollout.trajectory
    finally:
        for rollout in live:
            rollout.steps.close()  # ends its world


class _Rollout:
    """One that is under way: what it waits for is its `request`; at its end it has a `trajectory`
    instead. `stored`: its turns, of a run that was stopped.
    """

    def __init__(
        self, setup: RolloutSetup, task: EnvironmentTask, sample: int, stored: Sequence[ModelTurn]
    ):
        self.setup, self.task, self.stored = setup, task, [*stored]
        self.key = RolloutKey(task.id, sample)
        self.world = setup.environment.world(setup.limits)
        self.messages: list[dict[str, Any]] = []
        self.turns: list[ModelTurn] = []
        self.tools: dict[str, dict[str, Any]] = {}  # by name: all that were ever on offer
        self.offered: list[tuple[str, ...]] = []  # their names, by turn
        self.made: list[list[Call]] = [[]]  # by turn of the user's
        # what the model has read and written up to the end of its last answer, as text and as ids
        self.seen: tuple[str, list[int]] | None = None
        self.request: Request | None = None
        self.trajectory: Trajectory | None = None
        self.steps = self._roll()
        self._go_on(None)

    @property
    def on_offer(self) -> tuple[Tool, ...]:
        """The tools that the model may call now."""
        names = self.setup.offered.get(self.task.id)
        return tuple(tool for tool in self.world.tools if names is None or tool.name in names)

    def stored_answer(self) -> RolloutAnswer | None:
        """What the model has said to this prompt before the run was stopped."""
        if not isinstance(self.request, RolloutPrompt) or len(self.stored) <= self.request.turn:
            return None
        turn = self.stored[self.request.turn]
        if turn.ids and tuple(self.request.ids[-len(turn.prompt_ids) :]) != turn.prompt_ids:
            # the world says something else than it did: this prompt was never answered
            del self.stored[turn.turn :]
            return None
        return RolloutAnswer(0, turn.text, turn.ended, turn.new_tokens, turn.ids)

    def hear(self, reply: Reply) -> Iterator[ModelTurn]:
        """Goes on with what was asked for. Gives a turn that is now whole, unless it is stored."""
        self._go_on(reply)
        if not self.turns or reply.problem or isinstance(self.request, UserPrompt):
            return
        turn = self.turns[-1]
        if self.stored[turn.turn : turn.turn + 1] != [turn]:
            # those behind it were said to something else
            del self.stored[turn.turn :]
            yield turn

    def _go_on(self, reply: Reply | None) -> None:
        try:
            if reply and reply.problem:
                self.request = self.steps.throw(UnansweredError(reply.problem))
            else:
                self.request = self.steps.send(reply)
        except StopIteration as end:
            self.request, self.trajectory = None, end.value

    def _roll(self) -> Generator[Request, Any, Trajectory]:
        """The dialog and its scores. Those of a rollout that was lost are not known; one whose call
        hung has done nothing that counts.
        """
        problem, scores, by_turn = "", dict[str, float](), list[dict[str, float]]()
        with self.world:
            try:
                ended, problem = yield from self._act()
                if ended == "hung":
                    with suppress(WorldError):
                        # the old one is gone: this one has the names
                        self.world.reset(self.task.row)
                        scores = dict.fromkeys(self.world.scores(), 0.0)
                elif ended not in LOST:
                    scores, by_turn = self.world.scores(), self.world.turn_scores()
            except WorldError as error:
                ended, problem = "world", str(error)
            except UnansweredError as error:
                ended, problem = "unanswered", str(error)
        turns = self.turns
        if len({*self.offered}) > 1:
            both = zip(turns, self.offered, strict=True)
            turns = [replace(turn, offered=names) for turn, names in both]
        tools = self.tools or {tool.name: tool.schema for tool in self.on_offer}
        return Trajectory(
            *self.key,
            self.task.split,
            self.messages,
            list(tools.values()),
            turns,
            ended,
            scores,
            problem,
            by_turn,
        )

    def _act(self) -> Generator[Request, Any, tuple[EndedBy, str]]:
        """Turn after turn, until something ends it: what, and its problem. Raises WorldError."""
        setup = self.setup
        opening = yield from self._begin()
        if setup.users and not opening:
            return "user", ""
        users = [message for message in self.messages if message["role"] == "user"]
        if not any(message["content"].strip() for message in users):
            return "world", "the task has no prompt, and reset returned no text"
        in_a_row = 0  # turns with calls since the user spoke
        while True:
            on_offer = self.on_offer
            offered = {tool.name: tool.schema for tool in on_offer}
            try:
                dialog = opened(self._shown(), [*offered.values()], setup.protocol, setup.template)
            except RowError as error:
                return "unwritten", f"{error.code} {error.reason}"
            ids, new = self._prompt_ids(dialog)
            if len(ids) > setup.room:
                return "length", ""
            state = digest(canonical(self.world.state())) if setup.states else ""
            answer = yield RolloutPrompt(self.key, len(self.turns), dialog, ids)
            if setup.hint:  # the ids are of a prompt that is not kept
                answer = answer._replace(ids=())
            turn = ModelTurn(
                *self.key,
                len(self.turns),
                answer.text,
                answer.ended,
                answer.new_tokens,
                opens=new is ids,
                prompt_ids=tuple(new) if answer.ids else (),
                ids=answer.ids,
                state=state,
            )
            self.turns.append(turn)
            self.tools |= offered
            self.offered.append(tuple(offered))
            end = setup.template.turn_end if answer.ended == "turn" else ""
            is_whole = not end or answer.ids[-1:] == (setup.template.token_id(end),)
            # ids of an end that are not those of its text: the next prompt begins a row
            is_seen = answer.ids and is_whole
            self.seen = (dialog.text + answer.text + end, [*ids, *answer.ids]) if is_seen else None
            parsed = setup.protocol.read(answer.text, on_offer)
            # text that cannot be read as a call, or was cut, counts as words to the user
            is_readable = not parsed.problem and answer.ended != "cut"
            if parsed.calls and is_readable:
                results = self._carry_out(parsed.content, parsed.calls)
                given = tuple((result.text, result.failed) for result in results)
                self.turns[-1] = replace(turn, results=given)
                in_a_row += 1
                if results[-1].hung:
                    return "hung", results[-1].text
                if any(result.done for result in results):
                    return "done", ""
                if in_a_row > setup.max_turns:
                    return "turns", ""
            else:
                said = yield from self._tell(parsed.content if is_readable else answer.text)
                self.turns[-1] = replace(turn, problem=parsed.problem, user=said)
                in_a_row = 0
                if said is None:
                    return "user", ""
                if setup.users and len(self.made) > USER_TURNS:
                    return "turns", ""

    def _begin(self) -> Generator[Request, Any, str]:
        """A fresh world, and what the user says first, which is returned if the user is asked."""
        first, opening = self.world.reset(self.task.row), ""
        self.messages += map(wire_message, self.task.messages)
        if self.setup.users:
            opening = (yield UserPrompt(self.key.task, [*self.messages])).words or ""
            self.messages.append({"role": "user", "content": opening})
        if self.setup.system and not any(message["role"] == "system" for message in self.messages):
            self.messages.insert(0, {"role": "system", "content": self.setup.system})
        if first and self.messages and self.messages[-1]["role"] == "user":  # as TRL does it
            first = self.messages.pop()["content"] + first
        if first:
            self.messages.append({"role": "user", "content": first})
        return opening

    def _shown(self) -> list[dict[str, Any]]:
        """The dialog as the model reads it: with the hint behind the last words of the user's. The
        stored dialog does not have it.
        """
        gold = self.task.gold
        places = [at for at, message in enumerate(self.messages) if message["role"] == "user"]
        if not self.setup.hint or gold is None or not places:
            return self.messages
        # the right calls of this turn of the user's that were not made in it; a user who says more
        # than was foreseen is still at the last turn
        turn = min(len(self.made), len(gold)) - 1
        made = Counter(map(call_key, chain.from_iterable(self.made[turn:])))
        due = []
        for call in gold[turn] if gold else ():
            key = call_key(call)
            if made[key]:
                made[key] -= 1
            else:
                due.append(call)
        shown = [*self.messages]
        text = shown[places[-1]]["content"] + (HINT.format(plain(wire(due))) if due else NO_HINT)
        shown[places[-1]] = {"role": "user", "content": text}
        return shown

    def _prompt_ids(self, dialog: Opened) -> tuple[list[int], list[int]]:
        """The ids of a prompt, and of these the ones behind the answer before: all of them, if the
        prompt begins a row.

        Ids that were sampled are read again as they are, as long as the template writes their text
        unchanged. Where it does not (it drops old thoughts, or orders the keys of a call), the
        model reads what a server would show it.
        """
        if self.seen is None or not dialog.text.startswith(self.seen[0]):
            return dialog.ids, dialog.ids
        text, ids = self.seen
        new = self.setup.template.encode(dialog.text[len(text) :], ids)
        return [*ids, *new], new

    def _carry_out(self, words: str, calls: Sequence[Call]) -> list[CallResult]:
        made = sum(len(turn.results) for turn in self.turns)
        calls = [replace(call, id=f"call{made + at:05}") for at, call in enumerate(calls)]
        self.messages.append(
            {"role": "assistant", "content": words or None, "tool_calls": wire_calls(calls)}
        )
        results = []
        for call in calls:
            self.made[-1].append(call)
            names = [tool.name for tool in self.on_offer]
            if self.task.id in self.setup.offered and call.name not in names:
                result = CallResult(no_tool(call.name, names), failed=True)
            else:
                result = self.world.call(call)
            results.append(result)
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
            if result.hung:
                break
        return results

    def _tell(self, words: str) -> Generator[Request, Any, str | None]:
        """What the user says to words; None ends the dialog."""
        self.messages.append({"role": "assistant", "content": words})
        self.made.append([])
        # the world hears of it in any case: its tools may change. A user hears no thought
        said = self.world.next_user(thought_and_words(words)[1])
        if self.setup.users:
            said = (yield UserPrompt(self.key.task, [*self.messages])).words
        if said is not None:
            self.messages.append({"role": "user", "content": said})
        return said


def gold_turns(task: EnvironmentTask) -> list[Message]:
    """The answers of a model that makes the right calls of a task. Each call in a turn of its own,
    so that the next one is made with its result in sight; behind those of a turn of the user's,
    words.
    """
    turns = []
    for calls in task.gold or ():
        turns += [Message("assistant", "", (call,)) for call in calls]
        turns.append(DONE if calls else CANNOT)
    return turns


def gold_answers(
    turns: Mapping[str, Sequence[Message]],
    prompts: Sequence[RolloutPrompt],
    protocol: Protocol,
    template: Template,
) -> Iterator[RolloutAnswer]:
    """The answer to each prompt, by its place in its rollout. `turns`: of each task."""
    for index, prompt in enumerate(prompts):
        of_task = turns[prompt.key.task]
        message = of_task[prompt.turn] if prompt.turn < len(of_task) else DONE
        text = protocol.write(message, prompt.opened.record.tools)
        ended: Ending = "stop" if text.endswith(protocol.stops) else "turn"
        ids = tuple(encode_answer(text, ended, template, prompt.ids))
        yield RolloutAnswer(index, text, ended, len(ids), ids)
