"""The dialog of a blueprint in plain words, and the row that prep reads."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any

from msgspec.structs import replace

from agentlite.core.records import to_json, wire_calls
from agentlite.core.tool_results import value_of_result
from agentlite.environments.synthesis.blueprint import NO_RESULT, Blueprint, PlannedTurn, purpose
from agentlite.rendering.foreign_text import result_mark

DIALOGS = "dialogs.jsonl"
MOST_NAMED = 4  # values of a result that an answer names
MOST_TEXT = 300  # characters of a result that is a text
FIRST_ASK = (
    "Please {}.",
    "Can you {}?",
    "Could you {}, please?",
    "I need you to {}.",
    "I would like you to {}.",
    "Would you {}?",
)
NEXT_ASK = ("Now {}, please.", "Next, please {}.", "After that, {}.", "Thanks. Now {}.", "Also {}.")
LATER_CALLS = ("Then {}.", "After that, {}.", "Then also {}.")
PARALLEL_CALLS = ("Also {}.", "At the same time, {}.", "And {}.")
AGENT_QUESTIONS = (
    "Which {} should I use?",
    "What is the {}?",
    "Please tell me the {}.",
    "I need one more thing: the {}.",
)
REPLIES = ("The {0} is {1}.", "It is {1}.", "{1}.", "Use {1} as the {0}.")
REFUSALS = (
    "I cannot do that: none of my tools can {}.",
    "I am sorry, I have no tool to {}.",
    "That is not possible here. I have no tool with which I could {}.",
)
DONE = ("Done.", "That is done.", "It worked.")
RESULT_ANSWERS = ("Here is the result: {}.", "The result: {}.", "I got this: {}.")
LABEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


def row_of(blueprint: Blueprint, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The row of a dialog: messages, the tools on offer, and what is known about it."""
    return {
        "id": blueprint.id,
        "messages": [*messages],
        "tools": [tool.schema for tool in blueprint.tools if tool.name in blueprint.offered],
        "meta": {
            "blueprint": blueprint.id,
            "kind": blueprint.kind,
            "task": blueprint.task,
            "verified": ["results", "state"] if blueprint.state else ["results"],
        },
    }


def gives_away(blueprint: Blueprint, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the user names a tool, or the agent writes a result itself: the description of a tool
    or a result may bring such words.
    """
    # a name that is a word of the language, as `book`, may well be said
    names = [
        re.escape(tool.name)
        for tool in blueprint.tools
        if not tool.name.isalpha() or any(letter.isupper() for letter in tool.name[1:])
    ]
    # `(?!)` matches nothing: an empty choice would match everywhere
    tool_name = re.compile(rf"(?<!\w)(?:{'|'.join(names) or '(?!)'})(?!\w)")
    texts = [(message["role"], str(message["content"] or "")) for message in messages]
    return any(
        (role == "user" and tool_name.search(words))
        or (role == "assistant" and result_mark(words, {*blueprint.offered}))
        for role, words in texts
    )


def plain_dialog(blueprint: Blueprint, seed: int) -> list[dict[str, Any]]:
    """The dialog of a blueprint that nobody plays, as OpenAI writes messages."""
    rng = Random(f"{seed} {blueprint.id}")
    purposes = {tool.name: purpose(tool) for tool in blueprint.tools}
    messages: list[dict[str, Any]] = []
    numbers = count()

    def say(role: str, forms: Sequence[str], *parts: str) -> None:
        messages.append({"role": role, "content": rng.choice(forms).format(*parts)})

    for turn in blueprint.turns:
        messages.append(
            {"role": "user", "content": _question(turn, purposes, rng, is_first=not messages)}
        )
        call, missing = turn.calls[0].call, label(turn.missing)
        if turn.refused:
            say("assistant", REFUSALS, purposes[call.name])
            continue
        groups = [turn.calls] if turn.together else [(planned,) for planned in turn.calls]
        if turn.missing:
            say("assistant", AGENT_QUESTIONS, missing)
            say("user", REPLIES, missing, value_text(call.arguments[turn.missing]))
        for group in groups:
            calls = [replace(planned.call, id=f"call{next(numbers):05}") for planned in group]
            messages.append({"role": "assistant", "content": None, "tool_calls": wire_calls(calls)})
            messages += [
                {"role": "tool", "tool_call_id": tool_call.id, "content": planned.result}
                for tool_call, planned in zip(calls, group, strict=True)
            ]
        results = [text for planned in turn.calls if (text := _result_text(planned.result))]
        say("assistant", RESULT_ANSWERS if results else DONE, "; ".join(results).removesuffix("."))
    return messages


def _question(turn: PlannedTurn, purposes: Mapping[str, str], rng: Random, is_first: bool) -> str:
    """What the user wants in a turn, with all facts that it tells by itself."""
    sentences = []
    for number, planned in enumerate(turn.calls):
        forms: Sequence[str] = FIRST_ASK if is_first else NEXT_ASK
        if number:  # it goes on from the first call
            forms = PARALLEL_CALLS if turn.together else LATER_CALLS
        sentences.append(rng.choice(forms).format(purposes[planned.call.name]))
        facts = [
            (label(name), value_text(value), "are" if isinstance(value, list) else "is")
            for name, value in planned.facts.items()
            if number or name != turn.missing  # for that one the agent has to ask
        ]
        form = rng.randrange(3) if facts else None
        if form == 0:
            sentences += [f"The {name} {verb} {value}." for name, value, verb in facts]
        elif form == 1:
            sentences.append(f"Use {', '.join(f'{name} {value}' for name, value, _ in facts)}.")
        else:
            sentences += [f"{name[0].upper()}{name[1:]}: {value}." for name, value, _ in facts]
        sentences += [f"Take the {label(name)} from the result before." for name in planned.sources]
    return " ".join(sentences)


def label(parameter: str) -> str:
    """`file_name` -> file name."""
    return " ".join(word.lower() for word in LABEL.findall(parameter)) or parameter


def value_text(value: Any) -> str:
    """A value as it stands in a sentence: with quotes only where it would not be seen as one."""
    if isinstance(value, str):
        return f"'{value}'" if " " in value or not value[-1:].isalnum() else value
    if isinstance(value, list) and value and not any(isinstance(v, dict | list) for v in value):
        *first, last = map(value_text, value)
        return f"{', '.join(first)} and {last}" if first else last
    return to_json(value)


def _result_text(result: str) -> str:
    """`{"order_id": 7, "status": "Open"}` -> order id: 7, status: Open."""
    if result.strip() in NO_RESULT:
        return ""
    if (value := value_of_result(result)) is None:
        return _truncate(" ".join(result.split()))
    pairs = [*_pairs(value)]
    texts = [f"{label(name)}: {text}" if name else text for name, text in pairs[:MOST_NAMED]]
    ending = f" and {len(pairs) - MOST_NAMED} more" if len(pairs) > MOST_NAMED else ""
    return ", ".join(texts) + ending


def _pairs(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _pairs(item, str(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for item in value:
            yield from _pairs(item, name)
    elif value not in (None, "", []):
        yield name, _truncate(value_text(value))


def _truncate(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."
