"""KAgentBench's completions are cut where expressions with the same marks would cut them."""

import re
from itertools import product

import pytest

from agentlite.rendering.protocols import modelscope
from agentlite.scoring.metrics.kagentbench_parser import NONE, READERS

FUNCS = [{"name": "x", "parameters": {"properties": {"city": {}}}}]
END = r"\Z"


def between(text: str, start: str, *ends: str) -> str | None:
    found = re.search(f"{start}(.+?)(?:{'|'.join(ends)})", text, re.DOTALL)
    return found[1].strip() if found else None


@pytest.mark.parametrize("length", range(6))
def test_react_is_cut_at_the_first_marks_behind_at_least_one_character(length: int) -> None:
    pieces = ("Action:", "Action Input:", "Observation", "Final Answer", "x", "\n")
    for text in map("".join, product(pieces, repeat=length)):
        read = READERS["ReACT"](text, FUNCS)
        tool = between(text, "Action:", "Action Input:")
        value = between(text, "Action Input:", "Observation", END)
        assert (read.thought, read.tool, read.arguments) == (
            between(text, "", "Final Answer", "Action", END) or "",
            tool or NONE,
            {"city": value} if tool == "x" and value is not None else {},
        ), text


@pytest.mark.parametrize("length", range(6))
def test_toolllama_is_cut_at_the_first_marks_behind_at_least_one_character(length: int) -> None:
    pieces = ("Thought:", "Action:", "Action Input:", '{"a": 1}', "x")
    for text in map("".join, product(pieces, repeat=length)):
        read = READERS["ToolLlama"](text, FUNCS)
        thought = between(text, "Thought:", "Action", END)
        tool = between(text, "Action:", "Action Input:", END)
        written = between(text, "Action Input:", "Thought", END) if tool is not None else None
        assert (read.thought, read.tool, read.arguments) == (
            [] if thought is None else thought,
            tool or NONE,
            {"a": 1} if written == '{"a": 1}' else {},
        ), text


@pytest.mark.parametrize("length", range(5))
def test_modelscope_is_what_stands_between_the_first_marks(length: int) -> None:
    pieces = (modelscope.OPEN, modelscope.CLOSE, '{"api_name": "f"}', '{"api_name": "g"}', "x")
    for text in map("".join, product(pieces, repeat=length)):
        written = between(text, re.escape(modelscope.OPEN), re.escape(modelscope.CLOSE))
        names = {f'{{"api_name": "{name}"}}': name for name in "fg"}
        assert READERS["ModelScope"](text, FUNCS).tool == names.get(written or "", NONE), text
