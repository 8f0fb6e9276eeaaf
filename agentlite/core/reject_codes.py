"""Reject codes: what each one means, and how to repair such a row."""

import tomllib
from pathlib import Path
from typing import NamedTuple

from agentlite.core.errors import UserError, suggest


class RejectCode(NamedTuple):
    meaning: str
    hint: str


TABLE = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
CODES = {code: RejectCode(**fields) for code, fields in tomllib.loads(TABLE).items()}


def explain_code(code: str) -> str:
    """Raises UserError for a code that is none, with the nearest."""
    name = code.strip().upper()
    if name not in CODES:
        raise UserError(f"no code '{code}'.", suggest(name, CODES), location="--explain")
    return f"{name}: {CODES[name].meaning}\n{CODES[name].hint}"
