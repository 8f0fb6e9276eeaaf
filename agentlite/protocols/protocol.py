"""What a protocol has to say: system text, assistant text, results, stop strings, and the way back from text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentlite.records import Message, Parsed, Tool

if TYPE_CHECKING:
    from agentlite.templates import Template


DEEPEST = 64


@dataclass(frozen=True)
class Protocol:
    """`inline`: results stand inside the assistant's turn, after its `stops`; else they are a turn of `result_role`.

    `native`: the chat template itself prints tools, calls and results; `system` and `assistant` are then not used.
    """

    name: str
    parse: Callable[[str], Parsed]
    system: Callable[[Sequence[Tool]], str] = lambda tools: ""
    assistant: Callable[[Message], str] = lambda message: message.content
    results: Callable[[Sequence[Message]], str] = lambda messages: "\n".join(m.content for m in messages)
    result_role: str = "tool"
    stops: tuple[str, ...] = ()
    several: bool = True
    inline: bool = False
    native: bool = False
    readers: tuple[Callable[[str], Parsed], ...] = ()

    def for_template(self, template: "Template") -> "Protocol":
        """A native protocol reads calls back in the template's own syntax: the first reader that understands it."""
        if not self.native:
            return self
        from agentlite.protocols.rendering import reads_back

        for reader in self.readers:
            candidate = replace(self, parse=reader)
            if reads_back(candidate, template):
                return candidate
        return self


def arguments_problem(arguments: Any) -> str:
    """What keeps a reading from being a call's arguments: "" if they are a JSON object that is not nested too deep."""
    if not isinstance(arguments, dict):
        return "arguments are no object"
    return "" if _is_json(arguments, DEEPEST) else "arguments are no JSON, or nested too deep"


def _is_json(value: Any, depth: int) -> bool:
    """A Python literal may also hold sets, bytes, or keys that are no strings."""
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(k, str) and _is_json(inner, depth - 1) for k, inner in value.items())
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_json(inner, depth - 1) for inner in value)
    return value is None or isinstance(value, str | int | float)


def json_object(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON object at or after `start`, blanks skipped, and where it ends. Raises ValueError."""
    import json

    start += len(text[start:]) - len(text[start:].lstrip())
    if not text.startswith("{", start):
        raise ValueError("no JSON object")
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return value, end
