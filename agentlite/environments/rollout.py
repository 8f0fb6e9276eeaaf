"""A model acts in worlds: it answers, its calls are carried out, its user goes on, until an end."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Ending, Message, wire_calls, wire_message
from agentlite.data.openai_messages import OpenDialog, open_dialog
from agentlite.environments.registry import Environment
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, EndedBy, ModelTurn, RolloutKey, Trajectory
from agentlite.environments.world import CallResult, World, WorldError, WorldLimits
from agentlite.rendering import Protocol, encode_answer
from agentlite.rendering.protocol import thought_and_words
from agentlite.rendering.template import Template

GOLD = "gold"  # the name of the model that makes the right calls
# what it says to the user behind its calls, and where no call is right: the data has no words
DONE = Message("assistant", "Done.")
CANNOT = Message("assistant", "I cannot do that with the tools and the information that I have.")


class RolloutSetup(NamedTuple):
    """What all rollouts of a run have in common. `room`: tokens of a prompt, at most. `max_turns`:
    turns with calls between two of the user's, as BFCL counts them. `system`: the text of a dialog
    without a system turn.
    """

    environment: Environment
    protocol: Protocol
    template: Template
    room: int
    max_turns: int
    limits: WorldLimits
    system: str = ""


class RolloutPrompt(NamedTuple):
    """The request to a model at a turn of a rollout. `ids`: all that it reads, with its own earlier
    turns as it sampled them.
    """

    key: RolloutKey
    turn: int
    dialog: OpenDialog
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


def roll(
    setup: RolloutSetup,
    task_samples: Iterable[tuple[EnvironmentTask, int]],
    answers: Answers,
    batch_size: int,
) -> Iterator[Trajectory]:
    """Every trajectory as it ends; `batch_size` rollouts go on together. `task_samples`: tasks with
    the numbers of their rollouts. A prompt that gets no answer is asked again with the next ones.
    """
    # A rollout is a generator that stops where it asks the model, so that one thread plays many of
    # them: `steps.send(answer)` takes it to its next `output`, a prompt or its trajectory.
    queue = iter(task_samples)
    rollouts: list[_Rollout] = []
    try:
        while True:
            while len(rollouts) < batch_size and (next_sample := next(queue, None)):
                rollouts.append(_Rollout(setup, *next_sample))
            if not rollouts:
                return
            prompts = [r.output for r in rollouts if isinstance(r.output, RolloutPrompt)]
            by_key = {rollout.key: rollout for rollout in rollouts}
            for answer in answers(prompts) if prompts else ():
                rollout = by_key[prompts[answer.prompt].key]
                rollout.output = rollout.steps.send(answer)
            for rollout in [*rollouts]:
                if isinstance(rollout.output, Trajectory):
                    rollouts.remove(rollout)
                    yield rollout.output
    finally:
        for rollout in rollouts:
            # GeneratorExit leaves its `with self.world`: the process is stopped, not asked to close
            rollout.steps.close()


class _Rollout:
    """One that is under way. `output`: what it asks the model, or at its end its trajectory."""

    def __init__(self, setup: RolloutSetup, task: EnvironmentTask, sample: int):
        self.setup, self.task, self.key = setup, task, RolloutKey(task.id, sample)
        self.world = World(setup.environment.world_class, setup.limits)
        self.messages: list[dict[str, Any]] = []
        self.turns: list[ModelTurn] = []
        self.tools: dict[str, dict[str, Any]] = {}  # by name: all that were ever on offer
        # what the model has read and written up to the end of its last answer, as text and as ids
        self.history: tuple[str, list[int]] | None = None
        self.steps = self._roll()
        self.output = next(self.steps)

    def _roll(self) -> Generator[RolloutPrompt | Trajectory, RolloutAnswer, None]:
        """Requests to the model, and last the dialog with its scores. Those of a rollout that was
        lost are not known; one whose call hung has done nothing that counts.
        """
        problem, scores, by_turn = "", dict[str, float](), list[dict[str, float]]()
        with self.world:
            try:
                ended, problem = yield from self._act()
                if ended == "hung":
                    # the process of the call is gone, and the names of its scores with it: a new
                    # world says them, and each is 0. One that fails too leaves none
                    with suppress(WorldError):
                        self.world.reset(self.task.row)
                        scores = dict.fromkeys(self.world.scores(), 0.0)
                elif ended not in LOST:
                    scores, by_turn = self.world.scores(), self.world.turn_scores()
            except WorldError as error:
                ended, problem = "world", str(error)
        turns = self.turns
        # where all turns had the same tools, `tools` of the trajectory says which
        if len({turn.offered for turn in turns}) == 1:
            turns = [replace(turn, offered=None) for turn in turns]
        tools = self.tools or {tool.name: tool.schema for tool in self.world.tools}
        yield Trajectory(
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

    def _act(self) -> Generator[RolloutPrompt, RolloutAnswer, tuple[EndedBy, str]]:
        """Turn after turn, until something ends it: what, and its problem. Raises WorldError."""
        setup = self.setup
        self._begin()
        turns_since_user = 0  # turns with calls since the user spoke
        while True:
            tools = self.world.tools
            schemas = {tool.name: tool.schema for tool in tools}
            try:
                dialog = open_dialog(
                    self.messages, [*schemas.values()], setup.protocol, setup.template
                )
            except RowError as error:
                return "unwritten", f"{error.code} {error.reason}"
            ids, new_ids = self._prompt_ids(dialog)
            if len(ids) > setup.room:
                return "length", ""
            answer = yield RolloutPrompt(self.key, len(self.turns), dialog, ids)
            if answer.problem:
                return "unanswered", answer.problem
            turn = ModelTurn(
                *self.key,
                len(self.turns),
                answer.text,
                answer.ended,
                answer.new_tokens,
                offered=tuple(schemas),
                opens=new_ids is ids,  # the very same list: see _prompt_ids
                prompt_ids=tuple(new_ids) if answer.ids else (),
                ids=answer.ids,
            )
            self.turns.append(turn)
            self.tools |= schemas
            end = setup.template.turn_end if answer.ended == "turn" else ""
            # A model may end a turn by another id than the template writes, as by <|endoftext|> for
            # <|im_end|>. The next prompt has the id of the template, so it begins a row.
            has_template_end = not end or answer.ids[-1:] == (setup.template.token_id(end),)
            history = dialog.text + answer.text + end, [*ids, *answer.ids]
            self.history = history if answer.ids and has_template_end else None
            parsed = setup.protocol.read(answer.text, tools)
            # text that cannot be read as a call, or was cut, counts as words to the user
            is_readable = not parsed.problem and answer.ended != "cut"
            if parsed.calls and is_readable:
                results = self._carry_out(parsed.content, parsed.calls)
                self.turns[-1] = replace(turn, results=tuple((r.text, r.failed) for r in results))
                turns_since_user += 1
                if results[-1].hung:
                    return "hung", results[-1].text
                if any(result.done for result in results):
                    return "done", ""
                if turns_since_user > setup.max_turns:  # one more than the limit, as BFCL counts
                    return "turns", ""
            else:
                reply = self._tell_user(parsed.content if is_readable else answer.text)
                self.turns[-1] = replace(turn, problem=parsed.problem, user=reply)
                turns_since_user = 0
                if reply is None:
                    return "user", ""

    def _begin(self) -> None:
        """A fresh world, and what the user says first. Raises WorldError."""
        first_text = self.world.reset(self.task.row)
        self.messages += map(wire_message, self.task.messages)
        if self.setup.system and not any(message["role"] == "system" for message in self.messages):
            self.messages.insert(0, {"role": "system", "content": self.setup.system})
        if first_text and self.messages and self.messages[-1]["role"] == "user":  # as TRL does it
            first_text = self.messages.pop()["content"] + first_text
        if first_text:
            self.messages.append({"role": "user", "content": first_text})
        user_texts = [message["content"] for message in self.messages if message["role"] == "user"]
        if not any(map(str.strip, user_texts)):
            raise WorldError("the task has no prompt, and reset returned no text")

    def _prompt_ids(self, dialog: OpenDialog) -> tuple[list[int], list[int]]:
        """The ids of a prompt, and of these the ones behind the answer before: all of them, if the
        prompt begins a row.

        Ids that were sampled are read again as they are, as long as the template writes their text
        unchanged. Where it does not (it drops old thoughts, or orders the keys of a call), the
        model reads what a server would show it. Of "...Fig.<|im_end|>" and a next prompt of
        "...Fig.<|im_end|>\\n<|im_start|>user\\n...", only the part from "\\n" on is encoded.
        """
        if self.history is None or not dialog.text.startswith(self.history[0]):
            return dialog.ids, dialog.ids
        text, ids = self.history
        new_ids = self.setup.template.encode(dialog.text[len(text) :], ids)
        return [*ids, *new_ids], new_ids

    def _carry_out(self, content: str, calls: Sequence[Call]) -> list[CallResult]:
        count = sum(len(turn.results) for turn in self.turns)
        calls = [replace(call, id=f"call{n:05}") for n, call in enumerate(calls, count)]
        self.messages.append(
            {"role": "assistant", "content": content or None, "tool_calls": wire_calls(calls)}
        )
        results = []
        for call in calls:
            result = self.world.call(call)
            results.append(result)
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
            if result.hung:
                break  # the world is gone: the calls behind it are not made
        return results

    def _tell_user(self, text: str) -> str | None:
        """The reply of the user to a text; None ends the dialog."""
        self.messages.append({"role": "assistant", "content": text})
        # the world hears of it in any case: its tools may change. A user hears no thought
        reply = self.world.next_user(thought_and_words(text)[1])
        if reply is not None:
            self.messages.append({"role": "user", "content": reply})
        return reply


def gold_answers(
    tasks: Iterable[EnvironmentTask], protocol: Protocol, template: Template
) -> Answers:
    """A model that makes the right calls of some tasks. Each call is a turn of its own, so that the
    next one is made with its result in sight; behind those of a turn of the user's come words.
    """
    messages_by_task: dict[str, list[Message]] = {}
    for task in tasks:
        messages = messages_by_task[task.id] = []
        for calls in task.gold or ():
            messages += [Message("assistant", "", (call,)) for call in calls]
            messages.append(DONE if calls else CANNOT)

    def answers(prompts: Sequence[RolloutPrompt]) -> Iterator[RolloutAnswer]:
        for index, prompt in enumerate(prompts):
            messages = messages_by_task[prompt.key.task]
            message = messages[prompt.turn] if prompt.turn < len(messages) else DONE
            text = protocol.write(message, prompt.dialog.record.tools)
            # a call of ReAct ends with "Observation:", which stops a model
            ended: Ending = "stop" if text.endswith(protocol.stops) else "turn"
            ids = tuple(encode_answer(text, ended, template, prompt.ids))
            yield RolloutAnswer(index, text, ended, len(ids), ids)

    return answers
