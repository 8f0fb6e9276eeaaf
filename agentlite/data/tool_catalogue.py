"""Rows that declare tools -> the tool of each name, for rows that name their tools by ids alone."""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import to_builtins

from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Tool, canonical
from agentlite.data.formats import sage
from agentlite.data.formats.raw_rows import Raw, read_raw
from agentlite.data.formats.tool_calls import read_tool

# a row of SAGE's agent_tools holds both: a line without them need not be decoded
SIGNS = tuple(f'"{key}"'.encode() for key in ("tool_id", sage.EXAMPLES))
SHAPE = (
    '{"type": "function", "function": {"name": "weather", "description": "...", "parameters": '
    "{...}}}"
)


class DeclaredTool(NamedTuple):
    """A tool of a file: where it stands, the value it was read from, and the tool or the reason why
    it is none.
    """

    location: str
    value: Any
    tool: Tool | None
    error: RowError | None = None


def declared_tools(file: str) -> Iterator[DeclaredTool]:
    """Each tool of a file: rows of SAGE's agent_tools or of OpenAI's shape. A row may hold a list
    under "tools"; the file may be one list.
    """
    for raw in read_raw(file, io.BytesIO()):
        value = raw.value.get("tools", raw.value) if isinstance(raw.value, dict) else raw.value
        for tool in value if isinstance(value, list) else [value]:
            yield _declared_tool(raw.location, tool, raw.error)


def read_catalogue(files: Sequence[str], rows: Iterable[Raw]) -> dict[str, Tool]:
    """The tools of files, and of those rows that are SAGE's agent_tools, by name.

    A tool that is declared differently in several rows is the one whose declaration sorts first, so
    that no order of the files matters; this is noted, as are tools of files that cannot be read.
    Raises UserError for a file without any tool.
    """
    declared = [
        _declared_tool(row.location, row.value, row.error)
        for row in rows
        if isinstance(row.value, dict) and sage.TOOLS.fits(row.value)
    ]
    for file in files:
        tools = list(declared_tools(file))
        problems = [f"{tool.error.code} {tool.error.reason}" for tool in tools if tool.error]
        location = next((tool.location for tool in tools if tool.error), "")
        if problems and len(problems) == len(tools):
            fix = f"Its rows are those of SAGE's agent_tools, or such as {SHAPE}."
            raise UserError(f"holds no tool: {problems[0]}.", fix, location=location)
        if problems:
            count = f"{len(problems)} of {len(tools)} tools of the file cannot be read"
            console.notice(f"{location}: {problems[0]}  [{count}]")
        declared += tools
    versions: dict[str, dict[str, Tool]] = defaultdict(dict)  # by name, by declaration
    for tool in (entry.tool for entry in declared if entry.tool):
        versions[tool.name][canonical(to_builtins(tool))] = tool
    if names := sorted(name for name in versions if len(versions[name]) > 1):
        console.notice(
            f"{len(names)} tools are declared differently in several rows, {names[0]} among "
            "them: the declaration that sorts first describes it elsewhere"
        )
    return {name: tools[min(tools)] for name, tools in versions.items()}


def _declared_tool(location: str, value: Any, error: RowError | None) -> DeclaredTool:
    try:
        if error:
            raise error
        is_sage = isinstance(value, dict) and sage.TOOLS.fits(value)
        tool = sage.resolve_tool(value) if is_sage else read_tool(value)
    except RowError as problem:
        return DeclaredTool(location, value, None, error=problem)
    return DeclaredTool(location, value, tool)
