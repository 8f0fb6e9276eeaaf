"""A call, or the gold of one, beside the tools on offer -> what is wrong with it.

And gold -> arguments that satisfy it.
"""

from collections.abc import Mapping
from typing import Any

from agentlite.core.errors import RowError, closest
from agentlite.core.json_schema import Schema, allows_key, fits, schema_at, value_problem
from agentlite.core.records import Call, GoldCall, Tool, choices_of, to_json

NO_TOOLS = (
    'Add the tools: "tools": [...]; the same ones to every row: `jq -c --slurpfile tools '
    "tools.json '.tools = $tools[0]' FILE > rows.jsonl`; or take the calls out."
)


def tool_of(call: Call, tools: Mapping[str, Tool]) -> Tool:
    """Raises RowError E209 if no tool has its name."""
    tool = tools.get(call.name)
    if tool is None:
        match = closest(call.name, tools)
        suffix = f"; the nearest is {match}" if match else f"; it has {', '.join(tools) or 'none'}"
        raise RowError(
            "E209", f"the row has no tool {call.name}{suffix}", "" if tools else NO_TOOLS, call.name
        )
    return tool


def check_arguments(call: Call, tool: Tool, is_typed: bool = True) -> None:
    """Raises RowError E210. `is_typed`: hold the values to the schema."""
    for name in tool.parameters.get("required", []):
        if name not in call.arguments:
            raise RowError("E210", f"{call.name}: the required {name} is missing", at=call.name)
    for name in call.arguments:
        if not allows_key(tool.parameters, name):
            match = closest(name, schema_at(tool.parameters, "properties"))
            suffix = f"; the nearest is {match}" if match else ""
            raise RowError("E210", f"{call.name} has no parameter {name}{suffix}", at=name)
    if is_typed and (problem := value_problem(call.arguments, tool.parameters)):
        raise RowError("E210", f"{call.name}: {problem}", at=problem.partition(":")[0])


def gold_arguments(call: GoldCall, tools: tuple[Tool, ...]) -> dict[str, Any]:
    """The first accepted values that fit the tool's schema; none where any arguments do."""
    return _first_accepted(call.arguments or {}, parameters_of(call.name, tools))


def parameters_of(name: str, tools: tuple[Tool, ...]) -> Schema:
    return next((tool.parameters for tool in tools if tool.name == name), {})


def gold_problem(call: GoldCall, schema: Schema) -> str:
    """Why no call that fits the tool's schema satisfies the gold; "" if one does."""
    for name, accepted in (call.arguments or {}).items():
        if not allows_key(schema, name) and "" not in accepted:
            return f"it accepts values of {name}, which the tool does not take"
        if not accepted:
            return f"it accepts no value of {name}"
        declared = schema_at(schema, "properties", name)
        values = [argument_of(value, declared) for value in accepted if value != ""]
        if not values or any(fits(value, declared) for value in values):
            continue
        # a list that should be the value itself, and was taken for the list of accepted values
        suffix = f'; for the list itself write "{name}": {to_json([accepted])}'
        # "sizes": [1, 2] accepts 1 or 2, of which none is an array; [[1, 2]] accepts the array
        is_list = len(values) == len(accepted) and fits(values, declared)
        return f"no value it accepts of {name} fits the schema{suffix * is_list}"
    return ""


def _first_accepted(accepted: dict[str, list[Any]], schema: Schema) -> dict[str, Any]:
    """The first accepted value of each key, of those that fit if any do; keys that may be left out
    are, unless the schema requires them.
    """
    required = schema.get("required", [])
    arguments = {}
    for key, choices in accepted.items():
        # an accepted "" says that the argument may be left out
        if "" in choices and key not in required:
            continue
        declared = schema_at(schema, "properties", key)
        values = [argument_of(value, declared) for value in choices if value != ""]
        fitting = (value for value in values if fits(value, declared))
        arguments[key] = next(fitting, values[0] if values else "")
    return arguments


def argument_of(value: object, schema: Schema) -> Any:
    """An accepted value as an argument: {"city": ["Oslo", "Bergen"]} as {"city": "Oslo"}."""
    if isinstance(value, dict):
        return _first_accepted(choices_of(value), schema)
    if isinstance(value, list):
        return [argument_of(inner, schema_at(schema, "items")) for inner in value]
    return value
