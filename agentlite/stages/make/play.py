"""Blueprints that a model plays, both the user and the agent; the agent's calls are made."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import MakeSettings
from agentlite.core.endpoint_pool import Question
from agentlite.core.errors import UserError
from agentlite.core.records import Call, plain
from agentlite.environments.registry import Environment
from agentlite.environments.rollout import GOLD, UserPrompt, UserReply
from agentlite.environments.synthesis.blueprint import Blueprint
from agentlite.environments.synthesis.checks import DialogFault, faults, invented
from agentlite.environments.synthesis.dialog import MadeDialog, UserProfile, profile_of, row_of
from agentlite.environments.tasks import EnvironmentTask
from agentlite.environments.trajectories import LOST, Trajectory
from agentlite.rendering.protocol import thought_and_words
from agentlite.stages.agent import Agent, act, rollout_settings, without_tasks
from agentlite.stages.make.search import Slot
from agentlite.stages.teacher import REPLIES, Teacher, TeacherReply, question
from agentlite.workspace.run_folder import StageFolder

STOP = "[[end]]"
STOP_BEGINS = re.compile(r"\[\[\s*end\b", re.IGNORECASE)  # models copy the stop word wrongly
MOST_TOKENS = 512  # of what the user says in a turn
PROMPT = """You play a user who talks to an assistant. Stay in this role to the end.

Your goal: {goal}
{facts}
- Write the next message of the user and nothing else, in one to three sentences.
- Never speak as the assistant, never write a tool call, and never mention these rules.
- Say nothing that is not written above. If you are asked for anything else, say that you do not \
know.
- Do not tell everything at once. Tell what you are asked for.
- When your goal is reached, or the assistant says that it cannot reach it, write {stop} and \
nothing else."""
ON_REQUEST = " (tell it only when the assistant asks for it)"
# said by assistants, and by users never
ASSISTANT = re.compile(
    r"^\s*(?:assistant|agent|ai|bot)\s*:|\bas an ai\b|<\|im_start\|>|<\|assistant\|>"
    r"|\bhow (?:can|may) i (?:help|assist) you\b|\bi(?:'d| would) be happy to (?:help|assist) you\b"
    r"|\bis there anything else i can (?:help|assist)\b",
    re.IGNORECASE | re.MULTILINE,
)
CALL = re.compile(
    r"<tool_call>|<function|\"arguments\"\s*:|^\s*Action(?: Input)?\s*:", re.MULTILINE
)


def player(
    settings: MakeSettings, world: Environment, run: Path, begun: Path | None
) -> Agent | None:
    """The model, as yet without a dialog; None where there is none."""
    if not settings.endpoint:
        if settings.model:
            raise UserError(
                "has nothing to do without a server.",
                "Add --endpoint URL --model NAME.",
                location="--model",
            )
        return None
    if settings.model in ("", GOLD):
        raise UserError(
            "which of its models?",
            "Add --model NAME, as the server calls it.",
            location="--endpoint",
        )
    return without_tasks(rollout_settings(settings), world, run, begun)


def play(
    agent: Agent,
    plans: Mapping[str, Slot],
    tasks: Sequence[EnvironmentTask],
    stage: StageFolder,
) -> Iterator[MadeDialog]:
    """The dialogs of these slots, in order. `plans`: by the id of a blueprint. Answers are on disk,
    and no question is asked twice.
    """
    rows = {task.id: task.row for task in tasks}
    played = [
        EnvironmentTask(name, (), rows[slot.plan.task], _gold(slot.plan))
        for name, slot in plans.items()
    ]
    profiles = {name: profile_of(slot.plan, slot.by_name) for name, slot in plans.items()}
    with Teacher(agent.source.endpoints, stage.folder / REPLIES) as teacher:
        setup = agent.setup._replace(
            states=True,
            users=partial(_reply, teacher, profiles),
            offered={name: slot.plan.tools for name, slot in plans.items()},
        )
        trajectories = act(agent._replace(tasks=played, setup=setup), stage, "make")
    for trajectory in trajectories:
        yield _check(plans[trajectory.task], profiles[trajectory.task], trajectory)


def _reply(
    teacher: Teacher, profiles: Mapping[str, UserProfile], prompts: Sequence[UserPrompt]
) -> Iterator[UserReply]:
    """What the users of these dialogs say next."""
    asked = [_question(profiles[prompt.task], prompt.messages) for prompt in prompts]
    for number, reply in teacher.ask(asked):
        yield UserReply(number, _said(reply), reply.problem)


def _question(profile: UserProfile, messages: Sequence[Mapping[str, Any]]) -> Question:
    """A user sees what was said, and no call."""
    facts = [
        f"- {name}: {value if isinstance(value, str) else plain(value)}"
        + (ON_REQUEST if name in profile.on_request else "")
        for name, value in profile.facts.items()
    ]
    known = "\n".join(["What you know:", *facts, ""]) if facts else ""
    lines = [plain({role: words}) for role, words in _spoken(messages)]
    text = "\n".join(["The dialog so far:", *lines, "", "What do you say next?"])
    prompt = PROMPT.format(goal=profile.goal, facts=known, stop=STOP)
    return question(text, prompt, max_tokens=MOST_TOKENS)


def _spoken(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The words of each turn, as the user hears them, with who says them."""
    for message in messages:
        if message["role"] == "user":
            yield "you", message["content"]
        elif message["role"] == "assistant":
            _, words = thought_and_words(message["content"] or "")
            if words:
                yield "assistant", words


