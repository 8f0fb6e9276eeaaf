"""Texts that hold what other formats have as fields -> their parts: tools, calls and results.

A chain of calls and results that an answer holds, whatever its container, becomes turns.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Gold, Message, Record, Tool, text_or_json, to_json
from agentlite.data.formats.format import Row, omit
from agentlite.data.formats.json_decode import json_or_literal, parse_json, quote
from agentlite.data.formats.tool_calls import read_call, read_tools

# quoted text that nothing ends goes on to the end: it is looked at once
TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[][(){},=]""", re.DOTALL
)
LEVEL = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}
OPENING = re.compile(r"[\s,]*+([\[{])")
PYTHON_CALL = re.compile(r"\s*\[?\s*[\w.-]+\(")  # as Python has it
PARAMETER = re.compile(r"[^][(){}='\",]+")
RESULT = re.compile(
    r"\s*<tool_(?P<tag>response|result)>((?:(?!<tool_re).)*?)</tool_(?P=tag)>\s*", re.DOTALL
)


class PromptParts(NamedTuple):
    """A prompt taken apart: its tools, and the author's own words.

    `loose_tools`: those whose parameters are a list of names and no JSON Schema, which such data
    sets often leave incomplete; `meta`: what else it says of the tools; `chain`: the steps that the
    answer continues, where the prompt ends with them.
    """

    tools: Sequence[Tool]
    text: str
    loose_tools: frozenset[str] = frozenset()
    meta: Mapping[str, object] = {}
    chain: str = ""


Calls = dict[str, Row]  # those made so far by id, with what they say beside name and arguments


def number_calls(calls: Iterable[Call], by_id: Calls) -> tuple[Call, ...]:
    """The calls with the ids that come next; `by_id` gets them."""
    numbered = tuple(replace(call, id=f"call_{n}") for n, call in enumerate(calls, len(by_id)))
    by_id |= {call.id: {} for call in numbered}
    return numbered


class Syntax(NamedTuple):
    """How a protocol writes a chain of calls and results as text.

    `is_prompt`: whether a text lists tools in it. `is_chain`: whether an answer is written in it; a
    protocol whose labels are plain words takes a lone call for one only where the record has tools
    or results. `messages`: the turns of an answer, where these tools are on offer; it adds the
    calls to those made before, by id, with all other fields of them. `result`: the result that a
    user's turn is, None if it is a question.
    """

    is_prompt: Callable[[str], object]
    prompt: Callable[[str], PromptParts]
    messages: Callable[[str, bool, Calls, Sequence[Tool]], Iterable[Message]]
    is_chain: Callable[[str, bool], object] = lambda text, has_tools: False
    result: Callable[[str], str | None] = lambda text: None


def split(record: Record, syntaxes: Iterable[Syntax]) -> Record:
    """The record with every chain as turns of their own."""
    for syntax in syntaxes:
        has_tools = bool(record.tools) or any(message.role == "tool" for message in record.messages)
        if any(
            syntax.is_chain(message.content, has_tools)
            if message.role == "assistant"
            else message.role != "tool" and syntax.is_prompt(message.content)
            for message in record.messages
        ):
            record = take_apart(record, syntax)
    return record


