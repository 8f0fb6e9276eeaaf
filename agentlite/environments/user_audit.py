"""What a simulated user says -> what is wrong with it, by rules alone: no second model is asked.

The rules look for what can be known for certain: a number, an address or a name that the user
cannot know, a fact that nobody asked for, the words of an assistant. They pass over the rest: a
user without faults may still be a bad one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

NUMBER = re.compile(r"\d+")
THOUSANDS = re.compile(r"(?<=\d)[,'](?=\d{3}\b)")
CLOCK = re.compile(r"\b(\d{1,2})(?::[0-5]\d|\s*[ap]\.?m\b)", re.IGNORECASE)
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
WORD = re.compile(r"[^\W\d_]+")
NUMBERS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    *("nineteen", "twenty"),
]
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
SHORT_WORD = 3  # letters of a word that says what is asked for
LEAST_GOAL = 6  # words of a goal that can be given away
GIVEN_AWAY = 0.8  # share of them


class UserProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """`facts`: what the user knows, by name. `on_request`: the names of those that it may only tell
    when it is asked for them.
    """

    goal: str
    facts: dict[str, Any] = {}
    on_request: tuple[str, ...] = ()
    style: str = ""


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
    known = " ".join([profile.goal, profile.style, *map(str, _values(profile.facts))])
    for invented in _invented(words, "\n".join([known, *profile.facts, *mine, *theirs])):
        yield "contradiction", f"tells {invented}, which is not in its facts"
    yield from _too_early(profile, mine, theirs, words)


def _values(facts: Any) -> Iterator[Any]:
    """All single values in lists and objects."""
    if isinstance(facts, dict):
        for value in facts.values():
            yield from _values(value)
    elif isinstance(facts, list):
        for value in facts:
            yield from _values(value)
    else:
        yield facts


def _invented(words: str, known: str) -> Iterator[str]:
    """Numbers and addresses that nobody has named."""
    there = {*map(_plain_number, NUMBER.findall(THOUSANDS.sub("", known)))}
    there |= {str(NUMBERS.index(one)) for one in WORD.findall(known.casefold()) if one in NUMBERS}
    if hours := CLOCK.findall(known):  # 15:00 is 3 pm, and the other way round
        there |= {"0", *(str((int(hour) + 12) % 24) for hour in hours)}
    addresses = ADDRESS.findall(words)
    yield from (one for one in addresses if one.casefold() not in known.casefold())
    rest = THOUSANDS.sub("", ADDRESS.sub(" ", words))
    yield from (
        one for one in dict.fromkeys(NUMBER.findall(rest)) if _plain_number(one) not in there
    )


def _plain_number(digits: str) -> str:
    return digits.lstrip("0") or "0"


def _too_early(
    profile: UserProfile, mine: Sequence[str], theirs: Sequence[str], words: str
) -> Iterator[tuple[str, str]]:
    """Facts that nobody has asked for, and the goal in one breath."""
    heard = {one.casefold() for one in WORD.findall(" ".join(theirs))}
    before = " ".join([*mine, *theirs])
    for name in profile.on_request:
        requested = {part.casefold() for part in _parts(name)} & heard
        value = profile.facts[name]
        if not requested and any(
            _tells(words, one) and not _tells(before, one) for one in _values(value)
        ):
            yield "unrequested", f"gives {name} without being asked for it"
    known = {one.casefold() for one in WORD.findall(before)}
    goal = {one.casefold() for one in WORD.findall(profile.goal)} - known
    given = goal & {one.casefold() for one in WORD.findall(words)}
    if len(goal) >= LEAST_GOAL and len(given) >= GIVEN_AWAY * len(goal):
        yield "goal at once", "gives away its goal at once"


def _parts(name: str) -> list[str]:
    """order_id -> order; the words of a name by which one asks for it."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[^\W\d_A-Za-z]+", name)
    return [one for one in words if len(one) >= SHORT_WORD] or words or [name]


def _tells(text: str, value: Any) -> bool:
    """Whether a value stands in a text, whole."""
    if value is None or isinstance(value, bool) or not str(value).strip():
        return False
    pattern = re.escape(str(value))
    if str(value).isascii():  # other writing has no blanks between words
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None
