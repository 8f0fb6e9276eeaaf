"""Hermes (also Qwen2.5 and Qwen3): tools and calls as JSON between XML tags.

<tool_call>
{"name": "weather", "arguments": {"city": "Oslo"}}
</tool_call>

Also `chat`, the model's own protocol: its chat template prints tools and calls.
"""

from collections.abc import Sequence

from agentlite.core.records import Call, Message, Parsed, Tool, to_json
from agentlite.rendering.protocol import Protocol, json_object, to_call

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


# Put before the source of a chat template of an exported model, which then writes in this protocol
# the tools, calls and results that a server gives it as such.
TEMPLATE_PREFIX = """\
{%- if tools -%}
{%- macro as_text(content) -%}
{%- if content is string -%}{{- content -}}
{%- else -%}{%- for part in content or [] -%}{{- part.text or '' -}}{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(system='', words='', turns=[]) -%}
{%- for message in messages if message.role == 'system' -%}
{%- set ns.system = ns.system + ('\\n\\n' if ns.system else '') + as_text(message.content) -%}
{%- endfor -%}
{%- set ns.system = (ns.system or ASSISTANT) + '\\n\\n' + HEAD -%}
{%- for tool in tools -%}
{%- set ns.system = ns.system + '\\n' + tool|tojson -%}
{%- endfor -%}
{%- set ns.turns = [{'role': 'system', 'content': ns.system + '\\n' + TAIL}] -%}
{%- for message in messages if message.role != 'system' -%}
{%- set ns.words = as_text(message.content) -%}
{%- if message.role == 'tool' -%}
{%- set ns.words = '<tool_response>\\n' + ns.words + '\\n</tool_response>' -%}
{%- if loop.previtem and loop.previtem.role == 'tool' -%}
{%- set ns.words = ns.turns[-1].content + '\\n' + ns.words -%}
{%- set ns.turns = ns.turns[:-1] -%}
{%- endif -%}
{%- elif message.role == 'assistant' -%}
{%- set ns.words = ns.words|trim -%}
{%- for call in message.tool_calls or [] -%}
{%- set call = call.function or call -%}
{%- set given = call.arguments or {} -%}
{%- set given = given if given is string else given|tojson -%}
{%- set given = '{"name": ' + call.name|tojson + ', "arguments": ' + given + '}' -%}
{%- set ns.words = ns.words + ('\\n' if ns.words else '') + '<tool_call>\\n' + given + '\\n</tool_call>' -%}
{%- endfor -%}
{%- endif -%}
{%- set role = 'user' if message.role == 'tool' else message.role -%}
{%- set ns.turns = ns.turns + [{'role': role, 'content': ns.words}] -%}
{%- endfor -%}
{%- set messages = ns.turns -%}
{%- set tools = none -%}
{%- endif %}
"""  # noqa: E501
for name, text in {"ASSISTANT": "You are a helpful assistant.", "HEAD": HEAD, "TAIL": TAIL}.items():
    TEMPLATE_PREFIX = TEMPLATE_PREFIX.replace(name, "'" + text.replace("\n", "\\n") + "'")


def system(tools: Sequence[Tool]) -> str:
    return "\n".join([HEAD, *(to_json(tool.schema) for tool in tools), TAIL])


def assistant(message: Message) -> str:
    calls = [
        f"{OPEN}\n{to_json({'name': c.name, 'arguments': c.arguments})}\n{CLOSE}"
        for c in message.calls
    ]
    return "\n".join(filter(None, [message.content.strip(), *calls]))


def results(messages: Sequence[Message]) -> str:
    return "\n".join(
        f"<tool_response>\n{message.content}\n</tool_response>" for message in messages
    )


def parse(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """Every block from its opening tag on; a tag inside a JSON string does not end it."""
    calls: list[Call] = []
    words: list[str] = []  # before the first block, between blocks, and behind the last
    position, problem = 0, ""
    while not problem and (start := text.find(OPEN, position)) >= 0:
        words.append(text[position:start])
        try:
            value, end = json_object(text, start + len(OPEN))
        except ValueError:
            problem = "call is not JSON" if CLOSE in text[start:] else "call not closed"
            position = len(text)
            break
        call, problem = to_call(value.get("name"), value.get("arguments", {}))
        calls += [call] if call else []
        close = text.find(CLOSE, end)
        if not problem and (close < 0 or text[end:close].strip()):
            problem = "call not closed"
        position = close + len(CLOSE) if close >= 0 else len(text)
    words.append(text[position:])
    trailing = "".join(words[1:]).strip() if calls else ""
    return Parsed("".join(words).strip(), tuple(calls), problem, trailing)


def parse_json(text: str, tools: Sequence[Tool] = ()) -> Parsed:
    """Bare objects with `;` between, as Llama 3 writes them: {"name": ..., "parameters": {...}}."""
    calls: list[Call] = []
    rest = text.strip().removeprefix("<|python_tag|>")
    while rest.startswith("{"):
        try:
            value, end = json_object(rest)
        except ValueError:
            return Parsed("", tuple(calls), "call is not JSON")
        arguments = value.get("parameters", value.get("arguments", {}))
        call, problem = to_call(value.get("name"), arguments)
        if call is None:
            return Parsed("", tuple(calls), problem)
        calls.append(call)
        rest = rest[end:].lstrip(" ;\n")
    return Parsed(rest, tuple(calls), "text after a call" if calls and rest else "")


PROTOCOL = Protocol(
    "hermes", parse, system, assistant, results, result_role="user", template_prefix=TEMPLATE_PREFIX
)
CHAT = Protocol("chat", parse, native=True)
