"""`agentlite doctor`: a table of findings about this machine; exit code 1 if there is a problem."""

import sys
import time
from pathlib import Path

from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, RUN


def doctor(run: str, as_json: bool, debug: bool) -> None:
    """Prints the findings, each that is not ok with what to do."""
    import msgspec

    from agentlite.cli.doctor import findings
    from agentlite.core.console import print_table

    started = time.monotonic()
    results = findings(Path(run))
    problems = sum(finding.state == "problem" for finding in results)
    if as_json:
        report = {
            "command": "doctor",
            "findings": results,
            "problems": problems,
            "seconds": round(time.monotonic() - started, 1),
        }
        print(msgspec.json.encode(report).decode())
    else:
        rows = [["", "", ""]]
        for finding in results:
            rows += [
                [finding.state, finding.name, finding.detail],
                *([["", "", f"-> {finding.fix}"]] if finding.fix else []),
            ]
        print_table(rows, words=3)
        warnings = sum(finding.state == "warning" for finding in results)
        print(f"problems: {problems}, warnings: {warnings}")
    if problems:
        sys.exit(1)


COMMAND = Command(
    "doctor",
    params=[RUN, AS_JSON, DEBUG],
    callback=doctor,
    epilog="The exit code is 1 if there is a problem; warnings do not count.",
)
