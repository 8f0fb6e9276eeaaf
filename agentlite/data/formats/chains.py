"""Calls and results that an answer holds as text, whatever its container -> turns of their own."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Gold, Message, Record, Tool
from agentlite.data.formats.inline_text import result_of, value_of
from agentlite.rendering.result_marks import check_input

RESULT = re.compile(
    r"\s*<tool_(?P<tag>response|result)>((?:(?!<tool_re).)*?)</tool_(?P=tag)>\s*", re.DOTALL
)


class PromptParts(NamedTuple):
    """A prompt taken apart: its tools, and the author's own words.

    `listed`: the tools whose parameters are a list of names and no JSON Schema, which such data
    sets often leave incomplete; `more`: what else it says of them, for `meta`; `chain`: the steps
    that the answer continues, where the prompt ends with them.
    """

    tools: Sequence[Tool]
    text: str
    listed: frozenset[str] = frozenset()
    more: Mapping[str, object] = {}
    chain: str = ""


class Syntax(NamedTuple):
    """How a protocol writes a chain of calls and results as text.

    `is_prompt`: whether a text lists tools in it. `is_chain`: whether an answer is written in it; a
    protocol whose labels are plain words takes a lone call for one only where the record has
    `tools` or results. `messages`: the turns of an answer, where these tools are on offer; it adds
    the calls to those made before, by id, with all other fields of them. `result`: the result that
    a user's turn is, None if it is a question.
    """

    is_prompt: Callable[[str], object]
    is_chain: Callable[[str, bool], object]
    prompt: Callable[[str], PromptParts]
    messages: Callable[[str, bool, dict[str, dict[str, Any]], Sequence[Tool]], Iterable[Message]]
    result: Callable[[str], str | None] = lambda text: None


def split(record: Record, syntaxes: Iterable[Syntax]) -> Record:
    """The record with every chain as turns of their own."""
    for syntax in syntaxes:
        known = bool(record.tools) or any(message.role == "tool" for message in record.messages)
        if any(
            syntax.is_chain(message.content, known)
            if message.role == "assistant"
            else message.role != "tool" and syntax.is_prompt(message.content)
            for message in record.messages
        ):
            record = take_apart(record, syntax)
    return record


def untagged(record: Record) -> Record:
    """The record with the results that a user's turn or a tool's holds in tags, as the templates of
    Hermes and Qwen write them, as turns of a tool.
    """
    if not any("<tool_re" in message.content for message in record.messages):
        return record
    messages: list[Message] = []
    gold: dict[int, Gold] = {}
    waiting: list[Call] = []
    for turn, message in enumerate(record.messages):
        if turn in record.gold:
            gold[len(messages)] = record.gold[turn]
        results: list[str] = []  # of a text that is nothing but blocks <tool_response>
        if message.content.lstrip().startswith("<tool_re") and not RESULT.sub("", message.content):
            results = [block[2].strip() for block in RESULT.finditer(message.content)]
        if message.role == "user" and waiting and results:
            messages += [result_of(value_of(one), one, "content", waiting) for one in results]
            continue
        if message.role == "assistant":
            waiting = [*message.calls]
        elif message.role == "tool":
            waiting = [call for call in waiting if call.id != message.call_id]
            message = replace(message, content=results[0]) if len(results) == 1 else message
        messages.append(message)
    return replace(record, messages=tuple(messages), gold=gold)


def take_apart(record: Record, syntax: Syntax) -> Record:
    """The record, read as one of this syntax."""
    chain = _Chain(syntax, record)
    for turn, message in enumerate(record.messages):
        chain.add(turn, message)
    for message in chain.messages:
        if message.loss and message not in record.messages:
            for value in (value for call in message.calls for value in call.arguments.values()):
                check_input(value)
    tools, undeclared = _opened(chain.tools, chain.listed, chain.messages)
    calls = {call_id: kept for call_id, kept in chain.calls.items() if kept}
    added = {"calls": calls, **chain.more, "undeclared": undeclared}
    own_id = {key: record.meta[key] for key in ("source_id",) if key in record.meta}
    return replace(
        record,
        messages=tuple(chain.messages),
        tools=tools,
        gold=chain.gold,
        meta=own_id | {key: value for key, value in added.items() if value} | record.meta,
    )


class _Chain:
    """Collects the turns of a record: those of a chain, and its results where they are turns."""

    def __init__(self, syntax: Syntax, record: Record) -> None:
        self.syntax, self.record = syntax, record
        self.messages: list[Message] = []
        self.tools = [*record.tools]
        self.listed: frozenset[str] = frozenset()
        self.more: dict[str, object] = {}
        self.gold: dict[int, Gold] = {}
        # every call so far, by id; those of other turns keep the ids of new ones apart
        self.calls: dict[str, dict[str, Any]] = {}
        self.waiting: list[str] = []

    def add(self, turn: int, message: Message) -> None:
        if message.role == "assistant":
            self._add_answer(turn, message)
        elif message.role == "tool":  # it answers the call before it, which has no id of its own
            call_id = self.waiting.pop(0) if self.waiting else message.call_id
            self.messages.append(replace(message, call_id=call_id))
        elif message.role == "system" or self.syntax.is_prompt(message.content):
            prompt = self.syntax.prompt(message.content)
            declared = {tool.name for tool in self.record.tools}
            self.tools += [tool for tool in prompt.tools if tool.name not in declared]
            self.listed |= prompt.listed
            self.more |= prompt.more
            if prompt.text or message.role == "user":
                self.messages.append(replace(message, content=prompt.text))
            if prompt.chain:
                self.messages += self._parts(prompt.chain, loss=False)
        elif self.waiting and (result := self.syntax.result(message.content)) is not None:
            self.messages.append(Message("tool", result, call_id=self.waiting.pop(0)))
        else:
            self.messages.append(message)

    def _add_answer(self, turn: int, message: Message) -> None:
        if message.calls:
            parts = [message]
            self.calls |= {call.id: {} for call in message.calls}
        else:
            try:
                parts = self._parts(message.content, message.loss)
            except RowError:
                if message.loss:
                    raise
                parts = [message]  # it stays in the prompt, as it is
        self.messages += parts
        answered = {part.call_id for part in parts}
        self.waiting = (
            []
            if message.calls
            else [call.id for part in parts for call in part.calls if call.id not in answered]
        )
        if turn in self.record.gold:
            if len(parts) > 1:
                raise RowError("E214", f"gold for message {turn}, which holds several steps")
            self.gold[len(self.messages) - 1] = self.record.gold[turn]

    def _parts(self, text: str, loss: bool) -> list[Message]:
        return list(self.syntax.messages(text, loss, self.calls, self.tools))


def _opened(
    tools: Sequence[Tool], listed: frozenset[str], messages: Iterable[Message]
) -> tuple[tuple[Tool, ...], dict[str, list[str]]]:
    """The tools, where a call shows that a list of parameters is not whole with
    `additionalProperties`; and the parameters that the lists lack, by tool.
    """
    lacking: dict[str, list[str]] = {}
    properties = {tool.name: tool.parameters.get("properties", {}) for tool in tools}
    for call in (call for message in messages for call in message.calls if call.name in listed):
        new = [name for name in call.arguments if name not in properties.get(call.name, {})]
        if new:
            lacking[call.name] = [*dict.fromkeys([*lacking.get(call.name, []), *new])]
    opened = (
        replace(tool, parameters={**tool.parameters, "additionalProperties": True})
        if tool.name in lacking
        else tool
        for tool in tools
    )
    return tuple(opened), lacking
