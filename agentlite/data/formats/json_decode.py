"""JSON or Python-literal text -> a value that can be written back as JSON, unchanged."""

import ast
import json
import math
import warnings
from typing import Any, NoReturn

import msgspec

from agentlite.core.errors import RowError

DEEPEST = 64
LONGEST_LITERAL = 64 << 10
_OTHERWISE = object()


def json_value(text: str) -> Any:
    """The value of strict JSON. Raises RowError where a parser would guess, lose something or lose
    its way.

    E116 NaN or infinity, E117 a number too long, E118 a key twice in one object, E119 nested too
    deep, E113 half a surrogate pair, E121 anything else that is no single JSON value.
    """
    if (value := _canonical(text)) is not _OTHERWISE:
        return _not_too_deep(text, value)
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise RowError("E121", _json_problem(error)) from error
    except RecursionError as error:
        raise RowError("E119", f"nested deeper than {DEEPEST}") from error
    _refuse_surrogates(text, value)
    return _not_too_deep(text, value)


def _canonical(text: str) -> object:
    """The value of JSON that is written as msgspec writes it, blanks apart: nothing can have been
    lost in reading it.

    Many rows are, and this is several times faster than the parser that can say what is wrong.
    """
    try:
        value = msgspec.json.decode(text)
        same = msgspec.json.encode(value) == msgspec.json.format(text.encode(), indent=-1)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _OTHERWISE
    return value if same else _OTHERWISE


def literal_value(text: str) -> object:
    """The value of a Python literal, as agent data sets write objects. Nothing is evaluated. Raises
    RowError E206, E118 for a key twice in one object.
    """
    if len(text) > LONGEST_LITERAL:
        raise RowError(
            "E206", f"neither JSON nor a Python literal of at most {LONGEST_LITERAL >> 10} KiB"
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            tree = ast.parse(text.strip(), mode="eval")
            value = ast.literal_eval(tree)
        plain = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise RowError("E206", f"neither JSON nor a Python literal: {shortened(text)}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            _object([(str(key.value), None) for key in node.keys if isinstance(key, ast.Constant)])
    return json_value(plain)


def shortened(text: str) -> str:
    """Text as an error quotes it: its beginning, on one line."""
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RowError("E118", f"the key {twice!r} stands twice in one object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise RowError("E116", f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RowError("E116", f"the number {text[:20]} is too large")
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise RowError("E117", f"a number of {len(text)} digits") from error


def _json_problem(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "more than one JSON value on the line (`jq -c .` writes one a line)"
    return (
        f"no JSON: {error.msg} at character {error.pos + 1} (JSON spread over lines? `jq -c .` "
        "writes one a line)"
    )


def _refuse_surrogates(text: str, value: object) -> None:
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError("E113", "half a surrogate pair: no character") from error
        except RecursionError as error:
            raise RowError("E119", f"nested deeper than {DEEPEST}") from error


def _not_too_deep(text: str, value: Any) -> object:
    if text.count("[") + text.count("{") <= DEEPEST:
        return value
    level = [value]
    for _ in range(DEEPEST + 1):
        level = (
            [
                inner
                for outer in level
                for inner in (outer.values() if type(outer) is dict else outer)
                if type(inner) in (dict, list)
            ]
            if type(value) in (dict, list)
            else []
        )
        if not level:
            return value
    raise RowError("E119", f"nested deeper than {DEEPEST}")
