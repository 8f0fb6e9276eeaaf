"""OpenAI's rows, {"messages", "tools"}, and TRL's of a prompt and its completion -> Record."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError, suggest
from agentlite.core.plain_words import kind_of
from agentlite.core.records import Call, Gold, Message, Record, Role, Task, Tool, to_json
from agentlite.data.formats.chains import parse_calls
from agentlite.data.formats.format import Format, Row, extra_by_turn, meta_of, refuse_unread, rest
from agentlite.data.formats.json_decode import json_value, quote
from agentlite.data.formats.tool_calls import call_of, read_call, read_tools, text_value
from agentlite.rendering.protocol import join_texts, thought_and_words, with_thought

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "environment": "tool",  # of Dolci
    **{"System": "system", "User": "user", "Chatbot": "assistant"},  # of Cohere
}
# what a thinking model thought before it spoke, as servers and data sets name it; some write two
NAMES, ENDS = ("reasoning", "thinking", "thought", "thoughts"), ("_content", "_text", "")
THOUGHTS = (*(name + end for name in NAMES for end in ENDS), "tool_plan", "chain_of_thought")
# the same in parts, where none of those is there
THOUGHT_PARTS = ("reasoning_details", "thinking_blocks")
PART_TYPES = ("thinking", "reasoning")  # of a content
# what takes a turn out of training: with ms-swift, OpenAI, Axolotl
LOSS = ("loss", "weight", "train")
PARTS_LEARNED = ("train_detail",)  # with Axolotl
BEGUN = ("partial", "prefix")  # of an answer to go on with: with Kimi; DeepSeek and Mistral
CALLS = ("tool_calls", "function_call", "function_calls")
SENT_TO = ("recipient", "to", "tool_name")  # keys that name the tool a message is sent to
CHANNELS = ("analysis", "commentary", "final")  # of gpt-oss
WORDS = frozenset(("role", "content", "tool_call_id", "name", "tool_name", *LOSS))
KNOWN = WORDS | {*CALLS, *THOUGHTS}
TASKS = get_args(Task)


def fits(row: Row) -> bool:
    messages = row.get("messages")
    return isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages)


def read(row: Row) -> Record:
    tools = tools_of(row)
    messages = read_messages(row["messages"], tools)
    # turn -> Gold, from its text or its plain dicts
    given = text_value(row.get("gold"), json_value, "E121", "gold is") or {}
    gold = msgspec.convert(given, dict[int, Gold], strict=False)
    extra = extra_by_turn(row["messages"], KNOWN)
    return Record(
        messages=tuple(messages) if gold else merge_turns(messages),  # gold counts them as they are
        tools=tools,
        gold=gold,
        task=row["task"] if row.get("task") in TASKS else "general",
        meta=meta_of(row, "messages", "tools", "functions", "gold", "task", turns=extra),
    )


def tools_of(row: Row) -> tuple[Tool, ...]:
    """The tools of a row, under either key."""
    tools, functions = (read_tools(row.get(key) or None) for key in ("tools", "functions"))
    if tools and functions and tools != functions:
        raise RowError("E211", "functions offer other tools than tools do", at="functions")
    return tools or functions


def merge_turns(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Two turns of the assistant become one: a thought and words, or either of them and calls."""
    turns: list[Message] = []
    for message in messages:
        before = turns[-1] if turns else message
        goes_on = bool(message.calls) or (message.role == "assistant" and only_thinks(before))
        only_says = before.role == "assistant" and not before.calls
        if only_says and goes_on and turns and before.loss == message.loss:
            message = replace(message, content=join_texts((turns.pop().content, message.content)))
        turns.append(message)
    return tuple(turns)


def only_thinks(message: Message) -> bool:
    thought, words = thought_and_words(message.content)
    return bool(thought) and not words.strip() and not message.calls


