"""Texts that embed what other formats have as fields, tools, values and results -> their parts."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Tool, plain
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.tool_calls import json_or_literal, read_tools

# quoted text that nothing ends goes on to the end: it is looked at once
TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[][(){},=]""", re.DOTALL
)
LEVEL = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}
OPENING = re.compile(r"[\s,]*+([\[{])")


def end_of(text: str, start: int, code: str) -> int:
    """Where the bracket that opens at `start` is closed; those in quotes do not count."""
    depth = 0
    for token in TOKEN.finditer(text, start):
        depth += LEVEL.get(token[0], 0)
        if depth == 0:
            return token.end()
    raise RowError(code, f"a bracket that is not closed: {shortened(text[start:])}")


def split_at(separator: str, text: str) -> list[str]:
    """The text cut at each separator that stands in no bracket and in no quotes."""
    depth, cuts = 0, [-1]
    for token in TOKEN.finditer(text):
        depth += LEVEL.get(token[0], 0)
        if token[0] == separator and depth == 0:
            cuts.append(token.start())
    return [text[start + 1 : end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def with_text_behind(
    labels: Sequence[re.Match[str]], text: str
) -> Iterator[tuple[re.Match[str], str]]:
    """Each label of a text, with what stands between it and the next."""
    ends = [label.start() for label in labels[1:]] + [len(text)]
    for label, end in zip(labels, ends, strict=False):
        yield label, text[label.end() : end]


def tools_at(text: str, start: int) -> tuple[tuple[Tool, ...], int]:
    """The tools of a list, or of objects one after another, that begins at `start`; and where they
    end.
    """
    tools: list[Tool] = []
    while opening := OPENING.match(text, start):
        end = end_of(text, opening.start(1), "E124")
        written = text[opening.start(1) : end]
        tools += read_tools(written if opening[1] == "[" else [written], json_or_literal)
        start = end
        if opening[1] == "[":
            break
    return tuple(tools), start


def sentences(*patterns: str) -> re.Pattern[str]:
    """What finds any run of these sentences: the words that only frame the tools, whatever their
    order.
    """
    return re.compile(rf"(?:(?:{'|'.join(patterns)})\s*)+", re.IGNORECASE | re.DOTALL)


def value_of(text: str) -> object:
    """What a result holds, if it is JSON or a Python literal; else the text: a result may be
    any.
    """
    try:
        return json_or_literal(text)
    except RowError:
        return text


def result_of(value: Any, text: str, key: str, waiting: list[Call]) -> Message:
    """A result {"name", key} as a tool turn: it answers the first waiting call of its name, else
    the first of all.

    What is not written so, or names no call that waits, stays whole as `text`.
    """
    named = isinstance(value, dict) and {
        name for name, inner in value.items() if inner is not None
    } == {"name", key}
    call = next((call for call in waiting if named and call.name == value["name"]), None)
    content = value[key] if call else text
    call = call or (waiting[0] if waiting else Call(""))
    waiting[:] = [other for other in waiting if other is not call]
    return Message("tool", content if isinstance(content, str) else plain(content), call_id=call.id)
