"""Reject codes: what each one means, how to repair such a row, and a row before and after."""

import tomllib
from pathlib import Path
from typing import NamedTuple

from agentlite.core.errors import UserError, nearest


class Code(NamedTuple):
    """An entry of reject_codes.toml, which says what the fields are."""

    meaning: str
    hint: str
    before: str
    after: str
    options: str = ""
    after_options: str = ""
    how: str = ""
    after_how: str = ""


TABLE = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
CODES = {code: Code(**fields) for code, fields in tomllib.loads(TABLE).items()}


def explain(code: str) -> str:
    """Raises UserError for a code that is none, with the nearest."""
    name = code.strip().upper()
    if name not in CODES:
        raise UserError(f"no code '{code}'.", nearest(name, CODES), location="--explain")
    known = CODES[name]
    command = "pairs --preferences" if name == "E219" else "prep"
    parts = [f"{name}: {known.meaning}\n{known.hint}"]
    for title, options, how, rows in (
        ("Before", known.options, known.how, known.before),
        ("After", known.after_options, known.after_how, known.after),
    ):
        head = f"{title}: agentlite {command} rows.jsonl {options}".rstrip()
        parts.append(f"\n{head}{f'  (rows.jsonl: {how})' if how else ''}\n{rows}")
    return "\n".join(parts)
