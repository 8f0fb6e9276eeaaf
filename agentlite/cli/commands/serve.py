"""A model -> an OpenAI-compatible server, until it is stopped."""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
from msgspec import Meta

from agentlite.cli.decoding_options import DECODING
from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, RUN, Option, OptionType
from agentlite.config.metavars import Metavar, Model, Variable
from agentlite.config.pipeline import TRAINED
from agentlite.config.settings import Whole

Port = Annotated[int, Meta(ge=0, le=65535)]
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
    from agentlite.core.errors import need
    from agentlite.deploy.chat_model import ChatModel

    need("serve", ("starlette", "uvicorn", "llguidance"), "pip install 'agentlite[serve]'")
    from agentlite.deploy.server import Server

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
            server.run()
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


_server = partial(Option, section="Server", common=True)
COMMAND = Command(
    "serve",
    params=[
        click.Argument(["model"], default=TRAINED, type=OptionType(Model)),
        _server(["--port"], Port, default=8000, help="port to listen on; 0 for any that is free"),
        _server(
            ["--host"],
            Annotated[str, Metavar("ADDRESS")],
            default="127.0.0.1",
            help="address to listen on; one that other machines reach needs --token-env",
        ),
        _server(
            ["--token-env"],
            Variable,
            default="",
            help="environment variable with the token that clients must send as their API key",
        ),
        Option(
            ["--queue"],
            Whole,
            section="Server",
            default=64,
            help="requests that may wait; more are answered with 503 and Retry-After",
        ),
        *DECODING,
        RUN,
        AS_JSON,
        DEBUG,
    ],
    callback=serve,
)
