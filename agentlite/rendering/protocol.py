"""A protocol: system text, assistant text, results and stop strings, and the reader of calls."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Parsed, Record, Tool

DEEPEST = 64
MOST_CALLS = 128  # of one answer: a model that repeats itself makes thousands
# A record has the thought of a turn in these tags, before its words, whatever the data, a server or
# a template writes.
THINK, THINK_END = "<think>", "</think>"
THINK_TAG = re.compile(f"{THINK}|{THINK_END}")
THOUGHT = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


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
    unless the record has one of that name. `prompt_opens_thought`: the model's template ends a
    prompt with `<think>`, so that a completion begins inside a thought. `thought_marks`: what the
    template writes before a thought and behind it, if not `<think>`. `answer_head`: what the
    template has the model write before its words. `template_prefix`: lines before the source of a
    chat template, by which it writes this protocol. `parallel_calls`: a turn may hold several.
    `template_json`: the prompt template that it is, by which a setting names it; "" for one that is
    built in.
    """

    name: str
    parse: Callable[[str, Sequence[Tool]], Parsed]
    system: Callable[[Sequence[Tool]], str] = lambda tools: ""
    assistant: Callable[[Message], str] = lambda message: message.content
    results: Callable[[Sequence[Message]], str] = lambda messages: "\n".join(
        m.content for m in messages
    )
    result_role: str = "tool"
    template_prefix: str = ""
    stops: tuple[str, ...] = ()
    parallel_calls: bool = True
    inline: bool = False
    native: bool = False
    exchanges: Callable[[Record, int], Sequence[PromptExchange]] | None = None
    answer_tool: str = ""
    answer: Callable[[str], str] = lambda text: text
    prompt_opens_thought: bool = False
    thought_marks: tuple[str, str] = ("", "")
    answer_head: str = ""
    template_json: str = ""

    def write(self, message: Message, tools: Sequence[Tool]) -> str:
        """What the assistant writes at a turn: its thought, then its words or calls."""
        if not tools:
            return message.content
        thought, words = thought_and_words(message.content)
        thought = with_thought(thought, "") or message.content.removesuffix(words)
        if not message.calls and self._answers_by_call(tools):
            return thought + self.answer(words)
        return thought + self.assistant(msgspec.structs.replace(message, content=words))

    def read(self, text: str, tools: Sequence[Tool]) -> Parsed:
        """The calls of a completion; the protocol's way to answer does not count as a call. Without
        tools there is nothing but words. Nothing is called in the thoughts that it begins with:
        they stay words. Calls beyond MOST_CALLS are left out, and are a problem.
        """
        thought, words = thought_and_words(self.tag_thought(text))
        if self.native:  # its stop is the end of a turn with calls
            words = words.removesuffix("".join(self.stops))
        parsed = self._read(words.lstrip(), tools)
        if len(parsed.calls) > MOST_CALLS:
            problem = parsed.problem or f"more than {MOST_CALLS} calls"
            parsed = msgspec.structs.replace(
                parsed, calls=parsed.calls[:MOST_CALLS], problem=problem
            )
        content = with_thought(thought, parsed.content).rstrip()
        return msgspec.structs.replace(parsed, content=content)

    def tag_thought(self, text: str) -> str:
        """A completion with its thought in tags, without the head of its words. The first `<think>`
        may be the end of its prompt.

        "<|channel|>analysis<|message|>Wet?<|end|><|start|>assistant<|channel|>final<|message|>Yes."
        of gpt-oss becomes "<think>Wet?</think>Yes."
        """
        opening, closing = self.thought_marks
        if opening and text.lstrip().startswith(opening):
            text = text.replace(opening, THINK, 1).replace(closing, THINK_END, 1)
        thought, end, words = text.removeprefix(self.answer_head).partition(THINK_END)
        if not end:
            return thought
        opening = "" if THINK in thought else THINK
        return opening + thought + end + words.removeprefix(self.answer_head)

    def split_thought(self, text: str, prompt_opens_thought: bool) -> tuple[str, str]:
        """The thought and the words of a completion that may still go on; neither as long as it may
        be either.
        """
        marks = (THINK, self.thought_marks[0])
        if not prompt_opens_thought and any(mark.startswith(text.strip()) for mark in marks):
            return "", ""
        is_open = prompt_opens_thought and THINK_END not in text
        thought, words = thought_and_words(self.tag_thought(THINK + text if is_open else text))
        if is_unclosed(words):
            return words.lstrip().removeprefix(THINK).strip(), ""
        return thought, words

    def _read(self, text: str, tools: Sequence[Tool]) -> Parsed:
        if not tools:
            return Parsed(text.strip())
        parsed = self.parse(text, tools)
        if not (parsed.calls and self._answers_by_call(tools)):
            return parsed
        *calls, last_call = parsed.calls
        if last_call.name != self.answer_tool:
            return parsed
        words = str(last_call.arguments.get("final_answer", "")) or parsed.content
        return msgspec.structs.replace(parsed, content=words, calls=tuple(calls))

    def _answers_by_call(self, tools: Sequence[Tool]) -> bool:
        return bool(self.answer_tool) and all(tool.name != self.answer_tool for tool in tools)


def with_tool(tools: Sequence[Tool], end_tool: Tool) -> list[Tool]:
    """The tools and, unless they have one of that name, the protocol's own, which ends a task."""
    return [*tools, *([] if any(tool.name == end_tool.name for tool in tools) else [end_tool])]


def with_thought(thought: str, words: str) -> str:
    """The content of a turn. Raises RowError E215 for a thought that would end within itself."""
    thought = thought.strip().removeprefix(THINK).removesuffix(THINK_END).strip()
    if THINK_END in thought:
        raise RowError("E215", f"a thought holds {THINK_END}, which ends it", at=THINK_END)
    return f"{THINK}\n{thought}\n{THINK_END}\n\n{words}" if thought else words


def thought_and_words(content: str) -> tuple[str, str]:
    """The content of a turn taken apart; more than one thought at its beginning are one."""
    thoughts, end = list[str](), 0
    while match := THOUGHT.match(content, end):
        thoughts.append(match[1].strip())
        end = match.end()
    return "\n\n".join(filter(None, thoughts)), content[end:]


def is_unclosed(words: str) -> bool:
    """Whether what is left behind the thoughts is one without an end."""
    return words.lstrip().startswith(THINK)


def join_texts(contents: Iterable[str]) -> str:
    """Contents as that of one turn, what is thought in any of them first, equal thoughts once."""
    thoughts, texts = zip(*map(thought_and_words, contents), strict=True)
    thought, words = ("\n\n".join(filter(None, t)) for t in (dict.fromkeys(thoughts), texts))
    return with_thought(thought, words)


def without_thoughts(record: Record) -> Record:
    messages = (
        msgspec.structs.replace(message, content=thought_and_words(message.content)[1])
        if message.role == "assistant"
        else message
        for message in record.messages
    )
    return msgspec.structs.replace(record, messages=tuple(messages))


def to_call(name: Any, arguments: Any) -> tuple[Call | None, str]:
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
