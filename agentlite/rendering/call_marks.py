"""Trained text -> the model in whose own form it holds a call, which would be learned as words."""

import json
import re

from agentlite.core.errors import RowError
from agentlite.core.records import Record

# a model -> how its template writes calls; in backticks a mark is only mentioned, and what prose
# may hold as well counts at the start of the text, or of a line with a call behind it
MARKS = {
    "Llama": r"(?<!`)<\|python_tag\|>|^[ \t]*<function=[\w.-]+>(?=\s*[{<])",
    "Mistral": r"(?<!`)\[TOOL_CALLS?\](?=\s*[\[{]|\s*[\w.-]+\s*[\[{])",
    "DeepSeek": r"(?<!`)<｜(?:tool▁calls?▁begin|DSML｜(?:function|tool)_calls)",
    "Kimi": r"(?<!`)<\|tool_calls?(?:_section)?_begin\|>",
    "gpt-oss": r"(?<!`)<\|channel\|>\w+ to=|\A\s*commentary to=functions\.",
    "Granite": r"(?<!`)<\|tool_call\|>",
    "Phi": r"\A\s*functools\[",
    "Gemma": r"^```tool_code\b|(?<!`)(?:<start_function_call>|<\|tool_call>)",
    "InternLM": r"(?<!`)<\|action_start\|>",
    "Command R": r"(?<!`)<\|START_ACTION\|>",
    "Hermes": r"\A\s*<tool_call>",
}
PATTERNS = {model: re.compile(marks, re.MULTILINE) for model, marks in MARKS.items()}
DECODER = json.JSONDecoder()
BARE = "Llama"  # its third version writes a call as its JSON alone


def check_calls(record: Record) -> None:
    """Raises RowError E222 for a trained answer without calls that writes one as another model
    does, where tools are on offer.
    """
    names = {tool.name for tool in record.tools}
    for turn in record.turns if names else ():
        message = record.messages[turn]
        if not message.loss or message.calls:
            continue
        if found := call_mark(message.content) or _bare_call(message.content, names):
            model, mark = found
            reason = f"messages[{turn}] is trained and holds a call in {model}'s own form: {mark!r}"
            raise RowError("E222", reason, at=mark)


def call_mark(text: str) -> tuple[str, str] | None:
    """The model whose form it is, and the mark."""
    for model, pattern in PATTERNS.items():
        if mark := pattern.search(text):
            return model, mark[0].strip()
    return None


def _bare_call(text: str, names: set[str]) -> tuple[str, str] | None:
    """The same of a text that begins with the JSON of a call of one of these tools."""
    start = text.strip().removeprefix("[").lstrip()
    if not start.startswith("{"):
        return None
    try:
        first, _ = DECODER.raw_decode(start)
    except (ValueError, RecursionError):  # no JSON, or nested too deep for a call
        return None
    called = isinstance(first, dict) and first.keys() & {"parameters", "arguments"}
    name = first.get("name") if called else None
    return (BARE, start.split(",", 1)[0]) if isinstance(name, str) and name in names else None
