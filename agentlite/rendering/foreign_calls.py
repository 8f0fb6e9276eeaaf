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
    "Nemotron": r"(?<!`)<TOOLCALL>(?=\s*[\[{])",
    "LFM2": r"(?<!`)<\|tool_call_start\|>",
    "Claude": r"(?<!`)<(?:antml:)?function_calls>(?=\s*<(?:antml:)?invoke)"
    r"|^[ \t]*<tool_use>(?=\s*[{<])",
    "OLMo": r"(?<!`)<function_calls>(?=\s*[\w.]+\()",
    "Glaive": r"(?<!`)<function_?call>(?=\s*[\[{])",
    "Jamba": r"(?<!`)<tool_calls>(?=\s*[\[{])",
    "Seed": r"(?<!`)<seed:tool_call>",
    "MiniMax": r"(?<!`)<minimax:tool_call>",
    "LongCat": r"(?<!`)<longcat_tool_call>",
}
PATTERNS = {model: re.compile(marks, re.MULTILINE) for model, marks in MARKS.items()}
HINTS = ("<", "[TOOL_CALL", "functools[", "commentary to=", "```tool_code")  # one is in each mark
DECODER = json.JSONDecoder()
BARE = "Llama"  # its third version writes a call as its JSON alone, or as Python
# what may stand around such a call
OPENING = re.compile(r"\s*(?:<think>.*?</think>\s*)?(?:```(?:json|tool_calls?)?\s*)?", re.DOTALL)
# how JSON names the tool of a call and its arguments, and what may hold calls
TOOL_KEYS = ("name", "tool_name", "tool", "function", "action")
ARGUMENT_KEYS = frozenset(
    ("parameters", "arguments", "args", "input", "kwargs", "action_input", "tool_input")
)
HOLDERS = ("tool_calls", "tool_call", "calls", "function_call", "function")
PYTHON_CALL = re.compile(r"\[?\s*(?P<name>[\w.-]+)\(.*\)\]?\Z", re.DOTALL)


def check_calls(record: Record) -> None:
    """Raises RowError E222 for a trained answer that writes a call as another model does, where
    tools are on offer; of an answer with calls, its words.
    """
    names = {tool.name for tool in record.tools}
    for turn in record.turns if names else ():
        message = record.messages[turn]
        if not message.loss:
            continue
        call = call_mark(message.content)
        if not call and not message.calls:
            call = _bare_call(message.content, names)
        if call:
            model, mark = call
            reason = f"messages[{turn}] is trained and holds a call in {model}'s own form: {mark!r}"
            raise RowError("E222", reason, at=mark)


def call_mark(text: str) -> tuple[str, str] | None:
    """The model whose form it is, and the mark."""
    if not any(hint in text for hint in HINTS):
        return None
    for model, pattern in PATTERNS.items():
        if mark := pattern.search(text):
            return model, mark[0].strip()
    return None


def _bare_call(text: str, names: set[str]) -> tuple[str, str] | None:
    """The same of a text that begins with the JSON of a call of one of these tools, or is such a
    call in Python.
    """
    opening = OPENING.match(text)
    start = text[opening.end() if opening else 0 :].rstrip()
    call = PYTHON_CALL.match(start)
    if call and call["name"] in names:
        return BARE, call[0].split("(", 1)[0] + "("
    start = start.removeprefix("[").lstrip()
    if not start.startswith("{"):
        return None
    try:
        first, _ = DECODER.raw_decode(start)
    except (ValueError, RecursionError):  # no JSON, or nested too deep for a call
        return None
    return (BARE, start.split(",", 1)[0]) if _is_call(first, names) else None


def _is_call(value: object, names: set[str]) -> bool:
    """Whether a value of JSON calls one of these tools, or holds such a call."""
    if isinstance(value, list):
        return any(_is_call(inner, names) for inner in value)
    if not isinstance(value, dict):
        return False
    named = any(isinstance(name := value.get(key), str) and name in names for key in TOOL_KEYS)
    return (named and bool(value.keys() & ARGUMENT_KEYS)) or any(
        _is_call(value[key], names) for key in HOLDERS if isinstance(value.get(key), dict | list)
    )