def take_apart(record: Record, syntax: Syntax) -> Record:
    """The record, read as one of this syntax: an answer becomes the turns that it holds, and of a
    prompt its tools and the author's words are left. Gold goes to where its message has gone.

    Raises RowError for an answer that is learned and cannot be read, and E214 for gold at one of
    several steps.
    """
    declared = {tool.name for tool in record.tools}
    messages, tools, gold = list[Message](), [*record.tools], dict[int, Gold]()
    loose_tools, prompt_meta = frozenset[str](), dict[str, object]()
    calls: Calls = {}  # those of other turns keep the ids of new ones apart
    open_calls: list[Call] = []
    for turn, message in enumerate(record.messages):
        if message.role == "assistant":
            steps, new_calls = [message], list[Call]()
            if message.calls:
                calls |= {call.id: {} for call in message.calls}
            else:
                try:
                    steps = [*syntax.messages(message.content, message.loss, calls, tools)]
                except RowError:  # without loss it stays in the prompt, as it is
                    if message.loss:
                        raise
                new_calls = [call for step in steps for call in step.calls]
            messages += steps
            answered_ids = {step.call_id for step in steps}
            open_calls = [call for call in new_calls if call.id not in answered_ids]
            if turn in record.gold:
                if len(steps) > 1:
                    raise RowError("E214", f"gold for message {turn}, which holds several steps")
                gold[len(messages) - 1] = record.gold[turn]
        elif message.role == "tool":
            messages += results_of(message, open_calls)
        elif message.role == "system" or syntax.is_prompt(message.content):
            prompt = syntax.prompt(message.content)
            tools += [tool for tool in prompt.tools if tool.name not in declared]
            loose_tools |= prompt.loose_tools
            prompt_meta |= prompt.meta
            if prompt.text or message.role == "user":
                messages.append(replace(message, content=prompt.text))
            if prompt.chain:
                messages += syntax.messages(prompt.chain, False, calls, tools)
        elif open_calls and (result := syntax.result(message.content)) is not None:
            messages.append(Message("tool", result, call_id=open_calls.pop(0).id))
        else:
            messages.append(message)
    undeclared = _undeclared_parameters([t for t in tools if t.name in loose_tools], messages)
    tools = [  # a call shows that the list of parameters is not whole
        replace(tool, parameters={**tool.parameters, "additionalProperties": True})
        if tool.name in undeclared
        else tool
        for tool in tools
    ]
    call_fields = {call_id: fields for call_id, fields in calls.items() if fields}
    meta_fields = {"calls": call_fields, **prompt_meta, "undeclared": undeclared}
    # what `meta` says already, of a syntax before this one, stays as it is
    source_id = {key: record.meta[key] for key in ("source_id",) if key in record.meta}
    meta = source_id | {key: value for key, value in meta_fields.items() if value} | record.meta
    return replace(record, messages=tuple(messages), tools=tuple(tools), gold=gold, meta=meta)


def _undeclared_parameters(
    tools: Sequence[Tool], messages: Iterable[Message]
) -> dict[str, list[str]]:
    """The parameters that calls have and the lists lack, by tool."""
    undeclared: dict[str, list[str]] = {}
    properties = {tool.name: tool.parameters.get("properties", {}) for tool in tools}
    for call in (call for message in messages for call in message.calls if call.name in properties):
        declared = (*properties[call.name], *undeclared.get(call.name, ()))
        if names := [name for name in call.arguments if name not in declared]:
            undeclared.setdefault(call.name, []).extend(names)
    return undeclared


def untag_results(record: Record) -> Record:
    """The record with the results in tags, as Hermes and Qwen write them, as turns of a tool."""
    if not any("<tool_re" in message.content for message in record.messages):
        return record
    messages: list[Message] = []
    gold: dict[int, Gold] = {}
    open_calls: list[Call] = []
    for turn, message in enumerate(record.messages):
        if turn in record.gold:
            gold[len(messages)] = record.gold[turn]
        results: list[str] = []  # of a text that is nothing but blocks <tool_response>
        if message.content.lstrip().startswith("<tool_re") and not RESULT.sub("", message.content):
            results = [block[2].strip() for block in RESULT.finditer(message.content)]
        if message.role == "user" and open_calls and results:
            messages += [result_of(parse_json(t), t, "content", open_calls) for t in results]
            continue
        if message.role == "assistant":
            open_calls = [*message.calls]
        elif message.role == "tool":
            open_calls = [call for call in open_calls if call.id != message.call_id]
            message = replace(message, content=results[0]) if len(results) == 1 else message
        messages.append(message)
    return replace(record, messages=tuple(messages), gold=gold)


# --- parts of a text ---


def bracket_end(text: str, start: int, code: str) -> int:
    """Where the bracket that opens at `start` is closed; those in quotes do not count."""
    depth = 0
    for token in TOKEN.finditer(text, start):
        depth += LEVEL.get(token[0], 0)
        if depth == 0:
            return token.end()
    raise RowError(code, f"a bracket that is not closed: {quote(text[start:])}")


