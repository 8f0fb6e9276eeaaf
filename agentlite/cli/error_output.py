"""An error that a user can fix -> a few lines on stderr and, with --json, an object on stdout."""

import json
import os
import sys

import click

from agentlite.core.console import hidden
from agentlite.core.errors import GATE, NAMES, UserError


def print_error(error: UserError) -> None:
    head = click.style("Error:", fg="red", bold=True)
    click.echo(f"{head} {error}", err=True, color=False if os.environ.get("NO_COLOR") else None)
    print_json(error)


def print_json(error: UserError) -> None:
    """With --json, the error as the one object on stdout, unless the result stands there: that of a
    gate that is not passed.
    """
    if "--json" not in sys.argv or error.exit_code == GATE:
        return
    report = {
        "code": NAMES.get(error.exit_code, "fault"),
        "location": hidden(error.location),
        "problem": hidden(error.problem),
        "fix": hidden(error.fix),
        "exit_code": error.exit_code,
    }
    click.echo(json.dumps({"error": report}, ensure_ascii=False))
