"""A model -> an OpenAI-compatible server, until it is stopped."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import click

from agentlite.cli.options import AS_JSON, DEBUG, DECODING, RUN
from agentlite.config.pipeline import TRAINED

LEAST_TOKEN = 16  # characters


def serve(
    model: str,
    port: int,
    host: str,
    token_env: str,
    queue: int,
    run: str,
    as_json: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Raises UserError 2, 5, 7 or 8. The port is taken before the model is loaded, which takes
    longer.
    """
    from agentlite.core import console
    from agentlite.deploy.chat_model import ChatModel
    from agentlite.deploy.http_server import Server

    token = read_token(token_env) if token_env else ""
    chat_model = ChatModel(model, Path(run), **options)
    with Server(chat_model, port, host=host, token=token, longest_queue=queue) as server:
        chat_model.load()
        address = {
            "url": server.url,
            "model": model,
            "protocol": chat_model.protocol.name,
            "max_length": chat_model.max_length,
        }
        click.echo(
            json.dumps(address) if as_json else f"serve: {model} at {server.url} (Ctrl-C stops)"
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.notice("serve: stopped")


def read_token(name: str) -> str:
    """The token in an environment variable. Raises UserError 2 for one that is easily guessed, or
    that no client can send.
    """
    from agentlite.core.errors import UserError

    token = os.environ.get(name, "").strip()
    if len(token) < LEAST_TOKEN or not (token.isascii() and token.isprintable()):
        raise UserError(
            f"the environment variable {name} holds no token of at least {LEAST_TOKEN} ASCII "
            "characters.",
            f'Make one: export {name}="$(openssl rand -hex 32)".',
            location="--token-env",
        )
    return token


COMMAND = click.Command(
    "serve",
    params=[
        click.Argument(["model"], default=TRAINED),
        click.Option(
            ["--port"], type=int, default=8000, metavar="N", help="0: any that is free [8000]"
        ),
        click.Option(
            ["--host"],
            default="127.0.0.1",
            metavar="ADDRESS",
            help="address to listen on; beyond this machine with --token-env only [127.0.0.1]",
        ),
        click.Option(
            ["--token-env"],
            default="",
            metavar="VAR",
            help="environment variable that holds the token clients must send as their key",
        ),
        click.Option(
            ["--queue"],
            type=click.IntRange(0),
            default=64,
            metavar="N",
            help="requests that may wait; more are answered with 503 and Retry-After [64]",
        ),
        *DECODING,
        RUN,
        AS_JSON,
        DEBUG,
    ],
    callback=serve,
)