def split_at(separator: str, text: str) -> list[str]:
    """The text cut at each separator that stands in no bracket and in no quotes."""
    # x='a, b', y=[1, 2] -> two pieces: commas in quotes and brackets do not cut. A piece begins
    # one behind its cut, so the first cut stands before the text.
    depth, cuts = 0, [-1]
    for token in TOKEN.finditer(text):
        depth += LEVEL.get(token[0], 0)
        if token[0] == separator and depth == 0:
            cuts.append(token.start())
    return [text[start + 1 : end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def with_text_behind(
    labels: Sequence[re.Match[str]], text: str
) -> Iterator[tuple[re.Match[str], str]]:
    """Each label of a text, with what stands between it and the next."""
    ends = [label.start() for label in labels[1:]] + [len(text)]
    for label, end in zip(labels, ends, strict=False):
        yield label, text[label.end() : end]


def objects_at(text: str, start: int, code: str) -> tuple[list[str], int]:
    """A list, or objects one after another, that begin at `start`; and where they end."""
    texts: list[str] = []
    while opening := OPENING.match(text, start):
        start = bracket_end(text, opening.start(1), code)
        texts.append(text[opening.start(1) : start])
        if opening[1] == "[":
            break
    return texts, start


def tools_at(text: str, start: int) -> tuple[tuple[Tool, ...], int]:
    """The tools of a list, or of objects one after another; and where they end."""
    texts, end = objects_at(text, start, "E124")
    is_list = bool(texts) and texts[0].startswith("[")
    return read_tools(texts[0] if is_list else texts, json_or_literal), end


def calls_in(text: str) -> list[Call]:
    """The call that a text is, or those of a list or of objects in a row, as JSON or as Python."""
    value: object = text
    try:
        value = [*parse_calls(text)] if PYTHON_CALL.match(text) else json_or_literal(text)
    except RowError:
        # {"name": "f", ...}, {"name": "g", ...}: each alone is JSON, and the whole is not
        texts, end = objects_at(text, 0, "E206")
        value = texts if len(texts) > 1 and not text[end:].strip() else text
    calls = value if isinstance(value, list) and value else [value]
    return [read_call(call, json_or_literal) for call in calls]


def parse_calls(text: str) -> Iterator[Row]:
    """The calls of `[f(x=1), g()]`. Names may hold blanks and slashes, so this is not Python."""
    for call in map(str.rstrip, split_at(",", text.strip().removeprefix("[").removesuffix("]"))):
        name, bracket, _ = call.partition("(")
        if not bracket or not name.strip() or bracket_end(call, len(name), "E206") != len(call):
            raise RowError("E206", f"no call: {quote(call)}")
        arguments_text = call[len(name) + 1 : -1]
        arguments: dict[str, Any] = {}
        for argument in split_at(",", arguments_text) if arguments_text.strip() else []:
            key, _, value = argument.partition("=")
            if not PARAMETER.fullmatch(key) or key.strip() in arguments:
                raise RowError("E206", f"no argument, or one given twice: {quote(argument)}")
            arguments[key.strip()] = json_or_literal(value.strip())
        yield {"name": name.strip(), "arguments": arguments}


def sentences_pattern(*patterns: str) -> re.Pattern[str]:
    """What finds any run of these sentences, which only frame the tools, in any order."""
    return re.compile(rf"(?:(?:{'|'.join(patterns)})\s*)+", re.IGNORECASE | re.DOTALL)


def results_of(message: Message, open_calls: list[Call]) -> list[Message]:
    """A list of {"name", "results"}, one a call; any other text is the one result there is."""
    if not open_calls:  # the calls are turns of their own, with ids
        return [message]
    value = parse_json(message.content)
    results = value if isinstance(value, list) else []
    if results and all(isinstance(result, dict) and "results" in result for result in results):
        # ToolACE: [{"name": "f", "arguments": {...}, "results": {...}}], the arguments as called
        rows = ({key: result[key] for key in result if key != "arguments"} for result in results)
        return [result_of(row, to_json(row), "results", open_calls) for row in rows]
    return [result_of(value, message.content, "results", open_calls)]


def result_of(value: Any, text: str, key: str, open_calls: list[Call]) -> Message:
    """A result {"name", key} as a tool turn: it answers the first open call of its name, else
    the first of all, which is open no longer.

    What is not written so, or names no open call, stays whole as `text`.
    """
    is_named = isinstance(value, dict) and omit(value).keys() == {"name", key}
    call = next((call for call in open_calls if is_named and call.name == value["name"]), None)
    content = value[key] if call else text
    call = call or (open_calls[0] if open_calls else Call(""))
    open_calls[:] = [c for c in open_calls if c is not call]
    return Message("tool", text_or_json(content), call_id=call.id)
