"""OpenAI's rows, {"messages", "tools"}, and TRL's of a prompt and its completion -> Record."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError, suggest
from agentlite.core.plain_words import kind_of
from agentlite.core.records import Call, Gold, Message, Record, Role, Task, Tool, text_or_json
from agentlite.data.formats.chains import parse_calls
from agentlite.data.formats.format import Format, Row, extra_by_turn, meta_of, omit, refuse_unread
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
STEMS, ENDS = ("reasoning", "thinking", "thought", "thoughts"), ("_content", "_text", "")
THOUGHT_KEYS = (*(stem + end for stem in STEMS for end in ENDS), "tool_plan", "chain_of_thought")
# the same in parts, where none of those is there
THOUGHT_PART_KEYS = ("reasoning_details", "thinking_blocks")
PART_TYPES = ("thinking", "reasoning")  # of a content
# what takes a turn out of training: with ms-swift, OpenAI, Axolotl
LOSS_KEYS = ("loss", "weight", "train")
PARTIAL_LOSS_KEYS = ("train_detail",)  # with Axolotl
PREFIX_KEYS = ("partial", "prefix")  # of an answer to go on with: with Kimi; DeepSeek and Mistral
TOOL_CALLS_KEYS = ("tool_calls", "function_call", "function_calls")
RECIPIENT_KEYS = ("recipient", "to", "tool_name")  # keys that name the tool a message is sent to
CHANNELS = ("analysis", "commentary", "final")  # of gpt-oss
MESSAGE_KEYS = frozenset(("role", "content", "tool_call_id", "name", "tool_name", *LOSS_KEYS))
ANSWER_KEYS = MESSAGE_KEYS | {*TOOL_CALLS_KEYS, *THOUGHT_KEYS}
TASKS = get_args(Task)


def fits(row: Row) -> bool:
    messages = row.get("messages")
    return isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages)


def read(row: Row) -> Record:
    tools = tools_of(row)
    messages = read_messages(row["messages"], tools)
    # turn -> Gold, from its text or its plain dicts
    raw_gold = text_value(row.get("gold"), json_value, "E121", "gold is") or {}
    gold = msgspec.convert(raw_gold, dict[int, Gold], strict=False)
    extra = extra_by_turn(row["messages"], ANSWER_KEYS)
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
        last_turn = turns[-1] if turns else message
        goes_on = bool(message.calls) or (message.role == "assistant" and is_thought(last_turn))
        is_only_words = last_turn.role == "assistant" and not last_turn.calls
        if is_only_words and goes_on and turns and last_turn.loss == message.loss:
            message = replace(message, content=join_texts((turns.pop().content, message.content)))
        turns.append(message)
    return tuple(turns)


def is_thought(message: Message) -> bool:
    thought, words = thought_and_words(message.content)
    return bool(thought) and not words.strip() and not message.calls


def read_messages(raw_messages: list[Any], tools: Iterable[Tool]) -> list[Message]:
    """The messages in their order, so that each result finds the call it answers."""
    tools_by_name = {tool.name: tool for tool in tools}
    new_ids = _new_ids(raw_messages)  # looked for when the first of them is needed
    messages: list[Message] = []
    open_calls: list[Call] = []  # of the last turn: those that no result answers yet
    are_in_order = False  # whether its results are as many as its calls, and none has an id
    for number, message in enumerate(raw_messages, 1):
        position, role = f"message {number}", ROLES.get(str(message.get("role")))
        if role is None:
            raise unknown_role(message.get("role"), ROLES, position)
        if role == "assistant" and not _calls(message):
            message = _convert_recipient(message, tools_by_name)
        content, thoughts = message.get("content"), list[str]()
        if message.get("channel") == "analysis" and not message.get("recipient"):
            content = with_thought(content or "", "")  # with gpt-oss, a message of its own
        if role == "assistant":
            content, thoughts = split_thoughts(content)
        content, loss = _text(content, role, position), has_loss(message)
        calls: tuple[Call, ...] = ()
        keys = MESSAGE_KEYS
        if role == "assistant":
            if thought := thought_of(message, thoughts):
                content = join_texts((with_thought(thought, ""), content))
            try:
                calls = tuple(call_of(call, tools_by_name) for call in _calls(message))
            except RowError as error:
                raise RowError(
                    error.code, f"{error.reason} ({position})", error.hint, error.at
                ) from error
            calls = tuple(c if c.id else replace(c, id=next(new_ids)) for c in calls)
            open_calls = [*calls]
            if len(calls) > 1:
                results = takewhile(_is_result, raw_messages[number:])
                ids = [result.get("tool_call_id") for result in results]
                are_in_order = len(ids) == len(calls) and not any(ids)
            keys = ANSWER_KEYS.union(THOUGHT_PART_KEYS)
        refuse_unread(message, keys, position, has_calls=bool(calls))
        call_id = _pop_call_id(message, open_calls, are_in_order) if role == "tool" else ""
        messages.append(Message(role, content, calls, call_id, loss))
    return messages


def _is_result(message: Any) -> bool:
    return isinstance(message, dict) and ROLES.get(str(message.get("role"))) == "tool"


def _new_ids(messages: Sequence[Any]) -> Iterator[str]:
    """Ids for calls without one, which no other call of the row has."""
    ids = [c.get("id") for message in messages for c in _calls(message) if isinstance(c, dict)]
    yield from (name for n in count() if (name := f"call_{n}") not in ids)


def _pop_call_id(message: Row, open_calls: list[Call], are_in_order: bool) -> str:
    """The id of the call a result answers: its own, or that of the only one it can be, or ""."""
    stated_id = message.get("tool_call_id")
    if stated_id or stated_id == 0:
        call_id = text_or_json(stated_id)
    else:
        name = message.get("name") or message.get("tool_name")  # the latter is Ollama's
        name = name.removeprefix("functions.") if isinstance(name, str) else name
        # several fit where there is no name, or two calls of a tool: then only the order tells
        ids = [call.id for call in open_calls if not name or call.name == name]
        call_id = ids[0] if ids and (len(ids) == 1 or are_in_order) else ""
    open_calls[:] = [call for call in open_calls if call.id != call_id]
    return call_id


def _calls(message: Row) -> list[Row]:
    calls, single_call = message.get("tool_calls") or [], message.get("function_call")
    calls = [text_value(call, json_value, "E206", "a call is") for call in calls]
    if isinstance(text := message.get("function_calls"), str):  # one a line, with Dolci
        # "f(x=1)\ng()", whose first line is made to end in a comma
        calls = calls or [*parse_calls(text.replace(")\n", "),"))]
    if not single_call:
        return calls
    if calls and [replace(read_call(call), id="") for call in calls] != [read_call(single_call)]:
        raise RowError("E206", "function_call is another call than tool_calls")
    return calls or [single_call]


def _convert_recipient(message: Row, tool_names: Container[str]) -> Row:
    """The message; one that is sent to a tool, as gpt-oss has it, as a call."""
    # gpt-oss: {"role": "assistant", "recipient": "functions.f", "content": "{...}"}
    for key in RECIPIENT_KEYS:
        value = message.get(key)
        name = value.removeprefix("functions.") if isinstance(value, str) else ""
        if name in tool_names or name != (value or ""):
            call = {"name": name, "arguments": message.get("content")}
            return {**message, "content": None, "tool_calls": [call]}
    return message


def has_loss(message: Mapping[str, object]) -> bool:
    """Whether a turn is learned: not if its loss, weight or train is 0, or if it is only begun."""
    if any(message.get(key) is True for key in PREFIX_KEYS):
        return False
    marks = omit({key: message.get(key) for key in (*LOSS_KEYS, *PARTIAL_LOSS_KEYS)})
    for key, value in marks.items():
        if key in PARTIAL_LOSS_KEYS or not isinstance(value, int | float) or value not in (0, 1):
            reason = f"{key} of a turn is {quote(value)}, not true, false, 1 or 0"
            raise RowError("E201", reason, "A turn is learned as a whole, or not at all.", key)
    return all(marks.values())


def thought_of(message: Row, content_thoughts: Iterable[str] = ()) -> str:
    """What a turn thinks, by its keys and in its content (`content_thoughts`); equal texts once."""
    texts = [text for key in THOUGHT_KEYS for text in _thoughts(message.get(key))]
    if not texts:
        texts = [text for key in THOUGHT_PART_KEYS for text in _thoughts(message.get(key))]
    return "\n\n".join(dict.fromkeys(text.strip() for text in (*texts, *content_thoughts)))


def _thoughts(value: object) -> list[str]:
    """The texts of a thought: none where it is encrypted, or a number about it."""
    if isinstance(value, list):
        return [text for part in value for text in _thoughts(part)]
    if isinstance(value, dict):
        # {"type": "reasoning", "summary": [{"text": "I look."}]} -> "I look."
        texts = (value[key] for key in ("text", *PART_TYPES, "summary") if value.get(key))
        return _thoughts(next(texts, None))
    return [value] if isinstance(value, str) and value.strip() else []


def split_thoughts(content: Any) -> tuple[Any, list[str]]:
    """A content without the parts that are thoughts, and the texts of these."""
    if not is_parts(content):
        return content, []
    parts = [part for part in content if part["type"] not in PART_TYPES]
    return parts, _thoughts([part for part in content if part["type"] in PART_TYPES])


def _text(content: Any, role: Role, position: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if role == "tool" and not is_parts(content):
        return text_or_json(content)
    if role == "tool" and all(part["type"] == "document" for part in content):  # of Cohere
        return "\n".join(part["document"]["data"] for part in content)
    return text_of_parts(content, ("text",), position)


def text_of_parts(parts: Iterable[Any], types: Sequence[str], position: str) -> str:
    """The text of a content's parts. Raises RowError E216 for a part of another type."""
    parts = list(parts)
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in types:
            kind = quote(part.get("type")) if isinstance(part, dict) else kind_of(part)
            raise RowError("E216", f"content of type {kind}: only text can be learned ({position})")
    return "".join(part["text"] for part in parts)


