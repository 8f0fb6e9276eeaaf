"""bytes -> raw rows -> Record: one file a format, chosen here by content or by name."""

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from agentlite.errors import RowError, UserError
from agentlite.records import Record
from agentlite.sources import bfcl, ms_agent, openai, prompts, sharegpt, stored
from agentlite.sources.raw import Raw, raw_files, read_raw


class Format(NamedTuple):
    """How rows of a format are known, how they are read, and what one looks like."""

    fits: Callable[[dict[str, Any]], bool]
    read: Callable[[dict[str, Any]], Record]
    example: str


# the most particular first: an ms_agent row is also a ShareGPT row; a stored one and a prompt also an OpenAI row
FORMATS: dict[str, Format] = {
    "agentlite": Format(stored.fits, stored.read, stored.EXAMPLE),
    "bfcl": Format(bfcl.fits, bfcl.read, bfcl.EXAMPLE),
    "ms_agent": Format(ms_agent.fits, ms_agent.read, ms_agent.EXAMPLE),
    "sharegpt": Format(sharegpt.fits, sharegpt.read, sharegpt.EXAMPLE),
    "prompts": Format(prompts.fits, prompts.read, prompts.EXAMPLE),
    "openai": Format(openai.fits, openai.read, openai.EXAMPLE),
}


def to_record(value: dict[str, Any], format: str | None = None, *, no_call_answer: str = bfcl.NO_CALL_ANSWER) -> Record:
    """A row of a named format, or of the first that fits. Raises RowError for the row, UserError for the name."""
    name = format or _detected(value)
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, 1)
        fix = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(FORMATS)}."
        raise UserError(f"unknown format {name!r}.", fix, place="--format")
    record = bfcl.read(value, no_call_answer) if name == "bfcl" else FORMATS[name].read(value)
    try:
        return msgspec.convert(msgspec.to_builtins(record), Record)  # the readers copy what they do not look into
    except msgspec.ValidationError as error:
        raise RowError("E201", f"not as {name} has it: {error}") from error


def _detected(value: dict[str, Any]) -> str:
    for name, known in FORMATS.items():
        if known.fits(value):
            return name
    raise RowError("E202", f"no known format fits: keys {', '.join(map(str, value)) or 'none'}")


__all__ = ["FORMATS", "Format", "Raw", "raw_files", "read_raw", "to_record"]
