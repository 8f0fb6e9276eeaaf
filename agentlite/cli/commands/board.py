"""`agentlite board`: one local page over workspaces, which shows, compares, starts and stops."""

import json
import os
import secrets
import signal
import threading
from pathlib import Path
from typing import Annotated

import click
from msgspec import Meta

from agentlite.cli.browser import open_in_browser
from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, OUTPUT, Option, OptionType
from agentlite.config.metavars import Folder, Variable
from agentlite.core.errors import UserError

SERVER = "Server"
Port = Annotated[int, Meta(ge=0, le=65535)]
RUNS = "runs"  # the folder of the workspaces where the user names none
LEAST_TOKEN = 16  # characters


def board(
    folders: tuple[str, ...],
    port: int,
    token_env: str,
    read_only: bool,
    no_browser: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Serves the page until Ctrl-C. Commands that it has started go on. Raises UserError 2."""
    from agentlite.cli.run_listing import key_figure, load_key_figures
    from agentlite.core import console
    from agentlite.deploy.board.board_server import BoardServer
    from agentlite.deploy.board.workspaces import defaults

    token = read_token(token_env) if token_env else secrets.token_urlsafe(24)
    paths = [Path(folder) for folder in folders or (os.environ.get("AGENTLITE_RUN") or RUNS,)]
    for path in paths if folders else ():
        if not path.is_dir():
            raise UserError(
                "no such folder.",
                "Name a workspace, or a folder of workspaces.",
                location=str(path),
            )
    # a board that a script has put into the background ignores Ctrl-C, and what it starts would too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with BoardServer(
        paths, port, token=token, read_only=read_only, key_figure=key_figure
    ) as server:
        # while the browser opens: the first look at a workspace needs both
        for prepare in (defaults, load_key_figures):
            threading.Thread(target=prepare, daemon=True).start()
        address = {"url": server.url, "folders": [*map(str, paths)]}
        click.echo(json.dumps(address) if as_json else f"board: {server.url} (Ctrl-C stops)")
        if not (no_browser or as_json):
            open_in_browser(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.notice("board: stopped; commands that it has started go on")


def read_token(name: str) -> str:
    """The token in an environment variable. Raises UserError 2 for one that is missing, or that an
    address cannot hold.
    """
    token = os.environ.get(name, "")
    is_plain = token.isascii() and token.replace("-", "").replace("_", "").isalnum()
    if len(token) < LEAST_TOKEN or not is_plain:
        raise UserError(
            f"{name} does not hold a token: at least {LEAST_TOKEN} letters, digits, - or _.",
            f'Make one: export {name}="$(openssl rand -hex 32)".',
            location="--token-env",
        )
    return token


COMMAND = Command(
    "board",
    params=[
        click.Argument(["folders"], nargs=-1, type=OptionType(Folder), metavar="[FOLDER]..."),
        Option(
            ["--port"],
            Port,
            section=SERVER,
            common=True,
            default=8001,
            help="port to listen on, on this machine alone; 0 for any that is free",
        ),
        Option(
            ["--token-env"],
            Variable,
            section=SERVER,
            default="",
            help="environment variable with the token of the address, so that links stay valid",
        ),
        Option(
            ["--read-only"],
            section=SERVER,
            common=True,
            is_flag=True,
            help="show everything, and start or stop nothing",
        ),
        Option(
            ["--no-browser"],
            section=OUTPUT,
            common=True,
            is_flag=True,
            help="print the address, without opening it",
        ),
        AS_JSON,
        DEBUG,
    ],
    callback=board,
)
