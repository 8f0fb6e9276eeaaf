"""OpenAI rows, {"messages": [...], "tools": [...]} -> Record."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError, nearest
from agentlite.core.plain_words import kind, misfit
from agentlite.core.records import Call, Gold, Message, Record, Role, Task, Tool, plain
from agentlite.data.formats.extra_fields import extra_by_turn, meta_of, refuse_unread
from agentlite.data.formats.json_decode import json_value, shortened
from agentlite.data.formats.tool_calls import read_call, read_tools, without_filled

EXAMPLE = r'{"messages": [{"role": "user", "content": "Is it wet in Oslo?"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "4 mm"}, {"role": "assistant", "content": "Yes."}], "tools": [{"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]}'  # noqa: E501  (a row is one line)
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
# what a thinking model said before, under the keys that servers use; some write two of them
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "tool_plan")
# the same in parts, where none of those is there
THOUGHT_PARTS = ("reasoning_details", "thinking_blocks")
# what takes a turn out of training: with ms-swift, OpenAI, Axolotl
LOSS = ("loss", "weight", "train")
PARTS_LEARNED = ("train_detail",)  # with Axolotl
CALLS = ("tool_calls", "function_call")
WORDS = frozenset(("role", "content", "tool_call_id", "name", "tool_name", *LOSS, *THOUGHTS))
KNOWN = WORDS | {*CALLS}
TASKS = get_args(Task)


def refuse_another(row: dict[str, Any], read: str, turns: list[Any], other: str) -> None:
    """Raises RowError E201 where the row has words under `other` that are not in `turns`, which are
    read in its place: they would be lost. Some data sets have the first question once more, or the
    dialog.
    """
    given = row.get(other)
    others = given if isinstance(given, list) else [{"content": given}] if given else []
    texts = [turn.get("content") for turn in turns if isinstance(turn, dict)]
    for one in others:
        is_text = isinstance(one, dict) and one.keys() <= {"role", "content"}
        if one not in turns and not (is_text and one.get("content") in filter(None, texts)):
            reason = f"a dialog under {read!r}, and another under {other!r}"
            raise RowError("E201", reason, "Keep one of them.", other)


def unknown_role(role: object, known: Iterable[str], where: str) -> RowError:
    """E202 for a turn of somebody who is not known, with the role that is spelt most like it."""
    reason = f"unknown role {shortened(role)} ({where}); known: {', '.join(known)}"
    return RowError("E202", reason, nearest(str(role), known, other=""), str(role))


def fits(row: dict[str, Any]) -> bool:
    messages = row.get("messages")
    return isinstance(messages, list) and all(isinstance(m, dict) and "role" in m for m in messages)


def read(row: dict[str, Any]) -> Record:
    tools, messages = tools_of(row), row["messages"]
    dialog, gold = _OpenAIDialog(tools).read(messages), read_gold(row.get("gold"))
    extra = extra_by_turn(messages, KNOWN)
    return Record(
        messages=dialog if gold else merged(dialog),  # gold counts the messages as they stand
        tools=tools,
        gold=gold,
        task=row["task"] if row.get("task") in TASKS else "general",
        meta=meta_of(row, "messages", "tools", "functions", "gold", "task", turns=extra),
    )


def tools_of(row: dict[str, Any]) -> tuple[Tool, ...]:
    """The tools of a row, under either key."""
    tools, functions = (read_tools(row.get(key) or None) for key in ("tools", "functions"))
    if tools and functions and tools != functions:
        raise RowError("E211", "functions offer other tools than tools do", at="functions")
    return tools or functions


def merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages; what the assistant says and then the calls it makes, written as two turns,
    become one.
    """
    turns: list[Message] = []
    for message in messages:
        before = turns[-1] if turns else message
        only_says = before.role == "assistant" and not before.calls
        if only_says and message.calls and before.loss == message.loss:
            joined = "\n\n".join(filter(None, (turns.pop().content, message.content)))
            message = replace(message, content=joined)
        turns.append(message)
    return tuple(turns)


def read_gold(value: object) -> dict[int, Gold]:
    """Turn -> Gold, from its text or its plain dicts. Raises RowError E201, or that of the text."""
    gold = json_value(value) if isinstance(value, str) and value else value
    try:
        return msgspec.convert(gold or {}, dict[int, Gold], strict=False)
    except msgspec.ValidationError as error:
        raise RowError("E201", f"gold: {misfit(error)}") from error


