"""Dialogs of Anthropic, Gemini, LangChain and OpenAI's Responses API -> Record.

All but Anthropic's are rewritten as the messages of OpenAI's chat API, and read as those.
"""

from itertools import groupby
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.plain_words import kind as kind_of
from agentlite.core.records import Call, Message, Record
from agentlite.data.formats import openai
from agentlite.data.formats.format import Format, Row, meta_of, refuse_unread, rest
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.openai import CALLS, LOSS, THOUGHTS, has_loss, unknown_role
from agentlite.data.formats.tool_calls import call_of, read_tools
from agentlite.rendering.protocol import with_thought

# --- Anthropic: messages of content blocks, tools with `input_schema` ---

BLOCKS = {"user": ("text", "tool_result"), "assistant": ("text", "thinking", "tool_use")}
OWN_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")
BLOCK_KEYS = (
    *("type", "text", "thinking", "id", "name", "input"),
    *("tool_use_id", "content", "is_error"),
)


def is_anthropic(row: Row) -> bool:
    tools, blocks = row.get("tools"), list[Any]()
    for message in row["messages"]:  # OpenAI's may look the same
        if not isinstance(message, dict) or str(message.get("role")) not in BLOCKS:
            return False
        if "content" not in message or message.get("tool_calls") or message.get("function_call"):
            return False
        blocks += message["content"] if isinstance(message["content"], list) else []
    if isinstance(tools, list):
        has_schema = any(isinstance(tool, dict) and tool.get("input_schema") for tool in tools)
    else:
        has_schema = isinstance(tools, str) and '"input_schema"' in tools
    has_own = any(isinstance(block, dict) and block.get("type") in OWN_BLOCKS for block in blocks)
    return bool(row.get("system")) or has_schema or has_own


def read_anthropic(row: Row) -> Record:
    """A user who speaks in one message with results is refused: put into a result, these words
    would teach to obey results.
    """
    tools = read_tools(row.get("tools"))
    offered = {tool.name: tool for tool in tools}
    system = _block_texts(row.get("system"), "\n\n", "system")
    messages = [Message("system", system)] if system else []
    calls: dict[str, Call] = {}  # of the turn before, by the ids of the row
    made, failed, extra = 0, list[str](), list[Row]()
    for number, message in enumerate(row["messages"], 1):
        place = f"message {number}"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in BLOCKS:
            raise unknown_role(role, BLOCKS, place)
        refuse_unread(message, ("role", "content", *LOSS), place)
        blocks = _blocks(message.get("content"), BLOCKS[role], place)
        if role == "assistant":
            calls, texts = {}, list[str]()
            said, thoughts = openai.apart(blocks)
            for kind, group in groupby(said, lambda block: block["type"]):
                if kind != "tool_use":  # a text is split where a citation begins
                    texts.append("".join(_block_text(block, kind) for block in group))
                    continue
                for block in group:
                    given = block.get("id")
                    if not isinstance(given, str) or not given or given in calls:
                        raise RowError("E205", f"a tool_use needs an id of its own, not {given!r}")
                    calls[given] = call_of(rest(block, "type"), offered, f"call_{made}")
                    made += 1
            words = "\n\n".join(filter(None, texts))
            content = with_thought(openai.thought_of(message, thoughts), words)
            turn = Message("assistant", content, tuple(calls.values()), loss=has_loss(message))
            messages.append(turn)
        else:
            results, texts = [], []
            for block in blocks:
                if block["type"] == "text":
                    texts.append(_block_text(block, "text"))
                else:
                    given = str(block.get("tool_use_id") or "")
                    call_id = calls[given].id if given in calls else given
                    failed += [call_id] if block.get("is_error") else []
                    content = _block_texts(block.get("content"), "\n", f"the result of {given}")
                    results.append(Message("tool", content, call_id=call_id))
            words = "\n\n".join(texts)
            if results and words.strip():
                reason = f"the user speaks in the same message as a result ({place}): "
                hint = "Move the text into the user's message before the call, or drop it."
                raise RowError("E203", f"{reason}{shortened(words.strip())}", hint)
            messages += results or [Message("user", words if words.strip() else "")]
        for unread in (
            rest(message, "role", "content", *LOSS),
            *(rest(block, *BLOCK_KEYS) for block in blocks),
        ):
            extra += [{"message": number, **unread}] if unread else []
    named = {"is_error": failed, "blocks": extra}
    return Record(
        messages=openai.merged(messages),
        tools=tools,
        meta=meta_of(row, "messages", "tools", "system", **named),
    )


