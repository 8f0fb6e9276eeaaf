"""A row or a text inside it that is no JSON -> what was meant, where the user asks for it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from agentlite.core.errors import RowError
from agentlite.data.formats.json_decode import json_value, literal_value

LONGEST = 1 << 20
HOLD_JSON = (
    "tools",
    "functions",
    "function",
    "arguments",
    "parameters",
    "answers",
)  # keys of such texts
ARGUMENTS = ("arguments", "input")  # what stands in them is the user's


def repair(content: bytes, methods: Sequence[str]) -> tuple[dict[str, Any], list[str]] | None:
    """The row, and the methods that changed something in it, in turn; None if none helps."""
    used: list[str] = []
    try:
        value = _value(content.decode("utf-8").removeprefix("\ufeff"), methods, used)
    except (UnicodeDecodeError, RowError):
        return None
    if not isinstance(value, dict):
        return None
    mended = _inside(value, methods, used)
    return (mended, list(dict.fromkeys(used))) if used else None


def _value(text: str, methods: Sequence[str], used: list[str]) -> Any:
    """Raises RowError if no method reads the text."""
    try:
        return json_value(text)
    except RowError as error:
        for method in methods if error.code == "E121" and len(text) <= LONGEST else ():
            try:
                value = METHODS[method](text)
            except RowError:
                continue
            used.append(method)
            return value
        raise


def _inside(value: object, methods: Sequence[str], used: list[str]) -> Any:
    """The same value; texts that should be JSON are. What cannot be read stays, and is refused for
    what it is.
    """
    if isinstance(value, list):
        return [_inside(inner, methods, used) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _text(key, inner, methods, used)
        if isinstance(inner, str)
        else inner
        if key in ARGUMENTS
        else _inside(inner, methods, used)
        for key, inner in value.items()
    }


def _text(key: str, text: str, methods: Sequence[str], used: list[str]) -> object:
    if key not in HOLD_JSON or not text.lstrip().startswith(("{", "[")):
        return text
    here: list[str] = []
    try:
        value = _value(text, methods, here)
    except RowError:
        return text
    used += here
    return json.dumps(value, ensure_ascii=False) if here else text


def _guessed(text: str) -> object:
    """By json-repair; what it could make nothing of is no repair."""
    import json_repair

    _refuse_more_than_one(text)
    value = json_value(
        json.dumps(json_repair.loads(text, skip_json_loads=True), ensure_ascii=False)
    )
    if value in ("", [], {}):
        raise RowError("E121", "nothing left of it")
    return value


def _refuse_more_than_one(text: str) -> None:
    """Of several objects on a line it would keep one."""
    try:
        _, end = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return
    if text.lstrip()[end:].strip():
        raise RowError("E121", "more than one JSON value on the line")


METHODS: dict[str, Callable[[str], Any]] = {"literal": literal_value, "json": _guessed}
