"""A row or a text inside it that is not JSON -> what was meant, where the user asks for it.

A repair changes how a text is written and nothing else: there is none where something of the text
would be lost, or a bracket added, as at the end of a row that was cut.
"""

import contextlib
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
# keys of texts that should be JSON
HOLD_JSON = ("tools", "functions", "function", "arguments", "parameters", "answers")
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
    reader = _Reader(methods)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        if ENCODING not in methods:
            return None
        try:
            text = content.decode("windows-1252")
        except UnicodeDecodeError:
            return None
        reader.used.append(ENCODING)
    try:
        value = reader.value(text.removeprefix("\ufeff"))
    except RowError:
        return None
    if not isinstance(value, dict):
        return None
    repaired = reader.inside(value)
    return (repaired, list(dict.fromkeys(reader.used))) if reader.used else None


class _Reader:
    """Reads texts with the methods that are allowed; `used`: those that changed something."""

    def __init__(self, methods: Sequence[str]):
        self.methods = [method for method in methods if method in READERS]
        self.used: list[str] = []

    def value(self, text: str) -> Any:
        """Raises RowError if no method reads the text."""
        try:
            return json_value(text)
        except RowError as error:
            if error.code != "E121" or len(text) > LONGEST:
                raise
            for method in self.methods:
                with contextlib.suppress(RowError):
                    value = READERS[method](text)
                    if _content(json.dumps(value, ensure_ascii=False)) == _content(text):
                        self.used.append(method)
                        return value
            raise

    def inside(self, value: Any, key: str = "") -> Any:
        """The same value; texts that should be JSON are. A text that cannot be read stays, and is
        refused later.
        """
        if isinstance(value, list):
            return [self.inside(inner) for inner in value]
        if isinstance(value, dict):
            return {
                name: inner
                if name in ARGUMENTS and not isinstance(inner, str)
                else self.inside(inner, name)
                for name, inner in value.items()
            }
        if key in HOLD_JSON and isinstance(value, str) and value.lstrip().startswith(("{", "[")):
            before = len(self.used)
            with contextlib.suppress(RowError):
                read = self.value(value)
                if len(self.used) > before:
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