def _blocks(content: Any, known: tuple[str, ...], place: str) -> list[Row]:
    """A text as its only block."""
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content or ""}]
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else kind_of(block)
        if kind not in known or not isinstance(block, dict):
            only = f"only {', '.join(known)} can be learned here"
            raise RowError("E216", f"content of type {kind!r}; {only} ({place})")
    return [*content]


def _block_texts(content: object, between: str, place: str) -> str:
    blocks = _blocks(content, ("text",), place)
    return between.join(filter(None, (_block_text(block, "text") for block in blocks)))


def _block_text(block: Row, key: str) -> str:
    if not isinstance(block.get(key), str):
        raise RowError("E216", f"a block of type {key!r} without {key}")
    return str(block[key])


# --- Gemini and Vertex AI's tuning files: parts say, call and answer ---

ROLES = {"user": "user", "model": "assistant", "function": "user", "tool": "user"}
# keys as JSON and as Python write them
CALL, RESULT = ("functionCall", "function_call"), ("functionResponse", "function_response")
SYSTEM = ("systemInstruction", "system_instruction")
DECLARED = ("functionDeclarations", "function_declarations")


def read_gemini(row: Row) -> Record:
    """A result answers the call of its id, or the next one of its name."""
    messages: list[Row] = []
    for system in filter(None, (row.get(key) for key in SYSTEM)):
        parts = _parts(system if isinstance(system, dict) else {"parts": [{"text": system}]}, 0)
        text = "".join(_part_text(part, "the system instruction") for part in parts)
        messages.append({"role": "system", "content": text})
    waiting: list[Row] = []  # calls of the turn before
    made, extra = 0, list[Row]()
    for number, content in enumerate(row["contents"], 1):
        place, role = f"content {number}", ROLES.get(str(content.get("role") or "user"))
        if role is None:
            raise unknown_role(content.get("role"), ROLES, place)
        is_model = role == "assistant"
        waiting = [] if is_model else waiting
        thoughts, texts = list[str](), list[str]()
        parts = _parts(content, number)
        for part in parts:
            if more := rest(part, "text", "thought", *CALL, *RESULT):
                extra.append({"content": number, **more})
            values = (part.get(key) for key in (CALL if is_model else RESULT))
            held = next((value for value in values if isinstance(value, dict)), {})
            if part.get("text") or not held:
                is_thought = is_model and part.get("thought") is True
                (thoughts if is_thought else texts).append(_part_text(part, place))
            if held and is_model:
                waiting.append({**held, "id": held.get("id") or f"call_{made}"})
                made += 1
            elif held:
                if held.get("parts"):
                    reason = f"a result with parts, which are not read ({place})"
                    raise RowError("E216", reason)
                key = "id" if held.get("id") else "name"
                call = next((call for call in waiting if call.get(key) == held.get(key)), None)
                waiting = [other for other in waiting if other is not call]
                answered = call["id"] if call else str(held.get(key))
                result = {"tool_call_id": answered, "content": held.get("response")}
                messages.append({"role": "tool", **result})
        said = {"role": role, "content": "".join(texts)}
        if is_model:
            loss = {key: content[key] for key in LOSS if key in content}
            called = {"thinking": "".join(thoughts), "tool_calls": [*waiting]}
            messages.append({**said, **loss, **called})
        elif texts or not parts:
            messages.append(said)
    openai.refuse_another(row, "contents", messages, "messages")
    kept = {"contents": extra} if extra else {}
    declared = {"tools": _declared(row.get("tools")), "messages": messages}
    return openai.read({**rest(row, "contents", "tools", *SYSTEM), **kept, **declared})


