"""xLAM and APIGen rows -> Record: {"id", "query", "tools", "answers"}."""

import re
from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.json_schema import DEEPEST
from agentlite.core.plain_words import kind
from agentlite.core.records import Gold, Message, Record, Tool
from agentlite.data.formats.bfcl import NO_CALL_ANSWER
from agentlite.data.formats.extra_fields import meta_of, text_at
from agentlite.data.formats.json_decode import shortened
from agentlite.data.formats.tool_calls import TYPES, json_or_literal, read_call, read_tool

EXAMPLE = r'{"id": 1, "query": "Is it wet in Oslo?", "tools": "[{\"name\": \"weather\", \"description\": \"\", \"parameters\": {\"city\": {\"description\": \"a town\", \"type\": \"str\"}, \"days\": {\"description\": \"\", \"type\": \"int, optional\", \"default\": 1}}}]", "answers": "[{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}]"}'  # noqa: E501  (a row is one line)
FIELDS = {"query": str, "tools": str | list, "answers": str | list}
MAY_BE_MISSING = re.compile(r",\s*optional\b.*|,\s*default\b.*", re.IGNORECASE | re.DOTALL)
OF_ONE_TYPE = ("list", "set")


def read(row: dict[str, Any]) -> Record:
    """No answers: no call is expected."""
    tools = tuple(_tool(tool) for tool in _listed(row, "tools", "E124"))
    answers = [read_call(answer, json_or_literal) for answer in _listed(row, "answers", "E206")]
    calls = tuple(replace(call, id=f"call_{i}") for i, call in enumerate(answers))
    return Record(
        messages=(
            Message("user", text_at(row, "query")),
            Message("assistant", "" if calls else NO_CALL_ANSWER, calls),
        ),
        tools=tools,
        gold={} if calls else {1: Gold(())},
        task="tool_selection" if calls else "timing_decision",
        meta=meta_of(row, "query", "tools", "answers"),
    )


def _listed(row: dict[str, object], key: str, code: str) -> list[object]:
    value = row.get(key)
    if isinstance(value, str):
        try:
            value = json_or_literal(value)
        except RowError as error:
            if error.code != "E206":
                raise
            raise RowError(code, f"{key} are not JSON: {shortened(row[key])}") from error
    if not isinstance(value, list):
        raise RowError(code, f"{key} are {kind(value)}, not a list")
    return value


def _tool(value: object) -> Tool:
    """Parameters stand under their names, with types as Python writes them; some rows have a schema
    instead.
    """
    function = value.get("function") or value if isinstance(value, dict) else None
    parameters = function.get("parameters") if isinstance(function, dict) else None
    if (
        not isinstance(function, dict)
        or not isinstance(parameters, dict)
        or isinstance(parameters.get("type"), str)
    ):
        return read_tool(value)
    properties, required = {}, []
    for name, parameter in parameters.items():
        if parameter is None:
            continue
        written = parameter.get("type")
        described = {key: value for key, value in parameter.items() if key != "type"}
        properties[name] = {**(_schema(written) if isinstance(written, str) else {}), **described}
        # what has a default need not be given, whether or not its type says so
        optional = MAY_BE_MISSING.search(str(written)) or str(written).startswith("Optional[")
        if not optional and "default" not in parameter and "required" not in parameter:
            required.append(name)
    return read_tool(
        {
            **function,
            "parameters": {"type": "object", "properties": properties, "required": required},
        }
    )


def _schema(written: str) -> dict[str, object]:
    """`List[int], optional` as JSON Schema. A type that JSON does not have is left out: any value
    will do.
    """
    if written.count("[") > DEEPEST:
        raise RowError("E119", f"a type nested deeper than {DEEPEST}")
    kind, _, inner = MAY_BE_MISSING.sub("", written).strip().removesuffix("]").partition("[")
    head = kind.strip().lower()
    if head == "optional":
        return _schema(inner)
    elements = _schema(inner) if inner and head in OF_ONE_TYPE else {}
    return ({"type": TYPES[head]} if head in TYPES else {}) | (
        {"items": elements} if elements else {}
    )
