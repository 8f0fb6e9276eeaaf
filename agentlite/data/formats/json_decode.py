"""JSON or Python-literal text -> a value that can be written back as JSON; and repairs of it.

A repair, where the user asks for it, changes how a text is written and nothing else: there is none
where something of the text would be lost, or a bracket added, as at the end of a row that was cut.
"""

import ast
import contextlib
import json
import math
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from agentlite.core.errors import RowError
from agentlite.core.json_schema import DEEPEST, is_too_deep

LONGEST_LITERAL = 64 << 10


def json_value(text: str) -> Any:
    """The value of strict JSON. Raises RowError where a parser would guess, lose something or lose
    its way.

    E116 NaN or infinity, E117 a number too long, E118 a key twice in one object, E119 nested too
    deep, E113 half a surrogate pair, E121 anything else that is not a single JSON value.
    """
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            parse_int=_bounded_integer,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise RowError(
            "E121", f"not JSON: {error.msg} at character {error.pos + 1}", at=error.pos
        ) from error
    except RecursionError as error:
        raise RowError("E119", f"nested deeper than {DEEPEST}") from error
    _refuse_surrogates(text, value)
    # the row itself is one level; counting brackets is faster than the walk
    if text.count("[") + text.count("{") > DEEPEST and is_too_deep(value, DEEPEST + 1):
        raise RowError("E119", f"nested deeper than {DEEPEST}")
    return value


def literal_value(text: str) -> object:
    """The value of a Python literal, as agent data sets write objects. Nothing is evaluated."""
    if len(text) > LONGEST_LITERAL:
        raise RowError("E206", f"not JSON, nor a literal of at most {LONGEST_LITERAL >> 10} KiB")
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            tree = ast.parse(text.strip(), mode="eval")
            value = ast.literal_eval(tree)
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise RowError("E206", f"not JSON, and not a Python literal: {quote(text)}") from error
    # a literal keeps the last of two equal keys: they are refused here, as json_value refuses them
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            _object([(str(key.value), None) for key in node.keys if isinstance(key, ast.Constant)])
    return json_value(encoded)


def json_or_literal(text: str) -> object:
    """The value of JSON or, for formats known to hold them, of a Python literal."""
    try:
        return json_value(text)
    except RowError as error:
        if error.code != "E121":
            raise
        return literal_value(text)


