"""TRL's and MLX's rows of a prompt and its completion -> Record: only the completion is learned."""

from typing import Any

from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import Record
from agentlite.data.formats import openai
from agentlite.data.formats.extra_fields import rest

EXAMPLE = '{"prompt": [{"role": "user", "content": "Is it wet in Oslo?"}], "completion": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}]}], "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]}'  # noqa: E501  (a row is one line)
FIELDS = {"prompt": str | list, "completion": str | list}


def fits(row: dict[str, Any]) -> bool:
    return row.get("gold") is None and all(
        isinstance(turns, str) or (bool(turns) and openai.fits({"messages": turns}))
        for turns in (row["prompt"], row["completion"])
    )


def read(row: dict[str, Any]) -> Record:
    """Texts are a question and its answer."""
    if isinstance(row.get("label"), bool):
        raise RowError(
            "E201",
            "label: a preference, whose completion may be one that is not to be imitated",
            "Leave out the rows whose label is false, and the key: `jq -c 'select(.label) | "
            "del(.label)' FILE > rows.jsonl`.",
            "label",
        )
    prompt, completion = _turns(row["prompt"], "user"), _turns(row["completion"], "assistant")
    openai.refuse_another(row, "prompt", [*prompt, *completion], "messages")
    record = openai.read({**rest(row, "prompt", "completion"), "messages": [*prompt, *completion]})
    shown = len(openai.read({"messages": prompt}).messages)
    learned = [
        replace(message, loss=message.loss and (place >= shown or message.role != "assistant"))
        for place, message in enumerate(record.messages)
    ]
    return replace(record, messages=tuple(learned))


def _turns(value: str | list[Any], role: str) -> list[Any]:
    return [{"role": role, "content": value}] if isinstance(value, str) else value
