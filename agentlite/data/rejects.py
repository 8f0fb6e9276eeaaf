"""rejects.jsonl: rejected rows with their bytes and reasons."""

import base64
from typing import NamedTuple

from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import Row


class Reject(NamedTuple):
    """`part`: which of the samples of the row, where it holds several; 0 otherwise. `hint`, `at`:
    of its RowError.
    """

    location: str
    content: bytes
    code: str
    reason: str
    part: int = 0
    hint: str = ""
    at: str | int = ""


def reject_row(reject: Reject) -> Row:
    row = {
        "location": reject.location,
        "code": reject.code,
        "reason": reject.reason,
        "hint": reject.hint or CODES[reject.code].hint,
    }
    if reject.part:
        row["part"] = str(reject.part)
    try:
        return {**row, "raw": reject.content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**row, "raw_base64": base64.b64encode(reject.content).decode("ascii")}
