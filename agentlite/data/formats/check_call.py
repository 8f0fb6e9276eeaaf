"""A call beside the tools on offer -> nothing, or what is wrong with it."""

from collections.abc import Mapping

from agentlite.core.errors import RowError, closest
from agentlite.core.json_schema import misfit, schema_at, takes
from agentlite.core.records import Call, Tool

NO_TOOLS = (
    'Add the tools: "tools": [...]; the same ones to every row: `jq -c --slurpfile tools '
    "tools.json '.tools = $tools[0]' FILE > rows.jsonl`; or take the calls out."
)


def tool_of(call: Call, tools: Mapping[str, Tool]) -> Tool:
    """Raises RowError E209 if no tool has its name."""
    tool = tools.get(call.name)
    if tool is None:
        near = closest(call.name, tools)
        others = f"; the nearest is {near}" if near else f"; it has {', '.join(tools) or 'none'}"
        hint = "" if tools else NO_TOOLS
        raise RowError("E209", f"the row has no tool {call.name}{others}", hint, call.name)
    return tool


def check_arguments(call: Call, tool: Tool, is_typed: bool = True) -> None:
    """Raises RowError E210. `is_typed`: hold the values to the schema."""
    for name in tool.parameters.get("required", []):
        if name not in call.arguments:
            raise RowError("E210", f"{call.name}: the required {name} is missing", at=call.name)
    for name in call.arguments:
        if not takes(tool.parameters, name):
            near = closest(name, schema_at(tool.parameters, "properties"))
            others = f"; the nearest is {near}" if near else ""
            raise RowError("E210", f"{call.name} has no parameter {name}{others}", at=name)
    if is_typed and (problem := misfit(call.arguments, tool.parameters)):
        raise RowError("E210", f"{call.name}: {problem}", at=problem.partition(":")[0])
