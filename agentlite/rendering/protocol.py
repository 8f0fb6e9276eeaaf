"""A protocol: system text, assistant text, results and stop strings, and the reader of calls."""

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from agentlite.core.records import Call, Message, Parsed, Record, Tool

DEEPEST = 64
MOST_CALLS = 128  # of one answer: a model that repeats itself makes thousands
THINK, THINK_END = "<think>", "</think>"
THINK_TAG = re.compile(f"{THINK}|{THINK_END}")


class PromptExchange(NamedTuple):
    """One prompt and its answer; one that is not `prompted` is learned, but never sampled."""

    prompt: str
    answer: str
    prompted: bool = True


@dataclass(frozen=True)
class Protocol:
    """`inline`: results stand inside the assistant's turn, after its `stops`; else they are a turn
    of `result_role`.

    `native`: the chat template itself prints tools, calls and results; `system` and `assistant` are
    then not used. `exchanges`: every turn of a record with tools has prompts of its own, which tell
    what was done before. `answer_tool`: the protocol writes an answer as a call of this tool,
    unless the record has one of that name. `parse_plain`: reads a call whose input is plain text,
    which the tools make clear, where `parse` has a problem with it; None for any other text.
    `prompt_opens_thought`: the model's template ends a prompt with `<think>`, so that a completion
    begins inside a thought. `answer_head`: what the template has the model write before its words.
    `written`: the prompt template that it is, as JSON, by which a setting names it; "" for one that
    is built in.
    """

    name: str
    parse: Callable[[str], Parsed]
    system: Callable[[Sequence[Tool]], str] = lambda tools: ""
    assistant: Callable[[Message], str] = lambda message: message.content
    results: Callable[[Sequence[Message]], str] = lambda messages: "\n".join(
        m.content for m in messages
    )
    result_role: str = "tool"
    stops: tuple[str, ...] = ()
    several: bool = True
    inline: bool = False
    native: bool = False
    readers: tuple[Callable[[str], Parsed], ...] = ()
    exchanges: Callable[[Record, int], Sequence[PromptExchange]] | None = None
    answer_tool: str = ""
    answer: Callable[[str], str] = lambda text: text
    parse_plain: Callable[[str, Sequence[Tool]], Parsed | None] | None = None
    prompt_opens_thought: bool = False
    answer_head: str = ""
    written: str = ""

    def write(self, message: Message, tools: Sequence[Tool]) -> str:
        """What the assistant writes at a turn: words, where there are no tools."""
        if not tools:
            return message.content
        is_answer = not message.calls and self._answers_by_call(tools)
        return self.answer(message.content) if is_answer else self.assistant(message)

    def read(self, text: str, tools: Sequence[Tool]) -> Parsed:
        """The calls of a completion; the protocol's way to answer does not count as a call. Without
        tools there is nothing but words. Nothing is called in the thoughts that it begins with:
        they stay words. Calls beyond MOST_CALLS are left out, and are a problem.
        """
        text = text.removeprefix(self.answer_head)
        rest = behind_thoughts(text)
        parsed = self._read(text if rest is None else rest.lstrip(), tools)
        if len(parsed.calls) > MOST_CALLS:
            problem = parsed.problem or f"more than {MOST_CALLS} calls"
            parsed = msgspec.structs.replace(
                parsed, calls=parsed.calls[:MOST_CALLS], problem=problem
            )
        thoughts = "" if rest is None else text[: len(text) - len(rest)].strip()
        if not THINK_TAG.sub("", thoughts).strip():
            return parsed
        opened = "" if thoughts.startswith(THINK) else f"{THINK}\n"
        return msgspec.structs.replace(
            parsed, content=f"{opened}{thoughts}\n\n{parsed.content}".rstrip()
        )

    def _read(self, text: str, tools: Sequence[Tool]) -> Parsed:
        if not tools:
            return Parsed(text.strip())
        parsed = self.parse(text)
        if parsed.problem and self.parse_plain:
            parsed = self.parse_plain(text, tools) or parsed
        if not (parsed.calls and self._answers_by_call(tools)):
            return parsed
        *before, last = parsed.calls
        if last.name != self.answer_tool:
            return parsed
        words = str(last.arguments.get("final_answer", "")) or parsed.content
        return msgspec.structs.replace(parsed, content=words, calls=tuple(before))

    def _answers_by_call(self, tools: Sequence[Tool]) -> bool:
        return bool(self.answer_tool) and all(tool.name != self.answer_tool for tool in tools)


def behind_thoughts(text: str) -> str | None:
    """A completion without the thoughts that it begins with; None if the last of them has no end.
    The `<think>` of the first may be the end of the prompt.
    """
    thought, end, rest = text.partition(THINK_END)
    if end and THINK not in thought:
        text = rest
    while text.lstrip().startswith(THINK):
        _, end, text = text.partition(THINK_END)
        if not end:
            return None
    return text


def named_call(name: Any, arguments: Any) -> tuple[Call | None, str]:
    """A call as a model's JSON has it, and what is wrong with it. Arguments that are empty, or
    JSON in a text, as OpenAI's servers write them, are as good.
    """
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            parsed, end = json_object(arguments)
            arguments = arguments if arguments[end:].strip() else parsed
    arguments = {} if arguments in (None, "", []) else arguments
    problem = arguments_problem(arguments) if isinstance(name, str) else "call has no name"
    return (None if problem else Call(name, arguments)), problem


def arguments_problem(arguments: object) -> str:
    """Why a value cannot be a call's arguments; "" for a JSON object that is not too deep."""
    if not isinstance(arguments, dict):
        return "arguments are not an object"
    return "" if _is_json(arguments, DEEPEST) else "arguments are not JSON, or nested too deep"


def _is_json(value: object, depth: int) -> bool:
    """A Python literal may also hold sets, bytes, or keys that are not strings."""
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and _is_json([*value.values()], depth)
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_json(inner, depth - 1) for inner in value)
    return value is None or isinstance(value, str | int | float)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        raise ValueError("a key twice")
    return by_key


DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


def json_object(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON object at or after `start`, blanks skipped, and where it ends. Raises ValueError,
    also where an object has a key twice: readers differ in which of the two they take.
    """
    start += len(text[start:]) - len(text[start:].lstrip())
    if not text.startswith("{", start):
        raise ValueError("no JSON object")
    try:
        return DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
