"""Dialogs of other APIs than OpenAI's chat -> Record: rewritten as its messages, and read so."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Record, to_json
from agentlite.data.formats import openai
from agentlite.data.formats.format import Format, Row, as_list, omit
from agentlite.data.formats.json_decode import quote, value_at
from agentlite.data.formats.openai import THOUGHT_KEYS, TOOL_CALLS_KEYS, unknown_role

# --- turns of parts: of Anthropic, Gemini, Bedrock's Converse, Vercel's AI SDK and pydantic-ai ---

ROLES = {
    **{"user": "user", "assistant": "assistant", "system": "system", "tool": "user"},
    **{"model": "assistant", "function": "user"},  # of Gemini
    **{"request": "user", "response": "assistant"},  # of pydantic-ai
}
# the keys or the types of a part that is a call or a result, those of Gemini first
CALL_KINDS = ("functionCall", "function_call", "tool_use", "toolUse", "tool-call")
RESULT_KINDS = (
    *("functionResponse", "function_response", "tool_result"),
    *("toolResult", "tool-result", "tool-return"),
)
OWN_KINDS = {*CALL_KINDS, *RESULT_KINDS, "thinking", "redacted_thinking", "user-prompt"}
# where a call or a result has the id of the call, the tool, and what it returned
ID_KEYS = ("tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "id")
NAME_KEYS = ("name", "toolName", "tool_name")
RESULT_KEYS = ("response", "content", "output", "result")
TEXT_KEYS = ("text", "content", *openai.PART_TYPES, "summary")
SYSTEM_KEYS = ("systemInstruction", "system_instruction", "system")
DECLARATION_KEYS = ("functionDeclarations", "function_declarations", "toolSpec")


def has_parts(row: Row) -> bool:
    """Whether messages have parts that OpenAI's have not, or a system text or tools beside them."""
    if not all(
        isinstance(message, dict)
        and not any(message.get(key) for key in TOOL_CALLS_KEYS)
        and str(message.get("role", message.get("kind"))) in ROLES
        for message in row["messages"]
    ):
        return False
    roles = {message.get("role") for message in row["messages"]}
    contents = [message.get("content") or message.get("parts") for message in row["messages"]]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    has_own_keys = bool(row.get("system")) or "input_schema" in str(row.get("tools"))
    has_own_parts = any(isinstance(part, dict) and _kind(part) in OWN_KINDS for part in parts)
    is_bedrock = bool(row.get("toolConfig"))
    return has_own_parts or is_bedrock or (has_own_keys and roles <= {"user", "assistant"})


def _kind(part: Row) -> str:
    """Its type, or the key that holds it; a tool in a message of the AI SDK's is a call."""
    kind = part.get("type") or part.get("part_kind")
    if isinstance(kind, str):
        return "tool-call" if kind.startswith("tool-") and "state" in part else kind
    return next(
        (key for key in (*CALL_KINDS, *RESULT_KINDS, *part) if part.get(key) is not None), "nothing"
    )


def read_parts(row: Row) -> Record:
    key = "contents" if row.get("contents") is not None else "messages"
    messages: list[Row] = []
    for system in filter(None, (row.get(name) for name in SYSTEM_KEYS)):
        parts = system.get("parts") if isinstance(system, dict) else system
        messages.append({"role": "system", "content": _join_parts(parts, "\n\n", "system")})
    failed_ids: list[str] = []
    messages += _turns(row[key], failed_ids)
    openai.refuse_other_dialog(row, key, messages, "messages" if key == "contents" else "contents")
    tools = _declared_functions(value_at(row, "toolConfig.tools") or row.get("tools"))
    fields = omit(row, key, "tools", "toolConfig", *SYSTEM_KEYS)
    record = openai.read({**fields, "tools": tools, "messages": messages})
    return replace(record, meta={**record.meta, "is_error": failed_ids}) if failed_ids else record


OUTPUTS = ("text", "json", "error-text", "error-json", "content")  # kinds of the AI SDK
BEDROCK = {"text", "json", "image", "document", "video"}  # a part has one of these keys


