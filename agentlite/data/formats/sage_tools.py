"""SAGE's AgentToolRecord -> Record: each example of a tool's use is a question and its call."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from agentlite.core.errors import RowError
from agentlite.core.records import ANY_ARGUMENTS, SPLITS, Call, GoldCall, Message, Record, Tool
from agentlite.data.formats.extra_fields import meta_of, rest, text_at
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.tool_calls import (
    ARGUMENTS,
    arguments_of,
    from_list,
    json_schema,
    without_filled,
)

EXAMPLE = '{"tool_id": "rain_001", "name": "Rain", "category": "weather", "capabilities": ["rain of today"], "inputs": [{"name": "city", "type": "string", "required": true, "description": "a town", "default": null}], "outputs": [{"name": "mm", "type": "number", "description": ""}], "invoke_examples": [{"instruction": "Is it wet in Oslo?", "arguments": {"city": "Oslo"}, "expected_output": {"mm": 4}}], "reliability_score": 0.9, "latency_ms_p50": 20, "metadata": {"version": "1.0"}}'  # noqa: E501  (a row is one line)
FIELDS = {"tool_id": object}
EXAMPLES = "invoke_examples"
NO_CATALOGUE: Mapping[str, Tool] = MappingProxyType({})
OPEN: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}


def fits(row: dict[str, Any]) -> bool:
    return row.get("tool_id") is not None and EXAMPLES in row


def parts(row: dict[str, object]) -> list[dict[str, object]]:
    """A row for each example. A tool without any stays one row, for `read` to refuse."""
    examples = row.get(EXAMPLES)
    if not isinstance(examples, list) or not examples:
        return [row]
    return [{**row, EXAMPLES: [example]} for example in examples]


def read(row: dict[str, Any]) -> Record:
    """The example's result is what a tool would say, not what a model learns: it is in meta."""
    examples = row.get(EXAMPLES)
    if not examples:
        raise RowError(
            "E201",
            "a tool without examples of its use: there is nothing to learn from (to describe tools "
            "alone, give the file as --tools)",
        )
    example, tool = examples[0], declared(row)
    if not isinstance(example, dict):
        raise RowError("E201", f"an example is {example!r:.60}, not an object")
    given = arguments_of({"name": tool.name, **rest(example, "instruction", "expected_output")})
    arguments = without_filled(example, given, tool)
    call = Call(tool.name, arguments, "call_0")
    extra = rest(example, "instruction", *ARGUMENTS)
    question = Message("user", text_at(example, "instruction"))
    meta = meta_of({**row, "id": tool.name}, EXAMPLES, "tool_id", "inputs")
    return Record(
        messages=(question, Message("assistant", calls=(call,))),
        tools=(tool,),
        meta=meta | ({"example": extra} if extra else {}),
    )


def declared(value: object, catalogue: Mapping[str, Tool] = NO_CATALOGUE) -> Tool:
    """A tool by its id, as SAGE's dialogs and tasks name it: the one of the catalogue, unless its
    inputs stand here. Of one that is only an id, any argument is taken.
    """
    given: dict[str, Any] = value if isinstance(value, dict) else {"tool_id": value}
    tool_id, name, can = (given.get(key) for key in ("tool_id", "name", "capabilities"))
    if not isinstance(tool_id, str) or not tool_id.strip():
        raise RowError("E212", f"a tool without an id: {shortened(value)}")
    # the schema has no description: the name and what the tool can do stand in for it
    able = ", ".join(one for one in can if isinstance(one, str)) if isinstance(can, list) else ""
    description = ": ".join(filter(None, (name if isinstance(name, str) else "", able)))
    if given.get("inputs") is None:
        return catalogue.get(tool_id) or Tool(tool_id, description, OPEN)
    schema = from_list([{"required": True, **rest(one)} for one in given["inputs"]], tool_id)
    return Tool(tool_id, description, json_schema(schema, tool_id))


def is_id_alone(tool: Tool) -> bool:
    """Whether nothing is known of a tool but its id."""
    return not tool.description and tool.parameters == OPEN


def undescribed(tools: Iterable[Tool]) -> list[str]:
    """The ids of the tools of which nothing else is known."""
    return [tool.name for tool in tools if is_id_alone(tool)]


def unknown_call(tool_id: str, tools: Iterable[Tool]) -> GoldCall:
    """The gold of a call that comes without arguments: they are not known, unless the tool takes
    none.
    """
    parameters = next((tool.parameters for tool in tools if tool.name == tool_id), OPEN)
    takes_none = not parameters.get("properties") and not parameters.get("additionalProperties")
    return GoldCall(tool_id, {} if takes_none else ANY_ARGUMENTS)


def split_of(row: dict[str, object]) -> str:
    """The split that the row names. Raises RowError E201 for one that is not known."""
    split = row.get("split") or ""
    if split and split not in SPLITS:
        raise RowError("E201", f"unknown split {split!r}; known: {', '.join(SPLITS)}")
    return str(split)
