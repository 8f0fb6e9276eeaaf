"""Words for a blueprint: plain ones where no model speaks; what a model as its user knows."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from random import Random
from typing import Any

from msgspec.structs import replace

from agentlite.core.records import Tool, wire_calls
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn
from agentlite.environments.making.purpose import label, purpose, value_text
from agentlite.environments.making.values import read_json
from agentlite.environments.making.walk import EMPTY, PlannedCall
from agentlite.environments.simulated_user import UserProfile

MOST_NAMED = 4  # values of a result that an answer names
MOST_TEXT = 300  # characters of a result that is a text
ASK = (
    "Please {}.",
    "Can you {}?",
    "Could you {}, please?",
    "I need you to {}.",
    "I would like you to {}.",
    "Would you {}?",
)
NEXT = ("Now {}, please.", "Next, please {}.", "After that, {}.", "Thanks. Now {}.", "Also {}.")
THEN = ("Then {}.", "After that, {}.", "Then also {}.")
ALONGSIDE = ("Also {}.", "At the same time, {}.", "And {}.")
MISSING = (
    "Which {} should I use?",
    "What is the {}?",
    "Please tell me the {}.",
    "I need one more thing: the {}.",
)
TOLD = ("The {0} is {1}.", "It is {1}.", "{1}.", "Use {1} as the {0}.")
MEANT = ("Sorry, I meant {}.", "My mistake: it is {}.", "Try {} instead.")
FAILED = (
    "That did not work: {1}. Which {0} should I use instead?",
    "This failed: {1}. What is the right {0}?",
)
CANNOT = (
    "I cannot do that: none of my tools can {}.",
    "I am sorry, I have no tool to {}.",
    "That is not possible here. I have no tool with which I could {}.",
)
DONE = ("Done.", "That is done.", "It worked.")
FOUND = ("Here is the result: {}.", "The result: {}.", "I got this: {}.")


def in_plain_words(
    blueprint: Blueprint, tools: Mapping[str, Tool], seed: int
) -> list[dict[str, Any]]:
    """The dialog of a blueprint that nobody plays, as OpenAI writes messages. `tools`: by name,
    all of its world.
    """
    rng = Random(f"{seed} {blueprint.id}")
    messages: list[dict[str, Any]] = []

    def say(role: str, forms: Sequence[str], *parts: str) -> None:
        messages.append({"role": role, "content": rng.choice(forms).format(*parts)})

    def make(planned: Sequence[PlannedCall]) -> None:
        made = sum(message["role"] == "tool" for message in messages)
        calls = [replace(given.call, id=f"call{made + at:05}") for at, given in enumerate(planned)]
        messages.append({"role": "assistant", "content": None, "tool_calls": wire_calls(calls)})
        for call, given in zip(calls, planned, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": given.result})

    for turn in blueprint.turns:
        messages.append({"role": "user", "content": _question(turn, tools, rng, not messages)})
        call, missing = turn.calls[0].call, label(turn.missing)
        if turn.refused:
            say("assistant", CANNOT, purpose(tools[call.name]))
            continue
        if turn.slip:
            make([turn.slip])
            say("assistant", FAILED, missing, _error(turn.slip.result))
            say("user", MEANT, value_text(call.arguments[turn.missing]))
        elif turn.missing:
            say("assistant", MISSING, missing)
            say("user", TOLD, missing, value_text(call.arguments[turn.missing]))
        for group in [turn.calls] if turn.together else [[planned] for planned in turn.calls]:
            make(group)
        results = [text for planned in turn.calls if (text := _in_words(planned.result))]
        say("assistant", FOUND if results else DONE, "; ".join(results).removesuffix("."))
    return messages


def _question(turn: PlannedTurn, tools: Mapping[str, Tool], rng: Random, is_first: bool) -> str:
    """What the user wants in a turn, with all facts that it tells by itself."""
    sentences = []
    for number, planned in enumerate(turn.calls):
        later = ALONGSIDE if turn.together else THEN
        forms = later if number else ASK if is_first else NEXT
        sentences.append(rng.choice(forms).format(purpose(tools[planned.call.name])))
        facts = told_at_first(turn) if number == 0 else planned.facts
        pairs = [(label(name), value_text(value)) for name, value in facts.items()]
        form = rng.randrange(3) if facts else None
        if form == 0:
            verbs = ["are" if isinstance(value, list) else "is" for value in facts.values()]
            sentences += [
                f"The {name} {verb} {value}."
                for (name, value), verb in zip(pairs, verbs, strict=True)
            ]
        elif form == 1:
            sentences.append(f"Use {', '.join(f'{name} {value}' for name, value in pairs)}.")
        else:
            sentences += [f"{name[0].upper()}{name[1:]}: {value}." for name, value in pairs]
        sentences += [f"Take the {label(name)} from the result before." for name in planned.sources]
    return " ".join(sentences)


def told_at_first(turn: PlannedTurn) -> dict[str, Any]:
    """The facts of the first call that the user tells by itself; a slip is one."""
    facts = turn.calls[0].facts
    if turn.slip:
        return {name: turn.slip.call.arguments[name] for name in facts}
    return {name: value for name, value in facts.items() if name != turn.missing}


def profile_of(blueprint: Blueprint, tools: dict[str, Tool]) -> UserProfile:
    """What the user of a dialog is to know. What it leaves out, or misspells at first, it tells on
    request. `tools`: by name, those that the blueprint wants.
    """
    goals, facts, on_request = list[str](), dict[str, Any](), list[str]()

    def add(name: str, value: Any, of: str) -> str:
        """Under a name that no other value has."""
        longer = (f"{name} to {of} ({number})" for number in count(2))
        free = next(
            free_name
            for free_name in chain([name, f"{name} to {of}"], longer)
            if free_name not in facts or facts[free_name] == value
        )
        facts[free] = value
        return free

    for number, turn in enumerate(blueprint.turns):
        wanted = [purpose(tools[planned.call.name]) for planned in turn.calls]
        first = "When that is done, ask the assistant to " if number else "Ask the assistant to "
        goals.append(f"{first}{', and then to '.join(wanted)}.")
        if turn.slip:
            goals.append(
                f"You say the {label(turn.missing)} wrongly at first; correct it if asked."
            )
        for place, (planned, goal) in enumerate(zip(turn.calls, wanted, strict=True)):
            for name, value in (told_at_first(turn) if place == 0 else planned.facts).items():
                is_slip = turn.slip is not None and name == turn.missing
                add(f"{label(name)} at first" if is_slip else label(name), value, goal)
        if turn.missing:
            name = f"right {label(turn.missing)}" if turn.slip else label(turn.missing)
            on_request.append(add(name, turn.calls[0].call.arguments[turn.missing], wanted[0]))
    return UserProfile(" ".join(goals), facts, tuple(on_request))


def _in_words(result: str) -> str:
    """`{"order_id": 7, "status": "Open"}` -> order id: 7, status: Open."""
    if result.strip() in EMPTY:
        return ""
    if (read := read_json(result)) is None:
        return _shortened(" ".join(result.split()))
    pairs = [*_pairs(read)]
    listed = [f"{label(name)}: {value}" if name else value for name, value in pairs[:MOST_NAMED]]
    more = f" and {len(pairs) - MOST_NAMED} more" if len(pairs) > MOST_NAMED else ""
    return ", ".join(listed) + more


def _pairs(read: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(read, dict):
        for key, inner in read.items():
            yield from _pairs(inner, str(key))
    elif isinstance(read, list) and any(isinstance(one, dict | list) for one in read):
        for inner in read:
            yield from _pairs(inner, name)
    elif read not in (None, "", []):
        yield name, _shortened(value_text(read))


def _error(result: str) -> str:
    """Why a call failed, in the world's words."""
    read = read_json(result)
    if read is None:
        words = result.partition(":")[2].strip() or result
    else:
        values = read.values() if isinstance(read, dict) else ()
        words = next((value for value in values if isinstance(value, str)), result)
    return _shortened(" ".join(words.split())).removesuffix(".")


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."
