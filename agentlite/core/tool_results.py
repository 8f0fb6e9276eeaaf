"""What a call returned, as text: whether it failed, and the words for a tool that is not there."""

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from agentlite.core.records import plain

ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")  # of an object in memory: another in each run


def as_text(result: object) -> str:
    """A result as a model reads it: a text as it is, and anything else as JSON where it can be."""
    if isinstance(result, str) and not isinstance(result, Enum):
        return result
    try:
        value = _jsonable(result)
        return value if isinstance(value, str) else plain(value)
    except (TypeError, ValueError, RecursionError):
        return _written(result)


def _jsonable(value: Any) -> Any:
    """Fields become an object, NaN and infinity null; what JSON has no form for becomes a text."""
    if isinstance(value, Enum):
        return _jsonable(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _jsonable(getattr(value, name)) for name in names}
    if hasattr(value, "model_dump") and not isinstance(value, type):  # of pydantic
        return _jsonable(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {
            key.value if isinstance(key, Enum) else key: _jsonable(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_jsonable(one) for one in value]
    if isinstance(value, set | frozenset):  # its own order is another in each process
        return sorted(map(_jsonable, value), key=plain)
    return _written(value)


def _written(value: object) -> str:
    return ADDRESS.sub("", str(value))


def says_error(result: str) -> bool:
    """Whether a result is that of a call that failed: it begins with `Error`, or is a JSON object
    with an `error` that is not empty.
    """
    text = result.strip()
    if not text.startswith("{"):
        return text.startswith("Error")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def no_tool(name: str, names: Iterable[str]) -> str:
    """The result of a call of a tool that is not on offer."""
    return f"Error: no tool {name}. The tools: {', '.join(names)}."


def value_of_result(result: str) -> Any:
    """The value that a result is; None for one that is a text."""
    try:
        return msgspec.json.decode(result)
    except (msgspec.DecodeError, RecursionError):
        return None