def read_messages(given: list[Any], tools: Iterable[Tool]) -> list[Message]:
    """The messages in their order, so that each result finds the call it answers."""
    offered = {tool.name: tool for tool in tools}
    new_ids = _new_ids(given)  # looked for when the first of them is needed
    messages: list[Message] = []
    waiting: list[Call] = []  # of the last turn: those that no result answers yet
    are_in_order = False  # whether its results are as many as its calls, and none has an id
    for number, message in enumerate(given, 1):
        place, role = f"message {number}", ROLES.get(str(message.get("role")))
        if role is None:
            raise unknown_role(message.get("role"), ROLES, place)
        if role == "assistant" and not _calls(message):
            message = _convert_recipient(message, offered)
        content, thoughts = message.get("content"), list[str]()
        if message.get("channel") == "analysis" and not message.get("recipient"):
            content = with_thought(content or "", "")  # with gpt-oss, a message of its own
        if role == "assistant":
            content, thoughts = apart(content)
        content, loss = _text(content, role, place), has_loss(message)
        calls: tuple[Call, ...] = ()
        if role == "assistant":
            if thought := thought_of(message, thoughts):
                content = join_texts((with_thought(thought, ""), content))
            try:
                calls = tuple(call_of(call, offered) for call in _calls(message))
            except RowError as error:
                raise RowError(
                    error.code, f"{error.reason} ({place})", error.hint, error.at
                ) from error
            if not all(call.id for call in calls):
                calls = tuple(replace(call, id=call.id or next(new_ids)) for call in calls)
            waiting = [*calls]
            if len(calls) > 1:
                behind = takewhile(_is_result, given[number:])
                ids = [result.get("tool_call_id") for result in behind]
                are_in_order = len(ids) == len(calls) and not any(ids)
            refuse_unread(message, KNOWN.union(THOUGHT_PARTS), place, has_calls=bool(calls))
        else:
            refuse_unread(message, WORDS, place)
        call_id = _pop_call_id(message, waiting, are_in_order) if role == "tool" else ""
        messages.append(Message(role, content, calls, call_id, loss))
    return messages


def _is_result(message: Any) -> bool:
    return isinstance(message, dict) and ROLES.get(str(message.get("role"))) == "tool"


def _new_ids(messages: Sequence[Any]) -> Iterator[str]:
    """Ids for calls without one, which no other call of the row has."""
    given = [call.get("id") for message in messages for call in _calls(message)]
    yield from (name for n in count() if (name := f"call_{n}") not in given)


def _pop_call_id(message: Row, waiting: list[Call], are_in_order: bool) -> str:
    """The id of the call a result answers: its own, or that of the only one it can be, or ""."""
    given = message.get("tool_call_id")
    if given or given == 0:
        answered = given if isinstance(given, str) else to_json(given)
    else:
        name = message.get("name") or message.get("tool_name")  # the latter is Ollama's
        name = name.removeprefix("functions.") if isinstance(name, str) else name
        # several fit where there is no name, or two calls of a tool: then only the order tells
        fitting = [call.id for call in waiting if not name or call.name == name]
        answered = fitting[0] if fitting and (len(fitting) == 1 or are_in_order) else ""
    waiting[:] = [call for call in waiting if call.id != answered]
    return answered


def _calls(message: Row) -> list[Row]:
    calls, single = message.get("tool_calls") or [], message.get("function_call")
    calls = [json_value(call) if isinstance(call, str) else call for call in calls]
    if isinstance(written := message.get("function_calls"), str):  # one a line, with Dolci
        # "f(x=1)\ng()", whose first line is made to end in a comma
        calls = calls or [*parse_calls(written.replace(")\n", "),"))]
    if not single:
        return calls
    if calls and [replace(read_call(call), id="") for call in calls] != [read_call(single)]:
        raise RowError("E206", "function_call is another call than tool_calls")
    return calls or [single]


def _convert_recipient(message: Row, offered: Container[str]) -> Row:
    """The message; one that is sent to a tool, as gpt-oss has it, as a call."""
    # gpt-oss: {"role": "assistant", "recipient": "functions.f", "content": "{...}"}
    for key in SENT_TO:
        value = message.get(key)
        name = value.removeprefix("functions.") if isinstance(value, str) else ""
        if name in offered or name != (value or ""):
            call = {"name": name, "arguments": message.get("content")}
            return {**message, "content": None, "tool_calls": [call]}
    return message


def has_loss(message: Mapping[str, object]) -> bool:
    """Whether a turn is learned: not if its loss, weight or train is 0, or if it is only begun."""
    if any(message.get(key) is True for key in BEGUN):
        return False
    given = {key: message[key] for key in (*LOSS, *PARTS_LEARNED) if message.get(key) is not None}
    for key, value in given.items():
        if key in PARTS_LEARNED or not isinstance(value, int | float) or value not in (0, 1):
            reason = f"{key} of a turn is {quote(value)}, not true, false, 1 or 0"
            raise RowError("E201", reason, "A turn is learned as a whole, or not at all.", key)
    return all(given.values())