def _turns(turns: Iterable[Any], failed_ids: list[str]) -> Iterator[Row]:
    """The messages of OpenAI that the turns stand for. A result answers the call of its id, or the
    next one of its name. `failed_ids` gets the calls whose results are errors.
    """
    new_ids = map("call_{}".format, count())
    open_calls: list[Row] = []  # calls of the turn before
    for number, turn in enumerate(turns, 1):
        position, sender = f"message {number}", None
        if isinstance(turn, dict):
            sender = turn.get("role") or turn.get("kind") or "user"
        if (role := ROLES.get(str(sender))) is None:
            raise unknown_role(sender, ROLES, position)
        parts_key = "parts" if turn.get("content") is None and "parts" in turn else "content"
        parts = turn.get(parts_key)
        if not isinstance(parts, list):
            parts = [{"type": "text", "text": parts}] if parts else []
        message = {**omit(turn, "kind", parts_key), "role": role}
        if number == 1 and isinstance(turn.get("instructions"), str):  # with pydantic-ai
            yield {"role": "system", "content": turn["instructions"]}
        open_calls = [] if role == "assistant" else open_calls
        content, calls, results = list[Row](), list[Row](), list[Row]()
        for part in parts:
            # {"functionCall": {"name", "args"}} or {"type": "tool_use", "name", "input"}
            kind = _kind(part)
            fields = part[kind] if isinstance(part.get(kind), dict) else part
            is_call = kind in CALL_KINDS and role == "assistant"
            if is_call:
                # Gemini: {"text": "I look.", "functionCall": {...}}
                if fields is not part and isinstance(part.get("text"), str):
                    content.append(_openai_part(part, "text", content))
                name = _first_value(fields, NAME_KEYS)
                if not name and "state" in fields:
                    # the AI SDK: {"type": "tool-weather", "state", "input", "output"}
                    name = part["type"].removeprefix("tool-")
                call = {**omit(fields, "type", *ID_KEYS, *NAME_KEYS, *RESULT_KEYS), "name": name}
                calls.append({**call, "id": next(new_ids)})
                open_calls.append({**calls[-1], "original_id": _first_value(fields, ID_KEYS)})
            is_result = kind in RESULT_KINDS and role == "user"
            # with the AI SDK, a call and its output are one part
            if is_result or (is_call and fields.get("output") is not None):
                results.append(_result(fields, open_calls, failed_ids, position))
            elif kind == "system-prompt":
                yield {"role": "system", "content": part.get("content")}
            elif not is_call:
                if results and role == "assistant":  # what comes behind them is another turn
                    yield from ({**message, "content": content, "tool_calls": calls}, *results)
                    content, calls, results = [], [], []
                if kind != "step-start":
                    content.append(_openai_part(part, kind, content and (calls or role == "user")))
        if role == "assistant":
            yield from ({**message, "content": content, "tool_calls": calls}, *results)
        else:
            # what a user says beside results comes behind them
            yield from results
            if not results or any(str(part.get("text")).strip() for part in content):
                yield {**message, "content": content}


def _openai_part(part: Row, kind: str, is_apart: object) -> Row:
    """A part that says or thinks something, as OpenAI's messages have it."""
    text = _first_value(part, TEXT_KEYS)
    if kind in openai.PART_TYPES or part.get("thought") is True:
        return {"type": "thinking", "thinking": text}
    if kind not in ("text", "user-prompt") or not isinstance(text, str):
        return {"type": kind}  # is refused
    return {"type": "text", "text": f"\n\n{text}" if is_apart else text}


