"""A world from inside its process: the user's class, made, reset, called and asked for its scores.

Nothing here runs in the process that has the model. A process holds one world at a time.
"""

import contextlib
import inspect
import json
import os
import re
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agentlite.core.records import to_json
from agentlite.core.tool_results import no_tool_result, result_text, says_error
from agentlite.core.user_code import await_result, one_line

# methods that are not tools: the first two are TRL's
HOOKS = {
    *("reset", "get_reward", "get_scores", "get_turn_scores", "next_user"),
    *("tools", "call", "state", "is_done", "close"),
}
TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
SECTION = re.compile(r"\n?[^\S\n]*(Args|Returns|Raises):[^\S\n]*\n?")
PARAMETER = re.compile(r"^[^\S\n]*(\w+):", re.MULTILINE)
CHOICES = re.compile(r"\(choices:\s*(.*?)\)\s*$", re.IGNORECASE)
world: Any = None  # that of this process: UserCode gives `answer` the class alone


class LostWorldError(Exception):
    """It costs the rollout: there is nothing to call, or no tool for a method. Says why."""


def answer(make: Callable[[], Any], request: Sequence[Any]) -> tuple[Any, str]:
    """Does what a request says, `[method, *arguments]`. Returns an answer that JSON can hold, and a
    problem, or "". An exception in `call` is a result; any other goes up.
    """
    global world
    method, *arguments = request
    try:
        if method == "__init__":
            os.environ["TZ"] = "UTC"  # the same times of day on every machine
            time.tzset()
            # a world whose reset failed may have nothing to close yet
            with contextlib.suppress(Exception):
                _hook("close")
            world = make()
            return None, ""
        return ANSWERS[method](*arguments), ""
    except LostWorldError as lost:
        return None, f"failed: {lost}"


def _reset(row: Mapping[str, Any]) -> list[Any]:
    prompt = await_result(world.reset(**row))
    return [prompt if isinstance(prompt, str) else None, _tools()]


def _next_user(text: str) -> list[Any]:
    reply = _hook("next_user", text)
    return [None if reply is None else str(reply), _tools()]


def _scores() -> dict[str, float]:
    """The world's own figures by name, and TRL's reward under `env`."""
    scores = dict(_hook("get_scores") or {})
    if hasattr(world, "get_reward"):
        scores["env"] = _hook("get_reward")
    return _numbers(scores)


def _hook(name: str, /, *arguments: Any, **keywords: Any) -> Any:
    """What a method returns; None where the world does not have it."""
    if not hasattr(world, name):
        return None
    return await_result(getattr(world, name)(*arguments, **keywords))


def _tools() -> list[dict[str, Any]]:
    """In OpenAI's shape: those that the world names, or its public methods."""
    if hasattr(world, "tools"):
        return list(_hook("tools"))
    return [*map(tool_schema, _methods().values())]


def _methods() -> dict[str, Callable[..., Any]]:
    """The methods of the world that are tools, by name: TRL's choice, less our hooks."""
    return {
        name: method
        for name, method in inspect.getmembers(type(world), inspect.isfunction)
        if name[0] != "_" and name not in HOOKS
    }