class _OpenAIDialog:
    """Reads messages in their order, so that each result finds the call it answers."""

    def __init__(self, tools: tuple[Tool, ...]):
        self.tools = {tool.name: tool for tool in tools}
        self.messages: list[Any] = []
        self.new_ids = self._new_ids()  # looked for when the first of them is needed
        self.calls: tuple[Call, ...] = ()  # of the last turn
        self.behind = 0  # the place of what follows that turn
        self.waiting: Counter[str] = Counter()  # their ids, as long as no result answers them

    def read(self, messages: list[Any]) -> tuple[Message, ...]:
        self.messages = messages
        return tuple([self._message(message, number) for number, message in enumerate(messages, 1)])

    def _message(self, message: dict[str, Any], number: int) -> Message:
        role = ROLES.get(str(message.get("role")))
        if role is None:
            raise unknown_role(message.get("role"), ROLES, f"message {number}")
        content, loss = _text(message.get("content"), role, number), has_loss(message)
        if thoughts := thoughts_of(message, role, number):
            content = "\n\n".join(filter(None, [*thoughts, content]))
        place = f"message {number}"
        if role == "assistant":
            try:
                self.calls = tuple([self._call(call) for call in _calls(message)])
            except RowError as error:
                reason = f"{error.reason} (message {number})"
                raise RowError(error.code, reason, error.hint, error.at) from error
            self.waiting = Counter(call.id for call in self.calls)
            self.behind = number
            if not message.keys() <= KNOWN:
                read = (*KNOWN, *THOUGHT_PARTS)
                refuse_unread(message, read, place, has_calls=bool(self.calls))
            return Message(role, content, self.calls, "", loss)
        if not message.keys() <= WORDS:
            refuse_unread(message, WORDS, place)
        return Message(role, content, (), self._answered(message) if role == "tool" else "", loss)

    def _call(self, given: Any) -> Call:
        call = read_call(given)
        tool = self.tools.get(call.name, Tool(call.name))
        arguments = without_filled(given, call.arguments, tool)
        return Call(call.name, arguments, call.id or next(self.new_ids))

    def _new_ids(self) -> Iterator[str]:
        """Ids for calls without one, which no other call of the row has."""
        dicts = [message for message in self.messages if isinstance(message, dict)]
        given = [call.get("id") for message in dicts for call in _calls(message)]
        yield from (name for n in count() if (name := f"call_{n}") not in given)

    def _answered(self, message: dict[str, object]) -> str:
        """The id of the call a result answers: its own, or the only one it can be; "" if that is
        not clear. As many results as calls, none with an id, stand in the order of the calls.
        """
        given = message.get("tool_call_id")
        name = message.get("name") or message.get("tool_name")  # the latter is Ollama's
        if given:
            fitting = [given] * self.waiting[given] if isinstance(given, str) else []
        else:
            fitting = [
                call.id
                for call in self.calls
                if self.waiting[call.id] and (not name or call.name == name)
            ]
            if len(fitting) > 1 and self._are_in_order():
                fitting = fitting[:1]
        if len(fitting) != 1:
            return given if isinstance(given, str) else plain(given) if given else ""
        self.waiting[fitting[0]] -= 1
        return fitting[0]

    def _are_in_order(self) -> bool:
        """Whether the results of the last turn are as many as its calls, and none has an id."""
        results = []
        for message in self.messages[self.behind :]:
            if not isinstance(message, dict) or ROLES.get(str(message.get("role"))) != "tool":
                break
            results.append(message)
        has_ids = any(result.get("tool_call_id") for result in results)
        return len(results) == len(self.calls) and not has_ids


def has_loss(message: Mapping[str, object]) -> bool:
    """Whether a turn is learned: `loss: false`, `weight: 0` and `train: false` take it out."""
    keys = (*LOSS, *PARTS_LEARNED)
    if message.keys().isdisjoint(keys):
        return True
    given = {key: message[key] for key in keys if message.get(key) is not None}
    for key, value in given.items():
        if key in PARTS_LEARNED or not isinstance(value, int | float) or value not in (0, 1):
            reason = f"{key} of a turn is {shortened(value)}, not true, false, 1 or 0"
            hint = "A turn is learned as a whole, or not at all."
            raise RowError("E201", reason, hint, key)
    return all(given.values())


def thoughts_of(message: dict[str, Any], role: Role, number: int) -> list[str]:
    """What a message says before its content, equal texts once."""
    if message.keys().isdisjoint((*THOUGHTS, *THOUGHT_PARTS)):
        return []
    thoughts = [_text(message.get(key), role, number) for key in THOUGHTS]
    once = {thought.strip(): thought for thought in thoughts if thought}
    if once:
        return [*once.values()]
    lists = [value for key in THOUGHT_PARTS if isinstance(value := message.get(key), list)]
    parts = [part for value in lists for part in value if isinstance(part, dict)]
    texts = [part.get(key) for part in parts for key in ("text", "thinking", "summary")]
    return list(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls, one = message.get("tool_calls") or [], message.get("function_call")
    if not one:
        return calls
    if calls and [replace(read_call(call), id="") for call in calls] != [read_call(one)]:
        raise RowError("E206", "function_call is another call than tool_calls")
    return calls or [one]


def _text(content: Any, role: Role, number: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if role == "tool" and not is_parts(content):
        return plain(content)
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            found = shortened(part.get("type")) if isinstance(part, dict) else kind(part)
            raise RowError(
                "E216", f"content of type {found}: only text can be learned (message {number})"
            )
    return "".join(part["text"] for part in content)


def is_parts(content: object) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, dict) and "type" in part for part in content
    )
