"""A world from inside its process: the user's class, made, reset, called and asked for its scores.

Nothing here runs in the process that has the model. A process holds one world at a time.
"""

import inspect
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentlite.core.call_results import no_tool, says_error
from agentlite.core.records import plain
from agentlite.core.user_code import one_line
from agentlite.environments.tool_schema import SchemaError, tool_schema

# methods that are not tools: the first two are TRL's
HOOKS = (
    "reset",
    "get_reward",
    "get_scores",
    "get_turn_scores",
    "next_user",
    "tools",
    "call",
    "state",
    "is_done",
    "close",
)
world: Any = None


class LostWorldError(Exception):
    """There is nothing left to call: it costs the rollout. The text says why."""


def answer(make: Callable[[], Any], request: Sequence[Any]) -> tuple[Any, str]:
    """Does what a request says, `[what, *arguments]`, and returns the answer, which JSON can hold,
    and a problem, or "". An exception in `call` is a result; any other goes up.
    """
    try:
        return _answered(make, request)
    except LostWorldError as lost:
        return None, f"failed: {lost}"


def _answered(make: Callable[[], Any], request: Sequence[Any]) -> tuple[Any, str]:
    global world
    what, *arguments = request
    if what == "reset":
        os.environ["TZ"] = "UTC"  # the same times of day on every machine
        time.tzset()
        if world is not None and hasattr(world, "close"):
            world.close()
        world = make()
        first = world.reset(**arguments[0])
        words = first if isinstance(first, str) else None
        return [words, _tools(), hasattr(world, "next_user")], ""
    if what == "call":
        return [*_called(*arguments), hasattr(world, "is_done") and bool(world.is_done())], ""
    if what == "next_user":
        words = world.next_user(*arguments) if hasattr(world, "next_user") else None
        return [words if words is None else str(words), _tools()], ""
    if what == "scores":
        return _scores(), ""
    if what == "turn_scores":
        return _turn_scores(), ""
    if what == "state":
        return json.loads(plain(world.state())) if hasattr(world, "state") else None, ""
    if hasattr(world, "close"):
        world.close()
    return None, ""


def _tools() -> list[dict[str, Any]]:
    """In OpenAI's shape: those that the world names, or its public methods. Raises SchemaError."""
    if hasattr(world, "tools"):
        return list(world.tools())
    return [tool_schema(method) for _, method in methods(type(world))]


def methods(kind: type) -> list[tuple[str, Callable[..., Any]]]:
    """The methods of a class that are tools, by name: TRL's choice, less our hooks."""
    functions = inspect.getmembers(kind, inspect.isfunction)
    return [(name, one) for name, one in functions if name[0] != "_" and name not in HOOKS]


def _called(name: str, arguments: dict[str, Any]) -> list[Any]:
    """`[the text of the result, whether the call failed]`."""
    try:
        if hasattr(world, "call"):
            result = world.call(name, arguments)
        elif name in (known := dict(methods(type(world)))):
            result = getattr(world, name)(**arguments)
        else:
            return [no_tool(name, known), True]
    except (MemoryError, SchemaError, LostWorldError):
        raise
    except Exception as error:
        text = one_line(str(error))
        return [f"Error: {type(error).__name__}{f': {text}' if text else ''}", True]
    text = result if isinstance(result, str) else _as_text(result)
    return [text, says_error(text)]


def _as_text(result: object) -> str:
    """A result that is not a text, as JSON where it can be."""
    try:
        return plain(result)
    except (TypeError, ValueError, RecursionError):
        return str(result)


def _scores() -> dict[str, float]:
    """The world's own figures by name, and TRL's reward under `env`."""
    scores = dict(world.get_scores()) if hasattr(world, "get_scores") else {}
    if hasattr(world, "get_reward"):
        scores["env"] = world.get_reward()
    return _numbers(scores)


def _turn_scores() -> list[dict[str, float]]:
    """The same of each turn of the user's; [] where the world does not say."""
    turns = world.get_turn_scores() if hasattr(world, "get_turn_scores") else []
    return [_numbers(scores) for scores in turns]


def _numbers(scores: Mapping[Any, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in scores.items()}