def _call(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """The text of the result, and whether the call failed."""
    try:
        if hasattr(world, "call"):
            result = _hook("call", name, arguments)
        elif name in (methods := _methods()):
            result = _hook(name, **arguments)
        else:
            return no_tool_result(name, methods), True
    except (MemoryError, LostWorldError):  # nothing that another call could set right
        raise
    except Exception as error:
        text = one_line(str(error))
        return f"Error: {type(error).__name__}{f': {text}' if text else ''}", True
    text = result_text(result)
    return text, says_error(text)


def _numbers(scores: Mapping[Any, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in scores.items()}


ANSWERS: Mapping[str, Callable[..., Any]] = {
    "reset": _reset,
    "call": lambda name, arguments: [*_call(name, arguments), bool(_hook("is_done"))],
    "next_user": _next_user,
    "scores": _scores,
    "turn_scores": lambda: [*map(_numbers, _hook("get_turn_scores") or ())],
    "state": lambda: json.loads(to_json(_hook("state"))),
    "close": lambda: _hook("close"),
}


def tool_schema(method: Callable[..., object]) -> dict[str, Any]:
    """A method with type hints and a docstring as a tool in OpenAI's shape, `{"type": "function",
    "function": {...}}`, as transformers makes it. `self` is left out.

    Of our own, since transformers' `get_json_schema` imports torch. A test holds both against each
    other. There is no tool for a class such as an Enum, which transformers calls an object.

    Raises LostWorldError where the docstring or a type hint is missing, or says nothing of a
    parameter.
    """
    name = method.__name__
    if not (docstring := inspect.getdoc(method)):
        raise LostWorldError(f"{name} has no docstring")
    description, descriptions, returns = _sections(docstring)
    hints = get_type_hints(method)
    parameters = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.name not in ("self", "cls") or parameter.annotation is not parameter.empty
    ]
    properties: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name not in hints:
            raise LostWorldError(f"{name}: the parameter {parameter.name} has no type hint")
        try:
            schema = _schema(hints[parameter.name])
        except LostWorldError as error:
            problem = f"{name}: no tool can take the parameter {parameter.name}: {error}"
            raise LostWorldError(problem) from error
        if parameter.name not in descriptions:
            problem = f"the docstring says nothing about {parameter.name} under `Args:`"
            raise LostWorldError(f"{name}: {problem}")
        text = descriptions[parameter.name]
        if match := CHOICES.search(text):
            choices = json.loads(match.group(1))
            schema["enum"] = [c.strip() if isinstance(c, str) else c for c in choices]
            text = text[: match.start()].strip()
        properties[parameter.name] = schema | {"description": text}
    required = [p.name for p in parameters if p.default is p.empty]
    schema = {"type": "object", "properties": properties}
    schema |= {"required": required} if required else {}
    function: dict[str, Any] = {"name": name, "description": description, "parameters": schema}
    if "return" in hints:
        function["return"] = _schema(hints["return"])
        if returns:
            function["return"]["description"] = returns
    return {"type": "function", "function": function}


def _sections(docstring: str) -> tuple[str, dict[str, str], str]:
    """The text before any heading, that of each parameter under Args, and that under Returns. A
    parameter's goes on until a line that begins with `name:`.
    """
    # "Finds.\n\nArgs:\n    query: A word\n" -> "Finds.\n", "Args", "    query: A word"
    description, *parts = SECTION.split(docstring.strip())
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    # "    query: A word,\n    and more\n    limit: 5" -> "", "query", " A word,...", "limit", " 5"
    _, *parameter_parts = PARAMETER.split(sections.get("Args", ""))
    texts = [re.sub(r"\s*\n\s*", " ", text.strip()) for text in parameter_parts[1::2]]
    descriptions = dict(zip(parameter_parts[::2], texts, strict=True))
    return description.strip(), descriptions, sections.get("Returns", "").strip()


def _schema(hint: Any) -> dict[str, Any]:
    """Raises LostWorldError for a type that JSON Schema has no words for."""
    origin, type_arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if origin is None:
        # a bare `list` is an object, as in transformers: `list[str]` says what it holds
        if isinstance(hint, type) and hint.__module__ != "builtins" and not issubclass(hint, dict):
            raise LostWorldError(
                f"arguments are JSON, not {hint.__name__}: take a Literal or a dict"
            )
        return {"type": TYPES.get(hint, "object")}
    if origin is Union or origin is types.UnionType:
        schemas = [_schema(a) for a in type_arguments if a is not type(None)]
        nullable = {"nullable": True} if type(None) in type_arguments else {}
        if len(schemas) == 1:
            return schemas[0] | nullable
        # int | str is {"type": ["integer", "string"]}, in the order that transformers gives it
        if all(isinstance(schema.get("type"), str) for schema in schemas):
            return {"type": sorted(schema["type"] for schema in schemas), **nullable}
        return {"anyOf": schemas, **nullable}
    if origin is Literal:
        if not {*map(type, type_arguments)} <= TYPES.keys():
            raise LostWorldError(f"no JSON Schema for the values {type_arguments}")
        kinds = list(dict.fromkeys(TYPES[type(value)] for value in type_arguments))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(type_arguments)}
    if origin is list:
        return {"type": "array", "items": _schema(type_arguments[0])}
    if origin is tuple and len(type_arguments) > 1 and ... not in type_arguments:
        return {"type": "array", "prefixItems": [_schema(hint) for hint in type_arguments]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(type_arguments[1])}
    raise LostWorldError(f"no JSON Schema for the type hint {hint}")
