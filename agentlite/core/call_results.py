"""What a call returned, as text: whether it failed, and the words for a tool that is not there."""

import json
from collections.abc import Iterable


def says_error(result: str) -> bool:
    """Whether a result is that of a call that failed: it begins with `Error`, or is a JSON object
    with an `error` that is not empty.
    """
    text = result.strip()
    if not text.startswith("{"):
        return text.startswith("Error")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def no_tool(name: str, names: Iterable[str]) -> str:
    """The result of a call of a tool that is not on offer."""
    return f"Error: no tool {name}. The tools: {', '.join(names)}."
