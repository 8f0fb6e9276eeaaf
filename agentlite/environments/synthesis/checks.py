"""A dialog against its blueprint -> what is wrong with it, as a whole or at a turn."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from agentlite.core.json_schema import schema_error
from agentlite.core.records import Call, Tool, canonical, digest
from agentlite.core.tool_results import value_of_result
from agentlite.data.curation.traits import normal
from agentlite.data.formats.tool_calls import read_call
from agentlite.environments.gold_calls import call_key, wire
from agentlite.environments.synthesis.blueprint import Blueprint
from agentlite.rendering.foreign_text import result_mark

NONSENSE = re.compile(r"^\s*(?:[{\[]|<tool_call|<function|```(?:json)?\s*[{\[])")
CANNOT = re.compile(
    r"\b(?:can ?not|can['’]t|could not|couldn['’]t|unable|not able|no tool|none of|not possible"
    r"|(?:do not|don['’]t) have|not available|not supported|outside)\b",
    re.IGNORECASE,
)
FAILURE = re.compile(
    r"\b(?:fail(?:s|ed|ure)?|error|not work|did ?n['’]t work|unsuccessful|not found|could not"
    r"|couldn['’]t|can ?not|can['’]t|unable|problem|wrong|invalid|not exist|no such|sorry)\b",
    re.IGNORECASE,
)
SUCCESS = re.compile(
    r"\b(?:done|success(?:ful|fully)?|completed?|it worked|is set|has been|have been)\b",
    re.IGNORECASE,
)

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


class DialogFault(NamedTuple):
    """`kind`: for counting. `message`: the number of the turn that is not to be learned; None where
    the dialog is not kept.
    """

    kind: str
    reason: str
    message: int | None = None


def made_calls(messages: Iterable[Mapping[str, Any]]) -> list[Call]:
    return [read_call(call) for message in messages for call in message.get("tool_calls") or ()]


def copy_key(messages: Sequence[Mapping[str, Any]]) -> str:
    """Equal for dialogs in which the user says the same and the same is called."""
    words = [normal(str(message["content"])) for message in messages if message["role"] == "user"]
    return digest(canonical([words, sorted(map(call_key, made_calls(messages)))]))


def faults(
    blueprint: Blueprint,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool],
    state: str,
) -> Iterator[DialogFault]:
    """All that is wrong with a dialog. `tools`: those on offer. `state`: a digest of the world's at
    the end.
    """
    yield from _faults_of_calls(blueprint, messages, tools)
    results = [str(message["content"]) for message in messages if message["role"] == "tool"]
    if blueprint.state != state:
        yield DialogFault("wrong call", "the world ends in another state")
    elif missing := Counter(call.result for call in blueprint.made) - Counter(results):
        yield DialogFault("wrong call", f"no call returned {next(iter(missing))[:80]}")
    starts = [at for at, message in enumerate(messages) if message["role"] == "user"]
    segments = [messages[start:end] for start, end in pairwise([*starts, len(messages)])]
    yield from _faults_of_kind(blueprint, messages, segments)
    names = {tool.name for tool in tools}
    wanted = {call.call.name for turn in blueprint.turns for call in turn.calls}
    known = [msgspec.json.encode([tool.schema for tool in tools]).decode()]
    for start, segment in zip(starts, segments, strict=True):
        yield from _faults_of_words(segment, start, names, wanted, known)


def _faults_of_calls(
    blueprint: Blueprint, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
) -> Iterator[DialogFault]:
    """Calls that break their schema or are not in the plan, which are not learned; and calls of the
    plan that nobody made, though the world may not tell.
    """
    parameters = {tool.name: tool.parameters for tool in tools}
    left = [planned.call for planned in blueprint.made]
    for number, message in enumerate(messages):
        for call in made_calls([message]):
            planned = next((other for other in left if _does(call, other)), None)
            if call.name not in parameters:
                yield DialogFault("wrong call", f"{call.name} is not on offer", number)
            elif problem := schema_error(call.arguments, parameters[call.name]):
                yield DialogFault("wrong call", f"{call.name}: {problem}", number)
            elif planned is None:
                yield DialogFault("extra call", f"{call.name} is not in the blueprint", number)
            if planned:
                left.remove(planned)
    for planned in left:
        yield DialogFault("wrong call", f"the planned call of {planned.name} was not made")


def _does(made: Call, planned: Call) -> bool:
    """Whether a call is the planned one. It may also say what could be left out."""
    given = {name: made.arguments[name] for name in planned.arguments if name in made.arguments}
    return call_key(Call(made.name, given)) == call_key(planned)


def _faults_of_kind(
    blueprint: Blueprint,
    messages: Sequence[Mapping[str, Any]],
    segments: Sequence[Sequence[Mapping[str, Any]]],
) -> Iterator[DialogFault]:
    """What the kind of a dialog promises: that the agent asks, or that it refuses."""
    ending = [*map(_words, segments[-1])] if segments else []
    if not any(ending) or messages[-1]["role"] != "assistant":
        yield DialogFault("no answer", "the dialog does not end with words of the agent")
        return
    first, last = blueprint.turns[0], blueprint.turns[-1]
    if first.missing and not first.slip:
        if made_calls(segments[0]):
            yield DialogFault("did not ask", f"the agent calls without {first.missing}")
        elif len(segments) < 2:
            yield DialogFault("did not ask", f"the agent never hears {first.missing}")
    if last.refused:
        if made_calls(segments[-1]):
            yield DialogFault("call without need", "no tool on offer does what is wanted")
        elif not any(map(CANNOT.search, ending)):
            yield DialogFault("invented result", "the agent does not say that it cannot do it")


def _faults_of_words(
    segment: Sequence[Mapping[str, Any]],
    start: int,
    names: set[str],
    wanted: set[str],
    known: list[str],
) -> Iterator[DialogFault]:
    """Those of a message of the user's and what follows it, from message `start` on. `names`: of
    the tools on offer. `known`: all texts before it, to which its own are added.
    """
    question = str(segment[0]["content"])
    for name in sorted(names | wanted):
        # a name that is a word of the language, as `book`, may well be said
        is_word = name.isalpha() and not any(letter.isupper() for letter in name[1:])
        if not is_word and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", question):
            yield DialogFault("leaked goal", f"the user names the tool {name}")
    results = [str(message["content"]) for message in segment if message["role"] == "tool"]
    known += [question, *results, *(canonical(wire([call])) for call in made_calls(segment))]
    said = [(at, words) for at, words in enumerate(map(_words, segment), start) if words]
    for number, words in said:
        is_foreign = _ascii_share(question) > 0.9 and _ascii_share(words) < 0.5
        if NONSENSE.match(words) or is_foreign:
            yield DialogFault("nonsense", "the words are not an answer")
        elif result_mark(words, names):
            yield DialogFault("invented result", "the agent writes a result itself")
        for value in invented(words, known):
            yield DialogFault("invented result", f"{value} was in no result (message {number})")
        known.append(words)
    if results and said:
        failed = [bool(FAILURE.search(result)) for result in results]
        last = said[-1][1]
        if failed[-1] and SUCCESS.search(last) and not FAILURE.search(last):
            yield DialogFault("contradiction", "the agent says that a failed call succeeded")
        if not any(failed) and FAILURE.search(last):
            yield DialogFault("contradiction", "the agent says that a call failed, and none did")


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


def _words(message: Mapping[str, Any]) -> str:
    """Those of the agent; "" for none."""
    return str(message.get("content") or "") if message["role"] == "assistant" else ""


def _ascii_share(text: str) -> float:
    letters = [letter for letter in text if letter.isalpha()]
    return sum(letter.isascii() for letter in letters) / len(letters) if letters else 1.0