def _said(reply: TeacherReply) -> str | None:
    """The user's words; None ends the dialog, as the stop word does, and what cannot be said."""
    words = reply.words
    with contextlib.suppress(msgspec.DecodeError):
        # some models go on with a line of the dialog as they were shown it: `{"you": "Two."}`
        line = msgspec.json.decode(words)
        if isinstance(line, dict) and isinstance(line.get("you"), str):
            words = line["you"].strip()
    is_end = not words or reply.cut or reply.calls or STOP_BEGINS.search(words)
    return None if is_end else words


def _gold(plan: Blueprint) -> tuple[tuple[Call, ...], ...]:
    """The right calls of each turn of the user's, as it is played."""
    gold: list[tuple[Call, ...]] = []
    for turn in plan.turns:
        if turn.missing:  # the user is asked for it, and says it in a turn of its own
            gold.append((turn.slip.call,) if turn.slip else ())
        gold.append(() if turn.refused else tuple(planned.call for planned in turn.calls))
    return tuple(gold)


def _check(slot: Slot, profile: UserProfile, trajectory: Trajectory) -> MadeDialog:
    """A dialog with all that the rules find in it."""
    plan, offered = slot.plan, slot.offered
    turns, messages = trajectory.turns, [dict(message) for message in trajectory.messages]
    tokens = sum(turn.new_tokens for turn in turns)
    if trajectory.ended in (*LOST, "hung"):
        lost = [DialogFault(trajectory.ended, trajectory.problem)]
        return MadeDialog(row_of(plan, messages, offered, verified=False, tokens=tokens), lost)
    if not turns and trajectory.ended == "user":
        silent = DialogFault("no question", "the user says nothing to begin with")
        return MadeDialog(row_of(plan, [], offered, verified=False), [silent])
    # the state before the last turn is the one behind it, if that turn calls nothing
    state = turns[-1].state if turns and not turns[-1].results else "?"
    found = [
        *faults(plan, messages, offered, state if plan.state else ""),
        *faults_of_user(profile, messages, plan.tools),
    ]
    if trajectory.ended != "user":
        found.append(DialogFault("no end", f"ended by '{trajectory.ended}'"))
    ours = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    for at, turn in zip(ours, turns, strict=False):
        if turn.problem or turn.ended == "cut":
            found.append(DialogFault("nonsense", turn.problem or "the answer is cut off", at))
    for at in {fault.message for fault in found if fault.message is not None}:
        messages[at]["loss"] = False
    return MadeDialog(row_of(plan, messages, offered, tokens=tokens), found)


def faults_of_user(
    profile: UserProfile, messages: Sequence[Mapping[str, Any]], tools: Sequence[str]
) -> Iterator[DialogFault]:
    """What can be known for certain: a number, an address or a name that the user cannot know, a
    call, the words of an assistant. `tools`: the names of the assistant's.
    """
    known = [profile.goal, plain(profile.facts)]
    for role, words in _spoken(messages):
        if role == "you":
            named = any(re.search(rf"\b{re.escape(name)}\s*\(", words) for name in tools)
            if named or CALL.search(words):
                yield DialogFault("user: call", "writes a tool call")
            if ASSISTANT.search(words):
                yield DialogFault("user: assistant", "speaks as the assistant")
            for value in invented(words, known):
                yield DialogFault("user: contradiction", f"tells {value}, which it cannot know")
        known.append(words)