def parse_json(value: object) -> Any:
    """The value that a text of JSON stands for; any other value as it is."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with contextlib.suppress(RowError):
            return json_or_literal(value)
    return value


def value_at(row: dict[str, Any], path: str) -> Any:
    """What stands at a path; None if nothing."""
    value: Any = row
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if key.isdigit() and int(key) < len(value) else None
        else:
            value = parse_json(value.get(key)) if isinstance(value, dict) else None
    return value


def quote(value: object) -> str:
    """A value as an error quotes it: its beginning, on one line; what is no text as JSON."""
    is_text = isinstance(value, str)
    text = str(value) if is_text else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > 60:
        text = f"{text[:60]}…"
    return repr(text) if is_text else text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = max(keys, key=keys.count)
        raise RowError("E118", f"the key {duplicate!r} appears twice in one object", at=duplicate)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise RowError("E116", f"{name} is not a JSON number", at=name)


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RowError("E116", f"the number {text[:20]} is too large", at=text)
    return value


def _bounded_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise RowError("E117", f"a number of {len(text)} digits", at=text) from error


def _refuse_surrogates(text: str, value: object) -> None:
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            # the text may write its escape with capitals: \uD83D, \uD83d
            escape = re.search(re.escape(half), text, re.IGNORECASE)
            at = escape[0] if escape else half
            raise RowError("E113", f"{half} is half a surrogate pair", at=at) from error
        except RecursionError as error:
            raise RowError("E119", f"nested deeper than {DEEPEST}") from error


# --- repairs ---

LONGEST_REPAIRED = 1 << 20
# rows that a repair may read: invalid JSON, or with it in a text inside
REPAIRABLE = ("E121", "E122", "E124", "E206")
# keys of texts that should be JSON
JSON_KEYS = ("tools", "functions", "function", "arguments", "parameters", "answers")
USER_KEYS = ("arguments", "input")  # what stands in them is the user's

# what a repair may write differently: escapes, Python's words and prefixes, brackets of tuples,
# numbers such as 1.50, and all blanks, quotes, commas and colons
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
CONTROL_LETTERS = "abfnrtv"  # control characters, as escapes write them
WORDS = {"None": "null", "True": "true", "False": "false", "(": "[", ")": "]"}
WORD = re.compile(r"\b(?:None|True|False)\b|[()]")
PREFIX = re.compile(r"\b[uUrR](?=['\"])")
FRACTION = re.compile(r"\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+")
PUNCTUATION = re.compile(r"[\s\x00-\x1f\"'`“”‘’,:，：\\]+")


def repair(content: bytes) -> tuple[dict[str, Any], list[str]] | None:
    """The row, and the readers that changed something in it, in turn; None if none helps."""
    readers: list[str] = []
    try:
        value = _read_or_repair(content.decode("utf-8").removeprefix("\ufeff"), readers)
    except (UnicodeDecodeError, RowError):
        return None
    if not isinstance(value, dict):
        return None
    repaired = _decode_texts(value, readers)
    return (repaired, list(dict.fromkeys(readers))) if readers else None


def _read_or_repair(text: str, readers: list[str]) -> Any:
    """The value of a text, by JSON or the first reader that can, which is added to `readers`."""
    try:
        return json_value(text)
    except RowError as error:
        if error.code != "E121" or len(text) > LONGEST_REPAIRED:
            raise
        for name, reader in READERS.items():
            with contextlib.suppress(RowError):
                value = reader(text)
                # what was read must hold all that was written, and nothing more
                if _content(json.dumps(value, ensure_ascii=False)) == _content(text):
                    readers.append(name)
                    return value
        raise


def _decode_texts(value: Any, readers: list[str], key: str = "") -> Any:
    """The same value; texts that should be JSON are. What cannot be read is refused later."""
    if isinstance(value, list):
        return [_decode_texts(inner, readers) for inner in value]
    if isinstance(value, dict):
        return {
            # an object of arguments holds what a user said: no text in it is opened
            name: inner
            if name in USER_KEYS and not isinstance(inner, str)
            else _decode_texts(inner, readers, name)
            for name, inner in value.items()
        }
    if key in JSON_KEYS and isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        count = len(readers)
        with contextlib.suppress(RowError):
            repaired = _read_or_repair(value, readers)
            if len(readers) > count:
                return json.dumps(repaired, ensure_ascii=False)
    return value


def _content(text: str) -> str:
    """What a repair has to keep of a text, in its order: letters, digits, signs and brackets."""
    # {'a': None} and {"a": null} -> {anull}
    text = ESCAPE.sub(_character, text)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = WORD.sub(lambda word: WORDS[word[0]], PREFIX.sub("", text))
    return PUNCTUATION.sub("", FRACTION.sub(lambda number: repr(float(number[0])), text))


def _character(escape: re.Match[str]) -> str:
    if escape[4]:
        return "" if escape[4] in CONTROL_LETTERS else escape[4]
    number = int(escape[1] or escape[2] or escape[3], 16)
    return chr(number) if number <= sys.maxunicode else ""


def _repair_json(text: str) -> object:
    """By json-repair; an empty result does not count as a repair."""
    import json_repair

    repaired = json_repair.loads(text, skip_json_loads=True)
    if repaired in ("", [], {}):
        raise RowError("E121", "nothing left of it")
    # read again, so that a repair is held to the same limits
    return json_value(json.dumps(repaired, ensure_ascii=False))


READERS: dict[str, Callable[[str], Any]] = {"literal": literal_value, "json": _repair_json}