def _result(fields: Row, open_calls: list[Row], failed_ids: list[str], position: str) -> Row:
    original_id, name = _first_value(fields, ID_KEYS), _first_value(fields, NAME_KEYS)
    key, value = ("original_id", original_id) if original_id else ("name", name)
    call = next((call for call in open_calls if call[key] == value), None)
    open_calls[:] = [c for c in open_calls if c is not call]
    call_id = call["id"] if call else str(value)
    if fields.get("is_error"):
        failed_ids.append(call_id)
    if fields.get("parts"):
        raise RowError("E216", f"a result with parts, which are not read ({position})")
    content = _join_parts(_first_value(fields, RESULT_KEYS), "\n", position)
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _join_parts(value: Any, separator: str, position: str) -> Any:
    """A value, or the texts of its parts."""
    if isinstance(value, dict) and value.keys() == {"type", "value"} and value["type"] in OUTPUTS:
        return value["value"]
    are_parts = isinstance(value, list) and all(  # and no values that a tool gave back
        isinstance(part, dict) and ("type" in part or part.keys() <= BEDROCK) for part in value
    )
    if not are_parts:
        return value
    texts = [to_json(part["json"]) if "json" in part else part.get("text") for part in value]
    if not all(isinstance(text, str) for text in texts):
        kinds = ", ".join(sorted({_kind(part) for part in value}))
        raise RowError("E216", f"parts of {kinds}: only text can be learned ({position})")
    return separator.join(filter(None, texts))


def _first_value(fields: Row, keys: Iterable[str]) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), "")


def _declared_functions(value: object) -> object:
    """The declared functions; a tool that declares none stays as it is, to be read or refused."""
    tools: list[Any] = []
    for tool in as_list(value):
        fields = tool if isinstance(tool, dict) else {}
        declarations = [fields[key] for key in DECLARATION_KEYS if fields.get(key) is not None]
        for functions in declarations or [tool]:
            tools += as_list(functions)
    return value if isinstance(value, str) or value is None else tools


# --- OpenAI's Responses API and Agents SDK: messages, calls and results in one list ---

INPUT_KEYS = ("input", "messages", "items")
OWN_ITEMS = ("function_call", "function_call_output", "reasoning")
OWN_PARTS = ("input_text", "output_text")
TEXT_TYPES = (*OWN_PARTS, "text", "summary_text", "reasoning_text")
# keys of an item that become part of a message
ITEM_KEYS = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary")


def is_responses(row: Row) -> bool:
    items = _items(row)
    if not all(isinstance(item, dict) and ("role" in item or "type" in item) for item in items):
        return False
    contents = [item["content"] for item in items if isinstance(item.get("content"), list)]
    parts = [part for content in contents for part in content if isinstance(part, dict)]
    has_own_items = any(item.get("type") in OWN_ITEMS for item in items)
    return has_own_items or any(part.get("type") in OWN_PARTS for part in parts)


def _items(row: Row) -> list[Any]:
    """The items of a row: what came first, as a list or as the text of a user, and the output."""
    first_items = row.get(next((key for key in INPUT_KEYS if row.get(key)), "")) or []
    if isinstance(first_items, str):
        first_items = [{"role": "user", "content": first_items}]
    return [*as_list(first_items), *as_list(row.get("output") or [])]


