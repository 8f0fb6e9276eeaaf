"""A method with type hints and a docstring -> the JSON Schema of a tool, as transformers makes it.

Of our own, because transformers' `get_json_schema` imports torch, and a world's process has
neither. A test holds both against each other. For a class such as an Enum, of which transformers
says no more than that it is an object, there is no tool.
"""

import inspect
import json
import re
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
SECTION = re.compile(r"\n?[^\S\n]*(Args|Returns|Raises):[^\S\n]*\n?")
PARAMETER = re.compile(r"^[^\S\n]*(\w+):[^\S\n]*(.*)$")
CHOICES = re.compile(r"\(choices:\s*(.*?)\)\s*$", re.IGNORECASE)


class SchemaError(Exception):
    """A method that no tool can be made of; the text says why."""


def tool_schema(method: Callable[..., object]) -> dict[str, Any]:
    """The tool in OpenAI's shape: `{"type": "function", "function": {...}}`. `self` is left out.

    Raises SchemaError where the docstring or a type hint is missing, or says nothing of a
    parameter.
    """
    name = method.__name__
    if not (documented := inspect.getdoc(method)):
        raise SchemaError(f"{name} has no docstring")
    description, described, returned = _sections(documented)
    hints = get_type_hints(method)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(method).parameters.values():
        if parameter.name in ("self", "cls") and parameter.annotation is parameter.empty:
            continue
        if parameter.name not in hints:
            raise SchemaError(f"{name}: the parameter {parameter.name} has no type hint")
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        try:
            schema = _schema(hints[parameter.name])
        except SchemaError as error:
            problem = f"{name}: no tool can take the parameter {parameter.name}: {error}"
            raise SchemaError(problem) from error
        if parameter.name not in described:
            problem = f"the docstring says nothing about {parameter.name} under `Args:`"
            raise SchemaError(f"{name}: {problem}")
        text = described[parameter.name]
        if choices := CHOICES.search(text):
            listed = json.loads(choices.group(1))
            schema["enum"] = [one.strip() if isinstance(one, str) else one for one in listed]
            text = text[: choices.start()].strip()
        properties[parameter.name] = schema | {"description": text}
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    function: dict[str, Any] = {"name": name, "description": description, "parameters": parameters}
    if required:
        parameters["required"] = required
    if "return" in hints:
        function["return"] = _schema(hints["return"])
        if returned:
            function["return"]["description"] = returned
    return {"type": "function", "function": function}


def _sections(docstring: str) -> tuple[str, dict[str, str], str]:
    """The text before any heading, that of each parameter under Args, and that under Returns. A
    parameter's goes on until a line that begins with `name:`.
    """
    first, *pieces = SECTION.split(docstring.strip())
    sections = dict(zip(pieces[::2], pieces[1::2], strict=True))
    described: dict[str, str] = {}
    name = ""
    for line in filter(str.strip, sections.get("Args", "").split("\n")):
        if begun := PARAMETER.match(line):
            name, described[begun.group(1)] = begun.group(1), begun.group(2).strip()
        elif name:
            described[name] = f"{described[name]} {line.strip()}".strip()
    return first.strip(), described, sections.get("Returns", "").strip()


def _schema(hint: Any) -> dict[str, Any]:
    """Raises SchemaError for a type that JSON Schema has no words for."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if origin is None:
        # a bare `list` is an object, as in transformers: `list[str]` says what it holds
        if isinstance(hint, type) and hint.__module__ != "builtins" and not issubclass(hint, dict):
            raise SchemaError(f"arguments are JSON, not {hint.__name__}: take a Literal or a dict")
        return {"type": TYPES.get(hint, "object")}
    if origin is Union or origin is types.UnionType:
        schemas = [_schema(one) for one in inner if one is not type(None)]
        nullable = {"nullable": True} if type(None) in inner else {}
        if len(schemas) == 1:
            return schemas[0] | nullable
        if all(isinstance(schema.get("type"), str) for schema in schemas):
            return {"type": sorted(schema["type"] for schema in schemas), **nullable}
        return {"anyOf": schemas, **nullable}
    if origin is Literal:
        if not {*map(type, inner)} <= TYPES.keys():
            raise SchemaError(f"no JSON Schema for the values {inner}")
        kinds = list(dict.fromkeys(TYPES[type(value)] for value in inner))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0])}
    if origin is tuple and len(inner) > 1 and ... not in inner:
        return {"type": "array", "prefixItems": [_schema(hint) for hint in inner]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(inner[1])}
    raise SchemaError(f"no JSON Schema for the type hint {hint}")
