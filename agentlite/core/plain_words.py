"""Types, encodings and errors of Python and msgspec -> the words of somebody who writes rows."""

import re
import shlex
from pathlib import Path

import msgspec

from agentlite.core.errors import UserError

KINDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    **dict.fromkeys(("NoneType", "null"), "null"),
    **dict.fromkeys(("list", "tuple", "array"), "a list"),
    **dict.fromkeys(("dict", "object"), "an object"),
}
GIVEN = KINDS | {"float": "a decimal number"}  # which a whole number is not
BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
# what msgspec says of a value, and where that stands
EXPECTED = re.compile(
    r"Expected `(?P<types>[^`]+)`(?P<length> of length)?(?: (?P<sign>[<>]=?) (?P<bound>\S+))?"
    r"(?:, got `(?P<got>[^`]+)`)?$"
)
PLACE = re.compile(r" - at (?P<key>`key` in )?`\$\.?(?P<path>[^`]*)`$")
BOM = b"\xef\xbb\xbf"
# how a text begins that has two or four bytes a letter; without a mark, its first letters are ASCII
WIDE = {
    "UTF-32": rb"\xff\xfe\0\0|\0\0\xfe\xff",
    "UTF-16": rb"\xff\xfe|\xfe\xff",
    "UTF-32LE": rb"[\t\n\r -~]\0\0\0",
    "UTF-32BE": rb"\0\0\0[\t\n\r -~]",
    "UTF-16LE": rb"(?:[\t\n\r -~]\0){2}",
    "UTF-16BE": rb"(?:\0[\t\n\r -~]){2}",
}
FIELD = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<name>[^`]+)`$")


def kind(value: object) -> str:
    """What a value of JSON is: `a text`, `a list`."""
    return KINDS.get(type(value).__name__, "something else")


def type_error(error: msgspec.ValidationError) -> str:
    """`messages[0].content: a text is expected, and this is a whole number`."""
    path, problem = located(error)
    return f"{path}: {problem}" if path else problem


def located(error: msgspec.ValidationError) -> tuple[str, str]:
    """The path to the value that does not fit, "" for the whole, and what is wrong with it."""
    text, path = str(error), ""
    if place := PLACE.search(text):
        text, path = text[: place.start()], place["path"]
        path = f"a key of {path or 'it'}" if place["key"] else path
    return path, _problem(text)


def _problem(text: str) -> str:
    if field := FIELD.match(text):
        missing = field["what"] == "missing required"
        return f"{field['name']} is {'missing' if missing else 'not known'}"
    if not (expected := EXPECTED.match(text)):
        return text.replace("Invalid enum value", "not one of the known values:").replace("`", "'")
    # nobody has to write the null of an optional value
    names = [name for name in expected["types"].split(" | ") if name != "null"]
    wanted = " or ".join(KINDS.get(name, name) for name in names)
    if expected["sign"]:
        entries = (
            (" entry" if expected["bound"] == "1" else " entries") if expected["length"] else ""
        )
        wanted += (
            f" {'with ' if entries else 'of '}{BOUNDS[expected['sign']]} "
            f"{expected['bound'].removesuffix('.0')}{entries}"
        )
    got = f", and this is {GIVEN.get(expected['got'], expected['got'])}" if expected["got"] else ""
    return f"{wanted} is expected{got}"


def misread(error: Exception) -> str:
    """Why a reader that takes a row apart could not: a KeyError names the key."""
    if isinstance(error, KeyError) and error.args:
        return f"the key {error.args[0]!r} is missing"
    return f"a value is of another type ({error})"


def wide_encoding(head: bytes) -> str:
    """`UTF-16`, `UTF-32LE`: of a text that begins so; "" for UTF-8 and the like."""
    return next((name for name, begins in WIDE.items() if re.match(begins, head)), "")


def conversion(encoding: str, name: str) -> str:
    """The command that makes UTF-8 of a file."""
    new = f"{Path(name).stem}.utf8{Path(name).suffix}"
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > {shlex.quote(new)}"


def utf8_text(content: bytes, name: str) -> str:
    """The text of a user's file, without its mark of UTF-8. Raises UserError 2 for another
    encoding.
    """
    if wide := wide_encoding(content):
        fix = f"Convert it: {conversion(wide, name)}"
        raise UserError(f"this is text in {wide}, not in UTF-8.", fix, location=name)
    content = content.removeprefix(BOM)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"not UTF-8: byte {content[error.start]:02x}.",
            f"If it is Windows-1252: {conversion('WINDOWS-1252', name)}",
            location=f"{name}:{number}",
        ) from error
