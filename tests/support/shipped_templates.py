"""Chat templates that installed packages ship, read as source text, with a tokenizer for each."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from agentlite.rendering.template import Template

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
# <|im_end|>, <start_of_turn>, <turn|>, <|turn>, [INST]; never <think> or <tool_call>
MARK = re.compile(
    r"<[|｜][^<>\s'\"]{1,40}[|｜]>|<(?:start|end)_of_(?:turn|utterance)>|<\|[a-z_]+>|<[a-z_]+\|>"
    r"|\[/?[A-Z_]{3,20}\]"
)


def installed(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec else None


def shipped() -> Iterator[tuple[str, str]]:
    """Those of TRL, and the texts that Unsloth's source assigns to a name; nothing is run."""
    if trl := installed("trl"):
        for path in sorted((trl / "chat_templates").glob("*.jinja")):
            yield f"trl/{path.stem}", path.read_text(encoding="utf-8")
    if not (unsloth := installed("unsloth")):
        return
    texts: dict[str, str] = {}
    for node in ast.parse((unsloth / "chat_templates.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            code = compile(ast.Expression(node.value), "", "eval")
            try:  # strings, and sums of strings that were named before
                value = eval(code, {"__builtins__": {}}, texts)
            except Exception:
                continue
            if isinstance(value, str):
                texts[node.targets[0].id] = value
    yield from ((f"unsloth/{name}", text) for name, text in texts.items() if "{%" in text)


def with_marks(name: str, source: str, tokenizer: Tokenizer) -> Template:
    """The template with a copy of the tokenizer that has the template's marks as special tokens."""
    return Template(
        name, _marked(tokenizer, *sorted({*MARK.findall(source), "<s>", "</s>"})), source, SPECIAL
    )


@cache
def _marked(tokenizer: Tokenizer, *marks: str) -> Tokenizer:
    own = Tokenizer.from_str(tokenizer.to_str())
    own.add_special_tokens([AddedToken(mark, normalized=False, special=True) for mark in marks])
    return own