def _declared(value: object) -> object:
    """The declared functions; a tool that declares none stays as it is, to be read or refused."""
    tools: list[Any] = []
    for tool in value if isinstance(value, list) else [value] if value else []:
        given = [tool.get(key) for key in DECLARED if isinstance(tool, dict)]
        lists = [functions for functions in given if functions is not None]
        for functions in lists or [[tool]]:
            tools += functions
    return tools


def _parts(content: Row, number: int) -> list[Row]:
    parts = content.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise RowError("E201", f"parts are not a list of objects (content {number})")
    return parts


def _part_text(part: Row, place: str) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        key = shortened(next((key for key in part if part[key] is not None), "nothing"))
        raise RowError("E216", f"a part of {key}: only text can be learned ({place})")
    return text


# --- OpenAI's Responses API and Agents SDK: messages, calls and results in one list ---

BEFORE = ("input", "messages", "items")
OWN_ITEMS = ("function_call", "function_call_output", "reasoning")
OWN_PARTS = ("input_text", "output_text")
TEXTS = (*OWN_PARTS, "text", "summary_text", "reasoning_text")
# keys of an item that become part of a message
ITEM_KEYS = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary")


def is_responses(row: Row) -> bool:
    has_own = False
    for item in _items(row):
        if not isinstance(item, dict) or ("role" not in item and "type" not in item):
            return False
        parts = item["content"] if isinstance(item.get("content"), list) else []
        has_own = has_own or item.get("type") in OWN_ITEMS
        has_own = has_own or any(isinstance(p, dict) and p.get("type") in OWN_PARTS for p in parts)
    return has_own


def _items(row: Row) -> list[Any]:
    """The items of a row: what came first, as a list or as the text of a user, and the output."""
    before = row.get(next((key for key in BEFORE if row.get(key)), ""))
    if isinstance(before, str):
        before = [{"role": "user", "content": before}]
    before, output = before or [], row.get("output") or []
    return [
        *(before if isinstance(before, list) else [before]),
        *(output if isinstance(output, list) else [output]),
    ]


def read_responses(row: Row) -> Record:
    """A turn holds all that the assistant thinks, says and calls up to the next result or message.
    Raises RowError E216 for an item that is none of these, such as the call of a hosted tool.
    """
    messages, extra = list[Row](), list[Row]()
    if (system := row.get("instructions")) is not None:
        messages.append({"role": "system", "content": _item_text(system, "instructions")})

    def turn() -> Row:
        """The assistant turn that goes on, or a new one."""
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        return messages[-1]

    def say(key: str, text: str) -> None:
        turn()[key] = "\n\n".join(filter(None, [turn().get(key, ""), text]))

    for number, item in enumerate(_items(row), 1):
        kind, place = item.get("type") or "message", f"item {number}"
        if kind == "message" and item.get("role") == "assistant":
            say("content", _item_text(item.get("content"), place))
        elif kind == "message":
            role, text = str(item.get("role")), _item_text(item.get("content"), place)
            # a system message behind another at the beginning goes on with it
            if len(messages) == 1 and {role, messages[0]["role"]} <= {"system", "developer"}:
                text = "\n\n".join(filter(None, [messages.pop()["content"], text]))
            messages.append({"role": role, "content": text})
        elif kind == "reasoning":
            thoughts = item.get("content") or item.get("summary") or []
            for thought in thoughts if isinstance(thoughts, list) else [thoughts]:
                say("thinking", _item_text([thought], place))
        elif kind == "function_call":
            call = {"id": item.get("call_id"), **rest(item, "id", "type", "call_id", "status")}
            turn().setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = item.get("output")
            content = _item_text(output, place) if openai.is_parts(output) else output
            result = {"tool_call_id": item.get("call_id"), "content": content}
            messages.append({"role": "tool", **result})
        else:
            reason = f"an item of type {shortened(kind)}: it cannot be learned ({place})"
            raise RowError("E216", reason, at=str(kind))
        if unread := rest(item, *ITEM_KEYS):
            extra.append({"item": number, **unread})
    given = [key for key in BEFORE if row.get(key)]
    for other in given[1:]:
        if isinstance(row[other], list):
            openai.refuse_another(row, given[0], messages, other)
    kept = {"items": extra} if extra else {}
    others = rest(row, "instructions", "output", *given[:1])
    return openai.read({**others, **kept, "messages": messages})


