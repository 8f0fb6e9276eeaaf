"""ModelScope-Agent: calls as fenced JSON between marks, results inside the assistant's turn.

<|startofthink|>```JSON
{"api_name": "weather", "parameters": {"city": "Oslo"}}
```<|endofthink|>

<|startofexec|>4 mm of rain<|endofexec|>
Yes, about 4 mm.
"""

from collections.abc import Sequence

from agentlite.core.records import Message, Parsed, Tool, to_json
from agentlite.rendering.protocol import Protocol, json_object, to_call

OPEN, CLOSE = "<|startofthink|>", "<|endofthink|>"
EXEC, EXEC_END = "<|startofexec|>", "<|endofexec|>"
FENCE = "```"
HEAD = """You are an assistant that can call APIs. Where one is needed, write the call between <|startofthink|> and <|endofthink|>, as
<|startofthink|>```JSON
{"api_name": "name of the API", "parameters": {"name": "value"}}
```<|endofthink|>
Its result then stands between <|startofexec|> and <|endofexec|>; go on from there, or answer in words.
APIs, one a line:"""  # noqa: E501  (a paragraph of the prompt is one line)


def system(tools: Sequence[Tool]) -> str:
    return "\n".join([HEAD, *(to_json(tool.function) for tool in tools)])


def assistant(message: Message) -> str:
    text = message.content.strip()
    if not message.calls:
        return text
    (call,) = message.calls
    call_json = to_json({"api_name": call.name, "parameters": call.arguments})
    return "\n".join(filter(None, [text, f"{OPEN}{FENCE}JSON\n{call_json}\n{FENCE}{CLOSE}"]))


def results(messages: Sequence[Message]) -> str:
    (message,) = messages
    return f"\n\n{EXEC}{message.content.strip()}{EXEC_END}\n"


def parse(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """What precedes the first mark, and the call behind it. A mark in a JSON string is text."""
    content, mark, rest = text.partition(OPEN)
    content = content.strip()
    if not mark:
        return Parsed(content)
    json_text = rest.strip().removeprefix(FENCE).removeprefix("JSON").removeprefix("json")
    try:
        value, end = json_object(json_text)
    except ValueError:
        return Parsed(content, (), "call is not JSON" if CLOSE in rest else "call not closed")
    ending = json_text[end:].strip().removeprefix(FENCE).strip()
    call, problem = to_call(value.get("api_name"), value.get("parameters", {}))
    if not problem and ending != CLOSE:
        problem = "text after a call" if CLOSE in ending else "call not closed"
    return Parsed(content, (call,) if call else (), problem)


PROTOCOL = Protocol(
    "modelscope",
    parse,
    system,
    assistant,
    results,
    stops=(CLOSE,),
    parallel_calls=False,
    inline=True,
)
