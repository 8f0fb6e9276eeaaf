"""A tool, a parameter or a value -> the words in which a user speaks of it."""

import re
from typing import Any

from agentlite.core.records import Tool, plain
from agentlite.environments.making.values import WORD

# what stands before the description itself, as BFCL has it
INTRODUCTION = re.compile(r"^.*\bTool description:\s*", re.DOTALL | re.IGNORECASE)
# "a city, e.g. Oslo" is not two sentences
SENTENCE = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)\s+(?=[A-Z])|\n")
SMALL = {
    *("a", "an", "and", "as", "at", "based", "by", "for", "from", "in", "into", "it", "its", "of"),
    *("on", "or", "the", "to", "with", "given", "specific", "specified", "all", "get", "current"),
}


def purpose(tool: Tool) -> str:
    """The first sentence of its description as a command: `find items in stock`. Without one, the
    words of its name.
    """
    sentence = SENTENCE.split(INTRODUCTION.sub("", tool.description).strip())[0].strip(" .")
    if not sentence:
        return " ".join(word.lower() for word in WORD.findall(tool.name)) or tool.name
    first, _, rest = sentence.partition(" ")
    first = _command(first)
    return f"{first if first.isupper() else first[0].lower() + first[1:]} {rest}".strip()


def _command(verb: str) -> str:
    """Finds -> find, carries -> carry, searches -> search."""
    if len(verb) < 4 or not verb.isalpha() or not verb.endswith("s") or verb.endswith("ss"):
        return verb
    if verb.endswith("ies"):
        return f"{verb[:-3]}y"
    return verb[:-2] if re.search(r"(?:ss|sh|ch|x|zz)es$", verb) else verb[:-1]


def resemblance(one: str, other: str) -> float:
    """The share of the words of two purposes that they have in common."""
    mine, theirs = _words(one), _words(other)
    return len(mine & theirs) / min(len(mine), len(theirs)) if mine and theirs else 0.0


def _words(text: str) -> set[str]:
    found = {word.lower() for word in WORD.findall(text)} - SMALL
    return {word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found}


def label(parameter: str) -> str:
    """`file_name` -> file name."""
    return " ".join(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", parameter)) or (
        parameter
    )


def value_text(value: Any) -> str:
    """A value as it stands in a sentence: with quotes only where it would not be seen as one."""
    if isinstance(value, str):
        return f"'{value}'" if " " in value or not value[-1:].isalnum() else value
    if isinstance(value, list) and value and not any(isinstance(one, dict | list) for one in value):
        *first, last = map(value_text, value)
        return f"{', '.join(first)} and {last}" if first else last
    return plain(value)
