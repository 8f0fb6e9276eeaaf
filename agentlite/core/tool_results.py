"""What a call returned, as text: whether it failed, and the words for a tool that is not there."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from agentlite.core.records import text_or_json

ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")  # of an object in memory: another in each run


def result_text(result: object) -> str:
    """A result as a model reads it: a text, or else JSON where it can be, NaN as null."""
    if isinstance(result, str):
        return str(_jsonable(result)) if isinstance(result, Enum) else result
    try:
        text = json.dumps(result, default=_jsonable)
        value = json.loads(text, parse_constant=lambda _: None)  # '{"a": NaN}' -> {"a": None}
        return text_or_json(value)
    except (TypeError, ValueError, RecursionError):
        return _to_text(result)


def _jsonable(value: Any) -> Any:
    """What stands for a value that JSON has no form for."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump") and not isinstance(value, type):  # of pydantic
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):  # its own order is another in each process
        return sorted(value, key=partial(json.dumps, default=_jsonable))
    return _to_text(value)


def _to_text(value: object) -> str:
    return ADDRESS.sub("", str(value))


def says_error(result: str) -> bool:
    """Whether the call failed: `Error` begins it, or a JSON object has an `error`."""
    text = result.strip()
    if not text.startswith("{"):
        return text.startswith("Error")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def no_tool_result(name: str, names: Iterable[str]) -> str:
    """The result of a call of a tool that is not on offer."""
    return f"Error: no tool {name}. The tools: {', '.join(names)}."


def value_of_result(result: str) -> Any:
    """The value that a result is; None for one that is a text."""
    try:
        return msgspec.json.decode(result)
    except (msgspec.DecodeError, RecursionError):
        return None
