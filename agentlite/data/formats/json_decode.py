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
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from agentlite.core.errors import RowError
from agentlite.core.json_schema import DEEPEST, is_too_deep

LONGEST_LITERAL = 64 << 10
CUT = "The row was cut: fetch or write it again. No repair can know what is missing."
SPREAD = "Is the JSON spread over lines? `jq -c . FILE` writes one row per line."
# json's words for a mistake -> ours
PROBLEMS = {
    "Expecting value": "a value is missing",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing",
    "Invalid control character at": "a line break or another control character in a text (write "
    "\\n)",
    "Invalid \\escape": "a backslash that escapes nothing (write two)",
    "Invalid \\uXXXX escape": "\\u without four hexadecimal digits",
}


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
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        raise not_json(error) from error
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
        raise RowError(
            "E206", f"not JSON, and not a Python literal of at most {LONGEST_LITERAL >> 10} KiB"
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            tree = ast.parse(text.strip(), mode="eval")
            value = ast.literal_eval(tree)
        plain = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise RowError("E206", f"not JSON, and not a Python literal: {shortened(text)}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            _object([(str(key.value), None) for key in node.keys if isinstance(key, ast.Constant)])
    return json_value(plain)


def shortened(value: object) -> str:
    """A value as an error quotes it: its beginning, on one line; a text in quotes, others as
    JSON.
    """
    is_text = isinstance(value, str)
    text = str(value) if is_text else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > 60:
        text = f"{text[:60]}…"
    return repr(text) if is_text else text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = max(keys, key=keys.count)
        raise RowError("E118", f"the key {twice!r} appears twice in one object", at=twice)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise RowError("E116", f"{name} is not a JSON number", at=name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RowError("E116", f"the number {text[:20]} is too large", at=text)
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise RowError("E117", f"a number of {len(text)} digits", at=text) from error


def not_json(error: json.JSONDecodeError, where: str = "") -> RowError:
    """E121, in plain words, with what helps against the mistakes that are common. `where`: in place
    of the number of the character.
    """
    text, place = error.doc, error.pos
    rest, before = text[place:].lstrip(), text[:place].rstrip()
    where = where or f"at character {place + 1}"
    if error.msg == "Extra data":
        reason = "more than one JSON value on the line"
        return RowError("E121", reason, "Write one value per line: `jq -c . FILE`.", place)
    if error.msg.startswith("Unterminated string"):
        reason = f"not JSON: the text that begins {where} does not end"
        return RowError("E121", reason, CUT, place)
    if not rest:
        spread = before.endswith(("{", "["))
        reason = f"not JSON: the row ends {where}, inside an object or a list"
        return RowError("E121", reason, SPREAD if spread else CUT, len(before))
    if error.msg.startswith("Illegal trailing comma"):  # Python 3.13 points at the comma
        before, rest = f"{before},", rest[1:].lstrip()
        where = where.replace(str(place + 1), str(len(text) - len(text[place + 1 :].lstrip()) + 1))
    if rest[0] in "}]" and before.endswith(","):
        return RowError("E121", f"not JSON: a comma before {rest[0]!r} {where}", at=len(before) - 1)
    if not before and rest[0] not in "{[":
        reason = f"not JSON: a row begins with {{, and this one with {shortened(rest)}"
        return RowError("E121", reason, "Give one JSON object per line.", place)
    if rest[0] == "'" or rest.startswith(("None", "True", "False")):
        word = rest[0] if rest[0] == "'" else rest[: 5 if rest[0] == "F" else 4]
        return RowError("E121", f"not JSON but Python: {word} {where}", at=place)
    return RowError("E121", f"not JSON: {PROBLEMS.get(error.msg, error.msg)} {where}", at=place)


def _refuse_surrogates(text: str, value: object) -> None:
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            at = half if half in text else half.replace(half[2:], half[2:].upper())
            raise RowError("E113", f"{half} is half a surrogate pair", at=text.find(at)) from error
        except RecursionError as error:
            raise RowError("E119", f"nested deeper than {DEEPEST}") from error


# --- repairs ---

LONGEST_REPAIRED = 1 << 20
# rows that a repair may read: of another encoding, invalid JSON, or with it in a text inside
REPAIRABLE = ("E109", "E121", "E122", "E124", "E206")
ENCODING = "encoding"
# keys of texts that should be JSON
HOLD_JSON = ("tools", "functions", "function", "arguments", "parameters", "answers")
USERS = ("arguments", "input")  # what stands in them is the user's

# what a repair may write differently: escapes, Python's words and prefixes, brackets of tuples,
# numbers such as 1.50, and all blanks, quotes, commas and colons
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
BLANKS = "abfnrtv"  # control characters, as escapes write them
WORDS = {"None": "null", "True": "true", "False": "false", "(": "[", ")": "]"}
WORD = re.compile(r"\b(?:None|True|False)\b|[()]")
PREFIX = re.compile(r"\b[uUrR](?=['\"])")
FRACTION = re.compile(r"\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+")
PUNCTUATION = re.compile(r"[\s\x00-\x1f\"'`“”‘’,:，：\\]+")


def repair(content: bytes, methods: Sequence[str]) -> tuple[dict[str, Any], list[str]] | None:
    """The row, and the methods that changed something in it, in turn; None if none helps."""
    used: list[str] = []
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        if ENCODING not in methods:
            return None
        try:
            text = content.decode("windows-1252")
        except UnicodeDecodeError:
            return None
        used.append(ENCODING)
    try:
        value = _read(text.removeprefix("\ufeff"), methods, used)
    except RowError:
        return None
    if not isinstance(value, dict):
        return None
    repaired = _with_texts_read(value, methods, used)
    return (repaired, list(dict.fromkeys(used))) if used else None


def _read(text: str, methods: Sequence[str], used: list[str]) -> Any:
    """The value of JSON, or by the first of the methods that reads the text: it is added to those
    `used`. Raises RowError if none does.
    """
    try:
        return json_value(text)
    except RowError as error:
        if error.code != "E121" or len(text) > LONGEST_REPAIRED:
            raise
        for method in (method for method in methods if method in READERS):
            with contextlib.suppress(RowError):
                value = READERS[method](text) if method in READERS else None
                if value is not None and _content(
                    json.dumps(value, ensure_ascii=False)
                ) == _content(text):
                    used.append(method)
                    return value
        raise


def _with_texts_read(value: Any, methods: Sequence[str], used: list[str], key: str = "") -> Any:
    """The same value; texts that should be JSON are. A text that cannot be read stays, and is
    refused later.
    """
    if isinstance(value, list):
        return [_with_texts_read(inner, methods, used) for inner in value]
    if isinstance(value, dict):
        return {
            name: inner
            if name in USERS and not isinstance(inner, str)
            else _with_texts_read(inner, methods, used, name)
            for name, inner in value.items()
        }
    if key in HOLD_JSON and isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        before = len(used)
        with contextlib.suppress(RowError):
            read = _read(value, methods, used)
            if len(used) > before:
                return json.dumps(read, ensure_ascii=False)
    return value


def _content(text: str) -> str:
    """What a repair has to keep of a text, in its order: letters, digits, signs and brackets."""
    text = (
        ESCAPE.sub(_character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
    text = WORD.sub(lambda word: WORDS[word[0]], PREFIX.sub("", text))
    return PUNCTUATION.sub("", FRACTION.sub(lambda number: repr(float(number[0])), text))


def _character(escape: re.Match[str]) -> str:
    if escape[4]:
        return "" if escape[4] in BLANKS else escape[4]
    number = int(escape[1] or escape[2] or escape[3], 16)
    return chr(number) if number <= sys.maxunicode else ""


def _guessed(text: str) -> object:
    """By json-repair; an empty result does not count as a repair."""
    import json_repair

    value = json_value(
        json.dumps(json_repair.loads(text, skip_json_loads=True), ensure_ascii=False)
    )
    if value in ("", [], {}):
        raise RowError("E121", "nothing left of it")
    return value


READERS: dict[str, Callable[[str], Any]] = {"literal": literal_value, "json": _guessed}
METHODS = (*READERS, ENCODING)
SAFE = tuple(READERS)  # nothing is guessed of what a row says, as an encoding is
