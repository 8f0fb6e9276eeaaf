"""A world from inside its process: the user's class, made, reset, called and asked for its scores.

Nothing here runs in the process that has the model. A process holds one world at a time.
"""

import inspect
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentlite.core.records import plain
from agentlite.core.tool_results import as_text, no_tool, says_error
from agentlite.core.user_code import await_result, one_line
from agentlite.environments.tool_schema import SchemaError, tool_schema

# methods that are not tools: the first two are TRL's
HOOKS = {
    *("reset", "get_reward", "get_scores", "get_turn_scores", "next_user"),
    *("tools", "call", "state", "is_done", "close"),
}
world: Any = None


class LostWorldError(Exception):
    """There is nothing left to call: it costs the rollout. The text says why."""


def answer(make: Callable[[], Any], request: Sequence[Any]) -> tuple[Any, str]:
    """Does what a request says, `[what, *arguments]`, and returns the answer, which JSON can hold,
    and a problem, or "". An exception in `call` is a result; any other goes up.
    """
    global world
    what, *arguments = request
    try:
        if what == "__init__":
            os.environ["TZ"] = "UTC"  # the same times of day on every machine
            time.tzset()
            _hook("close")
            world = make()
            return None, ""
        return ANSWERS[what](*arguments), ""
    except (LostWorldError, SchemaError) as lost:
        return None, f"failed: {lost}"


def _reset(row: Mapping[str, Any]) -> list[Any]:
    first = await_result(world.reset(**row))
    return [first if isinstance(first, str) else None, _tools()]


def _next_user(words: str) -> list[Any]:
    said = _hook("next_user", words)
    return [None if said is None else str(said), _tools()]


def _scores() -> dict[str, float]:
    """The world's own figures by name, and TRL's reward under `env`."""
    scores = dict(_hook("get_scores") or {})
    if hasattr(world, "get_reward"):
        scores["env"] = _hook("get_reward")
    return _numbers(scores)


def _hook(name: str, /, *arguments: Any, **named: Any) -> Any:
    """What a method returns; None where the world does not have it."""
    if not hasattr(world, name):
        return None
    return await_result(getattr(world, name)(*arguments, **named))


def _tools() -> list[dict[str, Any]]:
    """In OpenAI's shape: those that the world names, or its public methods."""
    if hasattr(world, "tools"):
        return list(_hook("tools"))
    return [*map(tool_schema, _methods().values())]


def _methods() -> dict[str, Callable[..., Any]]:
    """The methods of the world that are tools, by name: TRL's choice, less our hooks."""
    functions = inspect.getmembers(type(world), inspect.isfunction)
    return {name: method for name, method in functions if name[0] != "_" and name not in HOOKS}


def _call(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """The text of the result, and whether the call failed."""
    try:
        if hasattr(world, "call"):
            result = _hook("call", name, arguments)
        elif name in (known := _methods()):
            result = _hook(name, **arguments)
        else:
            return no_tool(name, known), True
    except (MemoryError, SchemaError, LostWorldError):
        raise
    except Exception as error:
        text = one_line(str(error))
        return f"Error: {type(error).__name__}{f': {text}' if text else ''}", True
    text = as_text(result)
    return text, says_error(text)


def _numbers(scores: Mapping[Any, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in scores.items()}


ANSWERS: Mapping[str, Callable[..., Any]] = {
    "reset": _reset,
    "call": lambda name, arguments: [*_call(name, arguments), bool(_hook("is_done"))],
    "next_user": _next_user,
    "scores": _scores,
    "turn_scores": lambda: [*map(_numbers, _hook("get_turn_scores") or ())],
    "state": lambda: json.loads(plain(_hook("state"))),
    "close": lambda: _hook("close"),
}
