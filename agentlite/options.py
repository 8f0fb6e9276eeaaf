"""Options that commands share: the workspace, one JSON object as the result, tracebacks."""

import click

RUN = click.Option(["--run"], default="runs/default", envvar="AGENTLITE_RUN", metavar="DIR",
                   help="the workspace [AGENTLITE_RUN, runs/default]")  # fmt: skip
AS_JSON = click.Option(["--json", "as_json"], is_flag=True, help="one JSON object on stdout")
DEBUG = click.Option(["--debug"], is_flag=True, help="show tracebacks")