def thought_of(message: Row, in_content: Iterable[str] = ()) -> str:
    """What a turn thinks, by its keys; equal texts once. `in_content`: what its parts hold."""
    texts = [text for key in THOUGHTS for text in _thoughts(message.get(key))]
    if not texts:
        texts = [text for key in THOUGHT_PARTS for text in _thoughts(message.get(key))]
    return "\n\n".join(dict.fromkeys(text.strip() for text in (*texts, *in_content)))


def _thoughts(value: object) -> list[str]:
    """The texts of a thought: none where it is encrypted, or a number about it."""
    if isinstance(value, list):
        return [text for part in value for text in _thoughts(part)]
    if isinstance(value, dict):
        # {"type": "reasoning", "summary": [{"text": "I look."}]} -> "I look."
        held = (value[key] for key in ("text", *PART_TYPES, "summary") if value.get(key))
        return _thoughts(next(held, None))
    return [value] if isinstance(value, str) and value.strip() else []


def apart(content: Any) -> tuple[Any, list[str]]:
    """A content without the parts that are thoughts, and the texts of these."""
    if not is_parts(content):
        return content, []
    said = [part for part in content if part["type"] not in PART_TYPES]
    return said, _thoughts([part for part in content if part["type"] in PART_TYPES])


def _text(content: Any, role: Role, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if role == "tool" and not is_parts(content):
        return to_json(content)
    if role == "tool" and all(part["type"] == "document" for part in content):  # of Cohere
        return "\n".join(part["document"]["data"] for part in content)
    return text_of_parts(content, ("text",), place)


def text_of_parts(parts: Iterable[Any], types: Sequence[str], place: str) -> str:
    """The text of a content's parts. Raises RowError E216 for a part of another type."""
    parts = list(parts)
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in types:
            what = quote(part.get("type")) if isinstance(part, dict) else kind_of(part)
            raise RowError("E216", f"content of type {what}: only text can be learned ({place})")
    return "".join(part["text"] for part in parts)


def is_parts(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(p, dict) and "type" in p for p in content)


def unknown_role(role: object, known: Iterable[str], place: str) -> RowError:
    """E202 for a turn of somebody who is not known, with the role that is spelt most like it."""
    reason = f"unknown role {quote(role)} ({place}); known: {', '.join(known)}"
    return RowError("E202", reason, suggest(str(role), known, fallback=""), str(role))


def refuse_another(row: Row, read: str, turns: list[Any], other: str) -> None:
    """Raises RowError E201 where the row has words under `other` that are not in `turns`, which are
    read in its place: they would be lost. Some data sets have the first question once more, or the
    dialog.
    """
    given = row.get(other)
    others = given if isinstance(given, list) else [{"content": given}] if given else []
    texts = [turn.get("content") for turn in turns if isinstance(turn, dict)]
    for turn in others:
        is_text = isinstance(turn, dict) and turn.keys() <= {"role", "content"}
        if turn not in turns and not (is_text and turn.get("content") in filter(None, texts)):
            reason = f"a dialog under {read!r}, and another under {other!r}"
            raise RowError("E201", reason, "Keep one of them.", other)


# --- a prompt and its completion: only the completion is learned ---


def are_prompt_and_completion(row: Row) -> bool:
    return row.get("gold") is None and all(
        isinstance(turns, str) or (bool(turns) and fits({"messages": turns}))
        for turns in (row["prompt"], row["completion"])
    )


def read_prompt_completion(row: Row) -> Record:
    """Texts are a question and its answer."""
    if isinstance(row.get("label"), bool):
        reason = "label: a preference, whose completion may be one that is not to be imitated"
        hint = "Keep the good ones: `jq -c 'select(.label) | del(.label)' FILE > rows.jsonl`."
        raise RowError("E201", reason, hint, "label")
    prompt, completion = (
        [{"role": role, "content": row[key]}] if isinstance(row[key], str) else row[key]
        for key, role in (("prompt", "user"), ("completion", "assistant"))
    )
    turns = [*prompt, *completion]
    refuse_another(row, "prompt", turns, "messages")
    record = read({**rest(row, "prompt", "completion"), "messages": turns})
    shown = len(read({"messages": prompt}).messages)
    learned = [
        replace(message, loss=message.loss and (place >= shown or message.role != "assistant"))
        for place, message in enumerate(record.messages)
    ]
    return replace(record, messages=tuple(learned))


FORMAT = Format("openai", read, {"messages": list}, fits)
PROMPT_COMPLETION = Format(
    "prompt_completion",
    read_prompt_completion,
    {"prompt": str | list, "completion": str | list},
    are_prompt_and_completion,
)
