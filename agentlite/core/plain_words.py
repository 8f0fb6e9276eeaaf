"""Types, encodings and errors of Python -> the words of somebody who writes rows."""

import shlex
from pathlib import Path

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
BOM = b"\xef\xbb\xbf"


def kind_of(value: object) -> str:
    """What a value of JSON is: `a text`, `a list`."""
    return KINDS.get(type(value).__name__, "something else")


def misread_reason(error: Exception) -> str:
    """Why a reader that takes a row apart could not: a KeyError names the key."""
    if isinstance(error, KeyError) and error.args:
        return f"the key {error.args[0]!r} is missing"
    return f"a value is of another type ({error})"


def wide_encoding(head: bytes) -> str:
    """The encoding of a text whose mark says that a letter has several bytes; "" for others."""
    if head.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "UTF-32"
    return "UTF-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else ""


def iconv_command(encoding: str, name: str) -> str:
    """The command that makes UTF-8 of a file."""
    converted = f"{Path(name).stem}.utf8{Path(name).suffix}"
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(name)} > {shlex.quote(converted)}"


def utf8_text(content: bytes, name: str) -> str:
    """The text of a user's file, without its mark of UTF-8. Raises UserError 2 for another
    encoding.
    """
    if encoding := wide_encoding(content):
        raise UserError(
            f"this is text in {encoding}, not in UTF-8.",
            f"Convert it: {iconv_command(encoding, name)}",
            location=name,
        )
    content = content.removeprefix(BOM)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"not UTF-8: byte {content[error.start]:02x}.",
            f"If it is Windows-1252: {iconv_command('WINDOWS-1252', name)}",
            location=f"{name}:{number}",
        ) from error