def read_responses(row: Row) -> Record:
    """A turn holds all that the assistant thinks, says and calls up to the next result or message.
    Raises RowError E216 for an item that is none of these, such as the call of a hosted tool.
    """
    messages, extra = list[Row](), list[Row]()
    if (system := row.get("instructions")) is not None:
        messages.append({"role": "system", "content": _item_text(system, "instructions")})
    for number, item in enumerate(_items(row), 1):
        kind, position = item.get("type") or "message", f"item {number}"
        message: Row = {"role": "assistant", "content": ""}
        if kind == "message":
            text = _item_text(item.get("content"), position)
            message = {"role": str(item.get("role")), "content": text}
        elif kind == "reasoning":
            thoughts = item.get("content") or item.get("summary") or []
            texts = [_item_text([thought], position) for thought in as_list(thoughts)]
            message["thinking"] = "\n\n".join(filter(None, texts))
        elif kind == "function_call":
            call = {"id": item.get("call_id"), **omit(item, "id", "type", "call_id", "status")}
            message["tool_calls"] = [call]
        elif kind == "function_call_output":
            output = item.get("output")
            content = _item_text(output, position) if openai.is_parts(output) else output
            message = {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        else:
            reason = f"an item of type {quote(kind)}: it cannot be learned ({position})"
            raise RowError("E216", reason, at=str(kind))
        if unread := omit(item, *ITEM_KEYS):
            extra.append({"item": number, **unread})
        if message.get("thinking") == "":  # a thought that is not shown is no turn
            continue
        roles = {message["role"], *(turn["role"] for turn in messages[-1:])}
        is_system = len(messages) == 1 and roles <= {"system", "developer"}
        if messages and (is_system or roles == {"assistant"}):  # goes on with what is before it
            turns = (messages.pop(), message)
            for key in ("content", "thinking"):
                message[key] = "\n\n".join(turn[key] for turn in turns if turn.get(key))
            message["tool_calls"] = [call for turn in turns for call in turn.get("tool_calls", [])]
        messages.append(message)
    input_keys = [key for key in INPUT_KEYS if row.get(key)]
    for key in input_keys[1:]:
        if isinstance(row[key], list):
            openai.refuse_other_dialog(row, input_keys[0], messages, key)
    items = {"items": extra} if extra else {}
    return openai.read(
        {**omit(row, "instructions", "output", *input_keys[:1]), **items, "messages": messages}
    )


def _item_text(content: Any, position: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return openai.text_of_parts(as_list(content), TEXT_TYPES, position)


# --- LangChain and LangGraph: messages as dumped, as dicts or as `messages_to_dict` ---

LANGCHAIN_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "chat": "",  # it says its role itself
}
TYPES = LANGCHAIN_ROLES.keys() | {f"{name}messagechunk" for name in LANGCHAIN_ROLES}
# parts of a content that repeat a call
CALL_PARTS = ("tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta")


def is_langchain(row: Row) -> bool:
    messages = row.get("messages")
    return isinstance(messages, list) and bool(messages) and all(map(_type, messages))


def read_langchain(row: Row) -> Record:
    if not is_langchain(row):
        return openai.read(row)
    return openai.read({**row, "messages": [_as_openai(message) for message in row["messages"]]})


def _type(message: object) -> str:
    """The type of a message, in lower case; "" if it is none of LangChain's."""
    fields = _fields(message)
    name = str(fields.get("type", "")).lower()
    is_known = name in TYPES and (fields.get("role") is None or name.startswith("chat"))
    return name.removesuffix("messagechunk") if is_known else ""


def _fields(message: object) -> Row:
    """What a message says, without what wraps it: a constructor, or its type beside its data."""
    if not isinstance(message, dict):
        return {}
    # {"lc": 1, "id": [..., "AIMessage"], "kwargs": {...}} by dumps; {"type": "ai", "data": {...}}
    # by messages_to_dict; {"type": "ai", "content": ...} by model_dump
    inner, names = message.get("kwargs"), message.get("id")
    if message.get("lc") and isinstance(inner, dict) and isinstance(names, list) and names:
        return {"type": str(names[-1]).removesuffix("Message"), **inner}
    inner = message.get("data")
    return {**inner, "type": message.get("type")} if isinstance(inner, dict) else message


def _as_openai(message: object) -> Row:
    fields, kind = _fields(message), _type(message)
    row = omit(fields, "type", "content")
    row["role"] = LANGCHAIN_ROLES[kind] or fields.get("role")
    kwargs = fields.get("additional_kwargs")
    if kind == "ai" and isinstance(kwargs, dict):
        if not row.get("tool_calls"):
            row |= {key: kwargs[key] for key in TOOL_CALLS_KEYS if kwargs.get(key)}
        row |= {key: kwargs[key] for key in THOUGHT_KEYS if kwargs.get(key)}
    content = fields.get("content")
    if not isinstance(content, list):
        return {**row, "content": content}
    has_calls = any(row.get(key) for key in TOOL_CALLS_KEYS)
    parts = []
    for part in content:
        part_type = part.get("type") if isinstance(part, dict) else None
        if not (has_calls and part_type in CALL_PARTS):  # which were read
            parts.append({"type": "text", "text": part} if isinstance(part, str) else part)
    return {**row, "content": parts}


ANTHROPIC = Format("anthropic", read_parts, {"messages": list}, has_parts)
GEMINI = Format(
    "gemini",
    read_parts,
    {"contents": list},
    lambda row: all(isinstance(turn, dict) and "parts" in turn for turn in row["contents"]),
)
RESPONSES = Format("responses", read_responses, shape=is_responses)
LANGCHAIN = Format("langchain", read_langchain, shape=is_langchain)
