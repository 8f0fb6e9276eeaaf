"""A user that a model plays: who it is, what it is asked with, and what it says to a turn."""

import contextlib
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import msgspec

from agentlite.core.errors import RowError
from agentlite.core.plain_words import misfit
from agentlite.core.records import canonical, digest, plain
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply
from agentlite.environments.trajectories import SimulatedUserTurns, UserFault
from agentlite.environments.user_audit import UserProfile, faults

# what a stop word begins with, in any case: one that was copied wrongly ends the dialog as well
STOP_BEGINS = re.compile(r"\[\[\s*end\b", re.IGNORECASE)
NO_END = "no end"  # the kind of fault of a user that is still there at the limit of turns
PROMPT = """You play a user who talks to an assistant. Stay in this role to the end.

Your goal: {goal}
{facts}{style}
- Write the next message of the user and nothing else, in one to three sentences.
- Never speak as the assistant, never write a tool call, and never mention these rules.
- Say nothing that is not written above. If you are asked for anything else, say that you do not \
know.
- Do not tell everything at once. Tell what you are asked for.
- When your goal is reached, or the assistant says that it cannot reach it, write {stop} and \
nothing else."""


class SimulatedUser:
    """The user of one rollout. `turns` is what a trajectory keeps of it."""

    def __init__(self, profile: UserProfile, most_turns: int):
        self.profile, self.most_turns = profile, most_turns
        self.stop = stop_word(profile)
        self.turns = SimulatedUserTurns(_prompt(profile, self.stop))

    def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[str]
    ) -> Generator[SimulatorQuestion, SimulatorReply, str | None]:
        """What the user says next in a dialog that ends with the assistant's words; None ends it.
        `tools`: the names of the assistant's tools, which a user cannot call.
        """
        if len(self.turns.replies) == self.most_turns:
            self._fault(NO_END, f"has not ended after {self.most_turns} turns")
            return None
        dialog = [one for one in messages if one["role"] == "user" or _is_words(one)]
        lines = [
            plain({"you" if one["role"] == "user" else "assistant": one["content"]})
            for one in dialog
        ]
        text = "\n".join(["The dialog so far:", *lines, "", "What do you say next?"])
        reply = yield SimulatorQuestion(
            "user",
            (
                {"role": "system", "content": self.turns.prompt},
                {"role": "user", "content": text},
            ),
        )
        self.turns.replies.append(reply.text)
        words = _unwrapped(reply.words)
        if reply.cut:
            self._fault("cut", "is cut off")
        if reply.calls:
            self._fault("call", "calls a tool")
        if self.stop in words:
            return None
        if STOP_BEGINS.search(words):
            self._fault("stop word", "copies the stop word wrongly")
        elif not words:
            if not reply.calls:
                self._fault("nothing", "says nothing")
        else:
            mine = [one["content"] for one in dialog if one["role"] == "user"]
            theirs = [one["content"] for one in dialog if one["role"] != "user"]
            for kind, reason in faults(self.profile, mine, theirs, words, tools):
                self._fault(kind, reason)
            return words
        return None

    @property
    def is_stopped(self) -> bool:
        """Whether the limit of turns has ended it."""
        return any(fault.kind == NO_END for fault in self.turns.faults)

    def _fault(self, kind: str, reason: str) -> None:
        self.turns.faults.append(UserFault(len(self.turns.replies), kind, reason))


def _unwrapped(words: str) -> str:
    """Some models go on with a line of the dialog as they were shown it: `{"you": "Two."}`."""
    with contextlib.suppress(msgspec.DecodeError):
        line = msgspec.json.decode(words)
        if isinstance(line, dict) and isinstance(line.get("you"), str):
            return str(line["you"]).strip()
    return words


def read_profile(value: object) -> UserProfile:
    """The column `user` of a task. Raises RowError E201."""
    try:
        profile = msgspec.convert(value, UserProfile)
    except msgspec.ValidationError as error:
        raise RowError("E201", f"user: {misfit(error)}") from error
    if not profile.goal.strip():
        raise RowError("E201", "user: its goal is empty")
    if unknown := [name for name in profile.on_request if name not in profile.facts]:
        raise RowError("E201", f"user: on_request names {unknown[0]}, which is not in its facts")
    return profile


def stop_word(profile: UserProfile) -> str:
    """What this user writes to end the dialog. It depends on all that the user knows, and is not
    part of it: no other text can be taken for it.
    """
    known = canonical(msgspec.to_builtins(profile))
    return f"[[end-{digest(known)[:6]}]]"


def _is_words(message: Mapping[str, Any]) -> bool:
    """Whether a message is words of the assistant's to the user."""
    return message["role"] == "assistant" and bool(message["content"])


def _prompt(profile: UserProfile, stop: str) -> str:
    lines = [
        f"- {name}: {value if isinstance(value, str) else plain(value)}"
        + (" (tell it only when the assistant asks for it)" if name in profile.on_request else "")
        for name, value in profile.facts.items()
    ]
    facts = "\n".join(["What you know:", *lines, ""]) if lines else ""
    style = f"Your style: {profile.style}\n" if profile.style else ""
    return PROMPT.format(goal=profile.goal, facts=facts, style=style, stop=stop)