def _item_text(content: Any, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    return openai.text_of_parts(parts, TEXTS, place)


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
    known = name in TYPES and (fields.get("role") is None or name.startswith("chat"))
    return name.removesuffix("messagechunk") if known else ""


def _fields(message: object) -> Row:
    """What a message says, without what wraps it: a constructor, or its type beside its data."""
    if not isinstance(message, dict):
        return {}
    inner, names = message.get("kwargs"), message.get("id")
    if message.get("lc") and isinstance(inner, dict) and isinstance(names, list) and names:
        return {"type": str(names[-1]).removesuffix("Message"), **inner}
    inner = message.get("data")
    return {**inner, "type": message.get("type")} if isinstance(inner, dict) else message


def _as_openai(message: object) -> Row:
    fields, kind = _fields(message), _type(message)
    made = rest(fields, "type", "content")
    made["role"] = LANGCHAIN_ROLES[kind] or fields.get("role")
    more = fields.get("additional_kwargs")
    if kind == "ai" and isinstance(more, dict):
        if not made.get("tool_calls"):
            made |= {key: more[key] for key in CALLS if more.get(key)}
        made |= {key: more[key] for key in THOUGHTS if more.get(key)}
    content = fields.get("content")
    if not isinstance(content, list):
        return {**made, "content": content}
    has_calls = any(made.get(key) for key in CALLS)
    kept = []
    for part in content:
        part_type = part.get("type") if isinstance(part, dict) else None
        if not (has_calls and part_type in CALL_PARTS):  # which were read
            kept.append({"type": "text", "text": part} if isinstance(part, str) else part)
    return {**made, "content": kept}


ANTHROPIC_EXAMPLE = '{"system": "Be brief.", "messages": [{"role": "user", "content": "Is it wet in Oslo?"}, {"role": "assistant", "content": [{"type": "text", "text": "I look it up."}, {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "4 mm"}]}, {"role": "assistant", "content": "Yes."}], "tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]}'  # noqa: E501  (a row is one line)
ANTHROPIC = Format("anthropic", read_anthropic, ANTHROPIC_EXAMPLE, {"messages": list}, is_anthropic)
GEMINI_EXAMPLE = '{"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": [{"role": "user", "parts": [{"text": "Is it wet in Oslo?"}]}, {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}]}, {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"mm": 4}}}]}, {"role": "model", "parts": [{"text": "Yes."}]}], "tools": [{"functionDeclarations": [{"name": "weather", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}]}]}'  # noqa: E501  (a row is one line)
GEMINI = Format(
    "gemini",
    read_gemini,
    GEMINI_EXAMPLE,
    {"contents": list},
    lambda row: all(isinstance(turn, dict) and "parts" in turn for turn in row["contents"]),
)
RESPONSES_EXAMPLE = r'{"instructions": "Be brief.", "input": [{"role": "user", "content": "Is it wet in Oslo?"}, {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{\"city\": \"Oslo\"}"}, {"type": "function_call_output", "call_id": "a", "output": "4 mm"}], "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}], "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]}'  # noqa: E501  (a row is one line)
RESPONSES = Format("responses", read_responses, RESPONSES_EXAMPLE, shape=is_responses)
LANGCHAIN_EXAMPLE = '{"messages": [{"type": "human", "content": "Is it wet in Oslo?"}, {"type": "ai", "content": "", "tool_calls": [{"name": "weather", "args": {"city": "Oslo"}, "id": "a", "type": "tool_call"}]}, {"type": "tool", "content": "4 mm", "tool_call_id": "a", "status": "success"}, {"type": "ai", "content": "Yes."}], "tools": [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]}'  # noqa: E501  (a row is one line)
LANGCHAIN = Format("langchain", read_langchain, LANGCHAIN_EXAMPLE, shape=is_langchain)
