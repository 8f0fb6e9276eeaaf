"""Formats whose contents are lists of parts: no part of any kind, with any value under any key that
the format knows, ends in anything but a record or a rejected row.
"""

import ast
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from agentlite.core.errors import RowError
from agentlite.data.curation.validate import validate
from agentlite.data.formats import anthropic, gemini, langchain, openai, responses, to_record

Row = dict[str, Any]
VALUES = (None, [1])


def by_openai(question: object, answer: object) -> Row:
    turns = (("user", question), ("assistant", answer))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def by_langchain(question: object, answer: object) -> Row:
    turns = (("human", question), ("ai", answer))
    return {"messages": [{"type": kind, "content": content} for kind, content in turns]}


def by_gemini(question: object, answer: object) -> Row:
    turns = (("user", question), ("model", answer))
    listed = [
        (role, [{"text": parts}] if isinstance(parts, str) else parts) for role, parts in turns
    ]
    return {"contents": [{"role": role, "parts": parts} for role, parts in listed]}


def by_responses(question: object, answer: object) -> Row:
    if isinstance(answer, str):
        answer = [{"type": "output_text", "text": answer}]
    output = [{"type": "message", "role": "assistant", "content": answer}]
    return {"input": [{"role": "user", "content": question}], "output": output}


FORMATS: dict[str, tuple[Callable[[object, object], Row], list[Any]]] = {
    "anthropic": (by_openai, [anthropic]),
    "gemini": (by_gemini, [gemini]),
    "langchain": (by_langchain, [langchain, openai]),
    "openai": (by_openai, [openai]),
    "responses": (by_responses, [responses, openai]),
}


def words(module: Any) -> set[str]:
    """Every key and kind that a format's source names."""
    constants = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return {text for text in constants if re.fullmatch("[a-z_A-Z]{2,30}", text)}


@pytest.mark.parametrize("name", FORMATS)
def test_a_part_with_any_value_under_any_key_is_read_or_rejected(name: str) -> None:
    write, modules = FORMATS[name]
    known = sorted(set().union(*map(words, modules)))
    assert "text" in known
    for kind, key, value in product(known, known, VALUES):
        part = {"type": kind, key: value}
        for row in (write([part], "a"), write("q", [part])):
            with suppress(RowError):
                validate(to_record(row, name))
