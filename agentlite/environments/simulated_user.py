"""A user that a model plays: what it knows, what it is asked with, and the faults of its words.

The rules look for what can be known for certain: a number, an address or a name that the user
cannot know, a call, the words of an assistant. They pass over the rest: a user without faults may
still be a bad one.
"""

import contextlib
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from agentlite.core.errors import RowError
from agentlite.core.plain_words import type_error
from agentlite.core.records import canonical, digest, plain
from agentlite.core.tool_results import value_of_result
from agentlite.environments.simulators import SimulatorQuestion, SimulatorReply, question
from agentlite.environments.trajectories import SimulatedUserTurns, UserFault
from agentlite.rendering.protocol import thought_and_words

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
NUMBER = re.compile(r"\d+(?:\.\d+)?")
THOUSANDS = re.compile(r"(?<=\d)[,'](?=\d{3}\b)")
CLOCK = re.compile(r"\b(\d{1,2})(?::[0-5]\d|\s*[ap]\.?m\b)", re.IGNORECASE)
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
# a word with letters and digits; 18th, 3pm and 15kg are numbers
CODE = re.compile(r"\b(?!\d+[a-z]{1,3}\b)(?=\w*\d)(?=\w*[A-Za-z])\w{3,}\b")
QUOTED = re.compile(r"(?<!\w)'([^'\n]{2,80})'(?!\w)|\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”")
NUMBERS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    *("nineteen", "twenty"),
]
LISTED = re.compile(r"^\s*(\d+)[.)]\s", re.MULTILINE)
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
ON_REQUEST = " (tell it only when the assistant asks for it)"


class UserProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """`facts`: what the user knows, by name. `on_request`: the names of those that it may only tell
    when it is asked for them.
    """

    goal: str
    facts: dict[str, Any] = {}
    on_request: tuple[str, ...] = ()
    style: str = ""

    @property
    def stop_word(self) -> str:
        """What this user writes to end the dialog. It depends on all that the user knows, and is
        not part of it: no other text can be taken for it.
        """
        return f"[[end-{digest(canonical(msgspec.to_builtins(self)))[:6]}]]"


def read_profile(value: object) -> UserProfile:
    """The column `user` of a task. Raises RowError E201."""
    try:
        profile = msgspec.convert(value, UserProfile)
    except msgspec.ValidationError as error:
        raise RowError("E201", f"user: {type_error(error)}") from error
    if not profile.goal.strip():
        raise RowError("E201", "user: its goal is empty")
    if unknown := [name for name in profile.on_request if name not in profile.facts]:
        raise RowError("E201", f"user: on_request names {unknown[0]}, which is not in its facts")
    return profile


class SimulatedUser:
    """The user of one rollout. `turns` is what a trajectory keeps of it."""

    def __init__(self, profile: UserProfile, most_turns: int):
        self.profile, self.most_turns = profile, most_turns
        lines = [
            f"- {name}: {value if isinstance(value, str) else plain(value)}"
            + (ON_REQUEST if name in profile.on_request else "")
            for name, value in profile.facts.items()
        ]
        prompt = PROMPT.format(
            goal=profile.goal,
            facts="\n".join(["What you know:", *lines, ""]) if lines else "",
            style=f"Your style: {profile.style}\n" if profile.style else "",
            stop=profile.stop_word,
        )
        self.turns = SimulatedUserTurns(prompt)

    def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[str]
    ) -> Generator[SimulatorQuestion, SimulatorReply, str | None]:
        """What the user says next in a dialog that ends with the assistant's words; None ends it.
        `tools`: the names of the assistant's tools, which a user cannot call.
        """
        if len(self.turns.replies) == self.most_turns:
            self._fault(NO_END, f"has not ended after {self.most_turns} turns")
            return None
        mine, theirs, lines = list[str](), list[str](), list[str]()
        for message in messages:
            if message["role"] == "user":
                mine.append(message["content"])
                lines.append(plain({"you": message["content"]}))
            elif message["role"] == "assistant":
                _, words = thought_and_words(message["content"] or "")
                theirs += [words] if words else []
                lines += [plain({"assistant": words})] if words else []
        text = "\n".join(["The dialog so far:", *lines, "", "What do you say next?"])
        reply = yield question("user", text, self.turns.prompt)
        self.turns.replies.append(reply.text)
        words = _unwrapped(reply.words)
        if reply.cut:
            self._fault("cut", "is cut off")
        if reply.calls:
            self._fault("call", "calls a tool")
        if self.profile.stop_word in words:
            return None
        if STOP_BEGINS.search(words):
            self._fault("stop word", "copies the stop word wrongly")
            return None
        if not words:
            if not reply.calls:
                self._fault("nothing", "says nothing")
            return None
        for kind, reason in faults(self.profile, mine, theirs, words, tools):
            self._fault(kind, reason)
        return words

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


def faults(
    profile: UserProfile,
    mine: Sequence[str],
    theirs: Sequence[str],
    words: str,
    tools: Iterable[str],
) -> Iterator[tuple[str, str]]:
    """Kind and reason of each fault of `words`. `mine`: what the user has said before. `theirs`:
    what the assistant has said to it. `tools`: the names of the assistant's.
    """
    if CALL.search(words) or any(re.search(rf"\b{re.escape(name)}\s*\(", words) for name in tools):
        yield "call", "writes a tool call"
    if ASSISTANT.search(words):
        yield "assistant", "speaks as the assistant"
    known = [profile.goal, profile.style, plain(profile.facts), *mine, *theirs]
    for value in invented(words, known):
        yield "contradiction", f"tells {value}, which is not in its facts"


def invented(words: str, known: Sequence[str]) -> Iterator[str]:
    """Numbers, addresses, codes and quoted texts that nobody has named. A rounded number, a share
    in per cent, the length of a list and an hour by the other clock are not invented.
    """
    text = "\n".join(known)
    lower = text.casefold()
    numbers = {float(number) for number in NUMBER.findall(THOUSANDS.sub("", text))}
    numbers |= {float(number) for number in LISTED.findall(words)}
    numbers |= {float(n) for n, word in enumerate(NUMBERS) if re.search(rf"\b{word}\b", lower)}
    if hours := CLOCK.findall(text):  # 15:00 is 3 pm
        numbers |= {0.0, *((float(hour) + 12) % 24 for hour in hours)}
    waiting = [*map(value_of_result, known)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            numbers.add(float(len(value)))
            waiting += value.values() if isinstance(value, dict) else value
    named = [*ADDRESS.findall(words), *CODE.findall(words)]
    named += ["".join(groups).strip(" .,") for groups in QUOTED.findall(words)]
    yield from (name for name in named if name.casefold() not in lower)
    rest = CODE.sub(" ", ADDRESS.sub(" ", THOUSANDS.sub("", words)))
    for number in NUMBER.findall(rest):
        digits = len(number.partition(".")[2])
        value = float(number)
        if not any(value in (round(k, digits), round(100 * k, digits)) for k in numbers):
            yield number
