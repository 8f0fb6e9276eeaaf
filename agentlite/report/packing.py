"""Rows of a viewer -> the packed text in the page that it reads: JSON, deflated, in base64."""

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentlite.report.read_run import Json

LONGEST = (20_000, 4_000, 1_000)  # characters of a text, as many as fit
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
Tool = tuple[str, str, str]  # its name, its description and its parameters as JSON


class Packed(NamedTuple):
    """`rows`: how many are in the text. `notes`: sentences about what had to be cut or left out."""

    text: str
    rows: int
    notes: list[str]


class Cutter:
    """Cuts the long texts in JSON, notes in each how much is missing, and counts them. `longest`:
    the length of the longest text that was left.
    """

    def __init__(self, limit: int):
        self.limit, self.count, self.longest = limit, 0, 0

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self(inner) for inner in value]
        if not isinstance(value, str):
            return value
        self.longest = max(self.longest, min(len(value), self.limit))
        if len(value) <= self.limit:
            return value
        self.count += 1
        return f"{value[: self.limit]} … [{len(value) - self.limit:,} more characters]"


def pack_within(budget: int, count: int, contents: Callable[[int], Json]) -> Packed:
    """At most `budget` characters: texts are cut shorter until they fit; if that is not enough, the
    last rows are left out. `contents`: of so many rows.
    """
    cutter, whole = Cutter(LONGEST[0]), contents(count)
    while True:
        cut = compact(cutter(whole)).encode("utf-8", "replace")
        text = base64.b64encode(zlib.compress(cut)).decode("ascii")
        if len(text) <= budget or not count:
            break
        shorter = [limit for limit in LONGEST if limit < cutter.longest]
        if not shorter:
            count = int(0.95 * count * budget / len(text))
            whole = contents(count)
        cutter = Cutter(shorter[0] if shorter else cutter.limit)
    note = (
        f"{cutter.count} texts are cut after {cutter.limit:,} characters; each says how much of "
        "it is missing."
    )
    return Packed(text, count, [note] if cutter.count else [])


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
