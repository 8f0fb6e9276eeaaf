"""This machine -> what is there and what it can train, as a table; exit code 1 where something is
in the way.
"""

import sys
import time
from pathlib import Path

import click

from agentlite.cli.options import AS_JSON, DEBUG, RUN


def doctor(run: str, as_json: bool, debug: bool) -> None:
    """Prints the findings, each that is not ok with what to do."""
    import msgspec

    from agentlite.cli.doctor import findings
    from agentlite.core.console import print_table

    started = time.monotonic()
    found = findings(Path(run))
    problems = sum(one.state == "problem" for one in found)
    if as_json:
        told = {
            "command": "doctor",
            "findings": found,
            "problems": problems,
            "seconds": round(time.monotonic() - started, 1),
        }
        print(msgspec.json.encode(told).decode())
    else:
        rows = [["", "", ""]]
        for one in found:
            rows += [
                [one.state, one.name, one.found],
                *([["", "", f"-> {one.fix}"]] if one.fix else []),
            ]
        print_table(rows, words=3)
        warnings = sum(one.state == "warning" for one in found)
        print(f"problems: {problems}, warnings: {warnings}")
    if problems:
        sys.exit(1)


COMMAND = click.Command(
    "doctor",
    params=[RUN, AS_JSON, DEBUG],
    callback=doctor,
    epilog="Exit code 1 if there is a problem; warnings are none.",
)
