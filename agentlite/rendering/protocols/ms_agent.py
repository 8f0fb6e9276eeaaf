"""ms-agent: ReAct under the prompt of ms-agent's rows, with numbered APIs and Python literals.

Action: weather
Action Input: {'city': 'Oslo'}
Observation: 4 mm of rain
Thought: I now know the final answer
Final Answer: Yes, about 4 mm.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentlite.core.records import Message, Tool, plain
from agentlite.rendering.protocols import react

FRAME = """Answer the following questions as best you can. You have access to the following APIs:
{apis}

Use the following format:

Thought: you should always think about what to do
Action: the action to take, should be one of the above tools[{names}]
Action Input: the input to the action
Observation: the result of the action
... (this Thought/Action/Action Input/Observation can be repeated zero or more times)
Thought: I now know the final answer
Final Answer: the final answer to the original input question
Begin!"""


def system(tools: Sequence[Tool]) -> str:
    apis = [f"{n}. {tool.name}: {_described(tool)}" for n, tool in enumerate(tools, 1)]
    names = ", ".join(tool.name for tool in tools)
    return FRAME.format(apis="\n\n".join(apis), names=names) if tools else ""


def _described(tool: Tool) -> str:
    about = tool.description.strip()
    if not about.startswith(react.CALL_THIS):  # as the rows of ms-agent have it
        about = f"{react.ENGLISH.about.format(name=tool.name)}{about}"
    properties = _flagged(tool.parameters).get("properties", {})
    parameters = [{"name": name, **schema} for name, schema in properties.items()]
    return f"{about} Parameters: {plain(parameters)}"


def _flagged(schema: Any) -> dict[str, Any]:
    """A schema whose properties say themselves whether they are required, at every depth."""
    if not isinstance(schema, dict):
        return {}
    required = schema.get("required", [])
    flagged = {key: value for key, value in schema.items() if key != "required"}
    if isinstance(schema.get("properties"), dict):
        flagged["properties"] = {
            name: {**_flagged(inner), "required": str(name in required)}
            for name, inner in schema["properties"].items()
        }
    if isinstance(schema.get("items"), dict):
        flagged["items"] = _flagged(schema["items"])
    return flagged


def assistant(message: Message) -> str:
    return react.assistant(message, react.ENGLISH, repr)


PROTOCOL = replace(react.PROTOCOL, name="ms-agent", system=system, assistant=assistant)
