"""Rows of a viewer -> the packed text in the page that it reads: JSON, deflated, in base64."""

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentlite.report.read_run import Json

LONGEST = 8_000  # characters of a text
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Tool = tuple[str, str, str]  # its name, its description and its parameters as JSON


class Packed(NamedTuple):
    """`rows`: how many are in the text. `notes`: sentences about what had to be cut or left out."""

    text: str
    rows: int
    notes: list[str]


def pack_within(budget: int, count: int, contents: Callable[[int], Json]) -> Packed:
    """At most `budget` characters: long texts are cut, and the last rows are left out if that is
    not enough. `contents`: of so many rows.
    """
    text, cut = _packed(contents(count))
    while len(text) > budget and count:
        count = int(0.95 * count * budget / len(text))
        text, cut = _packed(contents(count))
    note = f"{cut} texts are cut after {LONGEST:,} characters; each says how much of it is missing."
    return Packed(text, count, [note] if cut else [])


def _packed(contents: Json) -> tuple[str, int]:
    """The text, and how many texts in it are cut."""
    count = 0

    def cut(value: Any) -> Any:
        nonlocal count
        if isinstance(value, dict):
            return {key: cut(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return list(map(cut, value))
        if not isinstance(value, str) or len(value) <= LONGEST:
            return value
        count += 1
        return f"{value[:LONGEST]} … [{len(value) - LONGEST:,} more characters]"

    whole = compact(cut(contents)).encode("utf-8", "replace")
    return base64.b64encode(zlib.compress(whole)).decode("ascii"), count


def packed_message(message: Mapping[str, Any]) -> list[Any]:
    """Its role; its words, also where they are a list of parts; and the name and the arguments, as
    JSON, of each call.
    """
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text", "") if isinstance(part, dict) else part for part in content]
        content = "\n".join(map(str, parts))
    calls = []
    stored = message.get("tool_calls")
    for call in stored if isinstance(stored, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments", {})
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append([str(function.get("name", "")), text])
    return [str(message.get("role", "")), "" if content is None else str(content), calls]


def packed_tool(schema: Mapping[str, Any]) -> Tool:
    function = schema.get("function")
    function = function if isinstance(function, dict) else {}
    name, description = (str(function.get(key, "")) for key in ("name", "description"))
    return name, description, compact(function.get("parameters", {}))
