"""A blueprint -> what a model that plays its user is to know: the goal, and the facts to tell."""

from itertools import chain, count
from typing import Any

from agentlite.core.records import Tool
from agentlite.environments.making.blueprint import Blueprint
from agentlite.environments.making.purpose import label, purpose
from agentlite.environments.making.wording import told_at_first
from agentlite.environments.user_audit import UserProfile


def profile_of(blueprint: Blueprint, tools: dict[str, Tool]) -> UserProfile:
    """`tools`: by name, those that the blueprint wants. What the user leaves out, or misspells at
    first, it tells on request.
    """
    goals, facts, on_request = list[str](), dict[str, Any](), list[str]()

    def add(name: str, value: Any, of: str) -> str:
        """Under a name that no other value has."""
        longer = (f"{name} to {of} ({number})" for number in count(2))
        free = next(
            one
            for one in chain([name, f"{name} to {of}"], longer)
            if one not in facts or facts[one] == value
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
