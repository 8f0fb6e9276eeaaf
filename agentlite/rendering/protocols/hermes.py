"""Hermes (also Qwen2.5 and Qwen3): tools and calls as JSON between XML tags.

<tool_call>
{"name": "weather", "arguments": {"city": "Oslo"}}
</tool_call>

Also `chat`, the model's own protocol: its chat template prints tools and calls.
"""

from collections.abc import Sequence

from agentlite.core.records import Call, Message, Parsed, Tool, plain
from agentlite.rendering.protocol import Protocol, json_object, named_call

OPEN, CLOSE = "<tool_call>", "</tool_call>"
HEAD = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>"""
TAIL = """</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""  # noqa: E501  (verbatim text)


def system(tools: Sequence[Tool]) -> str:
    return "\n".join([HEAD, *(plain(tool.schema) for tool in tools), TAIL])


def assistant(message: Message) -> str:
    calls = [
        f"{OPEN}\n{plain({'name': c.name, 'arguments': c.arguments})}\n{CLOSE}"
        for c in message.calls
    ]
    return "\n".join(filter(None, [message.content.strip(), *calls]))


def results(messages: Sequence[Message]) -> str:
    return "\n".join(
        f"<tool_response>\n{message.content}\n</tool_response>" for message in messages
    )


def parse(text: str) -> Parsed:
    """Every block from its opening tag on; a tag inside a JSON string does not end it."""
    calls: list[Call] = []
    content, trailing, position, problem = "", "", 0, ""
    while not problem and (start := text.find(OPEN, position)) >= 0:
        trailing += text[position:start] if calls else ""
        content += text[position:start]
        try:
            value, end = json_object(text, start + len(OPEN))
        except ValueError:
            closed = CLOSE in text[start:]
            position, problem = len(text), "call is not JSON" if closed else "call not closed"
            break
        call, problem = named_call(value.get("name"), value.get("arguments", {}))
        calls += [call] if call else []
        close = text.find(CLOSE, end)
        if not problem and (close < 0 or text[end:close].strip()):
            problem = "call not closed"
        position = close + len(CLOSE) if close >= 0 else len(text)
    trailing += text[position:] if calls else ""
    return Parsed((content + text[position:]).strip(), tuple(calls), problem, trailing.strip())


def parse_json(text: str) -> Parsed:
    """Bare objects with `;` between, as Llama 3 writes them: {"name": ..., "parameters": {...}}."""
    calls: list[Call] = []
    rest = text.strip().removeprefix("<|python_tag|>")
    while rest.startswith("{"):
        try:
            value, end = json_object(rest)
        except ValueError:
            return Parsed("", tuple(calls), "call is not JSON")
        arguments = value.get("parameters", value.get("arguments", {}))
        call, problem = named_call(value.get("name"), arguments)
        if call is None:
            return Parsed("", tuple(calls), problem)
        calls.append(call)
        rest = rest[end:].lstrip(" ;\n")
    return Parsed(rest, tuple(calls), "text after a call" if calls and rest else "")


PROTOCOL = Protocol("hermes", parse, system, assistant, results, result_role="user")
CHAT = Protocol("chat", parse, native=True, readers=(parse, parse_json))
