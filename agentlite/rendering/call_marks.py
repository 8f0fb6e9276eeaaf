"""Trained text -> the model in whose own form it holds a call, which would be learned as words."""

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


def check_calls(record: Record) -> None:
    """Raises RowError E222 for a trained answer without calls that writes one as another model
    does, where tools are on offer.
    """
    for turn in record.turns if record.tools else ():
        message = record.messages[turn]
        if message.loss and not message.calls and (found := call_mark(message.content)):
            model, mark = found
            reason = f"messages[{turn}] is trained and holds a call in {model}'s own form: {mark!r}"
            raise RowError("E222", reason, at=mark)


def call_mark(text: str) -> tuple[str, str] | None:
    """The model whose form it is, and the mark."""
    for model, pattern in PATTERNS.items():
        if mark := pattern.search(text):
            return model, mark[0].strip()
    return None