def is_parts(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(p, dict) and "type" in p for p in content)


def unknown_role(role: object, known_roles: Iterable[str], position: str) -> RowError:
    """E202 for a turn of somebody who is not known, with the role that is spelt most like it."""
    reason = f"unknown role {quote(role)} ({position}); known: {', '.join(known_roles)}"
    return RowError("E202", reason, suggest(str(role), known_roles, fallback=""), str(role))


def refuse_other_dialog(row: Row, read_key: str, turns: list[Any], other_key: str) -> None:
    """Raises RowError E201 where the row has words under `other_key` that are not in `turns`, which
    are read in its place: they would be lost. Some data sets have the first question once more, or
    the dialog.
    """
    value = row.get(other_key)
    other_turns = value if isinstance(value, list) else [{"content": value}] if value else []
    texts = [turn.get("content") for turn in turns if isinstance(turn, dict)]
    for turn in other_turns:
        is_text = isinstance(turn, dict) and turn.keys() <= {"role", "content"}
        if turn not in turns and not (is_text and turn.get("content") in filter(None, texts)):
            reason = f"a dialog under {read_key!r}, and another under {other_key!r}"
            raise RowError("E201", reason, "Keep one of them.", other_key)


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
    refuse_other_dialog(row, "prompt", turns, "messages")
    record = read({**omit(row, "prompt", "completion"), "messages": turns})
    start = len(read({"messages": prompt}).messages)
    messages = [
        replace(message, loss=message.loss and (index >= start or message.role != "assistant"))
        for index, message in enumerate(record.messages)
    ]
    return replace(record, messages=tuple(messages))


FORMAT = Format("openai", read, {"messages": list}, fits)
PROMPT_COMPLETION = Format(
    "prompt_completion",
    read_prompt_completion,
    {"prompt": str | list, "completion": str | list},
    are_prompt_and_completion,
)
