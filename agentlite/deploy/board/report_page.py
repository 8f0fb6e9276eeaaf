"""A workspace's report, or a comparison, made by a process of its own: its memory ends with it.

python -m agentlite.deploy.board.report_page FOLDER [MODEL ...]
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core.console import hidden
from agentlite.core.errors import UserError

FAILED = 3  # the exit status that says why on stdout
TAIL = 2000  # characters


class MadePage(NamedTuple):
    """`is_page`: whether it is the report, in place of why there is none."""

    is_page: bool
    content: bytes


def report_page(run: Path, models: Sequence[str]) -> MadePage:
    """The report for this moment; nothing is written. `models`: those that are compared; all where
    none is named.
    """
    words = [sys.executable, "-m", "agentlite.deploy.board.report_page", str(run), *models]
    made = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
    if made.returncode in (0, FAILED):
        return MadePage(made.returncode == 0, made.stdout)
    printed = hidden(made.stderr.decode("utf-8", "replace")[-TAIL:]).strip()
    why = printed.splitlines()[-1] if printed else f"exit status {made.returncode}"
    more = f"This shows where: {shlex.join(['agentlite', 'report', '--run', str(run), '--debug'])}"
    return MadePage(False, f"The report could not be made ({why}).\n{more}\n".encode())


def answer_of(words: Sequence[str]) -> dict[str, Any]:
    """What a command that only reads answers with --json. Raises UserError as it does."""
    made = subprocess.run(
        [sys.executable, "-m", "agentlite", *words], stdin=subprocess.DEVNULL, capture_output=True
    )
    for line in reversed(made.stdout.splitlines() + made.stderr.splitlines()):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            if made.returncode == 0:
                return found
            error = found.get("error")
            told = error if isinstance(error, dict) else {"problem": str(error or found)}
            raise UserError(*(str(told.get(key, ""))[:TAIL] for key in ("problem", "fix")))
    raise UserError(hidden(made.stderr.decode("utf-8", "replace")[-TAIL:]) or "it gave no answer.")


def main() -> int:
    from agentlite.report.page import page
    from agentlite.report.read_run import read_run, with_models

    try:
        text, code = page(with_models(read_run(Path(sys.argv[1])), sys.argv[2:])), 0
    except UserError as error:  # a finished stage was harmed, say
        text, code = str(error), FAILED
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    return code


if __name__ == "__main__":
    sys.exit(main())
