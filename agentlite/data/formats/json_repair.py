"""A row or a text inside it that is not JSON -> what was meant, where the user asks for it.

A repair changes how a text is written and nothing else: there is none where something of the text
would be lost, or a bracket added, as at the end of a row that was cut.
"""

import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from agentlite.core.errors import RowError
from agentlite.data.formats.json_decode import json_value, literal_value

LONGEST = 1 << 20
# rows that a repair may read: of another encoding, invalid JSON, or with it in a text inside
REPAIRABLE = ("E109", "E121", "E122", "E124", "E206")
ENCODING = "encoding"
HOLD_JSON = (
    "tools",
    "functions",
    "function",
    "arguments",
    "parameters",
    "answers",
)  # keys of such texts
ARGUMENTS = ("arguments", "input")  # what stands in them is the user's

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
        value = _value(_decoded(content, methods, used).removeprefix("\ufeff"), methods, used)
    except (UnicodeDecodeError, RowError):
        return None
    if not isinstance(value, dict):
        return None
    mended = _inside(value, methods, used)
    return (mended, list(dict.fromkeys(used))) if used else None


def _decoded(content: bytes, methods: Sequence[str], used: list[str]) -> str:
    """Raises UnicodeDecodeError for bytes that are not UTF-8, or, if the methods allow it, not
    Windows-1252.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        if ENCODING not in methods:
            raise
        text = content.decode("windows-1252")
        used.append(ENCODING)
        return text


def _value(text: str, methods: Sequence[str], used: list[str]) -> Any:
    """Raises RowError if no method reads the text."""
    try:
        return json_value(text)
    except RowError as error:
        readers = [method for method in methods if method in READERS]
        for method in readers if error.code == "E121" and len(text) <= LONGEST else ():
            try:
                value = READERS[method](text)
            except RowError:
                continue
            if _content(json.dumps(value, ensure_ascii=False)) != _content(text):
                continue
            used.append(method)
            return value
        raise


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


def _inside(value: object, methods: Sequence[str], used: list[str]) -> Any:
    """The same value; texts that should be JSON are. A text that cannot be read stays, and is
    refused later.
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
