"""agentlite's own rows, as prep writes them -> Record."""

import json
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.plain_words import misfit
from agentlite.core.records import Record, from_row
from agentlite.data.formats.json_decode import json_value
from agentlite.data.formats.tool_calls import json_schema

EXAMPLE = '{"id": "", "parent": "", "source": "mine.jsonl", "task": "general", "split": "train", "messages": [{"role": "user", "content": "Good morning"}, {"role": "assistant", "content": "Good morning!"}], "tools": "[]", "gold": "{}", "meta": "{}"}'  # noqa: E501  (a row is one line)
FIELDS = {
    "messages": list,
    **dict.fromkeys(("parent", "source", "task", "split", "tools", "gold", "meta"), str),
}


def read(row: dict[str, Any]) -> Record:
    """Raises RowError E201 with what does not fit, E211, or what is wrong with a JSON text."""
    try:
        record = msgspec.convert(
            msgspec.to_builtins(from_row(row)), Record
        )  # nothing else looks at the types
        json_value(json.dumps(msgspec.to_builtins(record, str_keys=True)))
        msgspec.convert(record.meta.get("joined", []), list[str])
        tools = tuple(
            replace(tool, parameters=json_schema(tool.parameters, tool.name))
            for tool in record.tools
        )
        return replace(record, tools=tools)
    except msgspec.ValidationError as error:
        raise RowError("E201", misfit(error)) from error
    except RecursionError as error:
        raise RowError("E119", "nested too deep") from error
