"""The model's own protocol: its chat template prints tools and calls; readers of their syntaxes."""

from agentlite.core.records import Call, Parsed
from agentlite.rendering.protocol import Protocol, json_object, named_call
from agentlite.rendering.protocols import hermes


def parse_json(text: str) -> Parsed:
    """Bare objects, as Llama 3 writes them: {"name": ..., "parameters": {...}}, several with `;`
    between.
    """
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


PROTOCOL = Protocol("chat", hermes.parse, native=True, readers=(hermes.parse, parse_json))
