"""A model -> an OpenAI-compatible server, until it is stopped."""

import json
import os
import signal
from typing import Annotated

import click
from msgspec import Meta

from agentlite.cli.decoding_options import DecodingOptions
from agentlite.cli.help_page import Command
from agentlite.config.fields import COMMON, Count, Section, Whole
from agentlite.config.metavars import Metavar, Variable
from agentlite.config.settings import SAMPLING

SERVER = Section("Server")
Port = Annotated[int, Meta(ge=0, le=65535)]

LEAST_TOKEN = 16  # characters


class ServeOptions(DecodingOptions, frozen=True, kw_only=True):
    port: Annotated[Port, SERVER, COMMON] = 8000
    """port to listen on; 0 for any that is free"""
    host: Annotated[str, Metavar("ADDRESS"), SERVER, COMMON] = "127.0.0.1"
    """address to listen on; one that other machines reach needs --token-env"""
    token_env: Annotated[Variable, SERVER, COMMON] = ""
    """environment variable with the token that clients must send as their API key"""
    max_new_tokens: Annotated[Count, SAMPLING, COMMON] = 1024
    """maximum tokens of an answer, also where a client asks for more"""
    queue: Annotated[Whole, SERVER] = 64
    """requests that may wait; more are answered with 503"""


def serve(options: ServeOptions) -> None:
    """Raises UserError 2, 5, 7 or 8. The port is taken before the model is loaded, which takes
    longer.
    """
    from agentlite.core import console
    from agentlite.core.errors import need

    need("serve", ("starlette", "uvicorn"), "pip install 'agentlite[serve]'")
    from agentlite.deploy.server import Server

    token = read_token(options.token_env) if options.token_env else ""
    model = options.chat_model()
    with Server(
        model, options.port, host=options.host, token=token, longest_queue=options.queue
    ) as server:
        model.load()
        facts = {
            "url": server.url,
            "model": options.model,
            "protocol": model.protocol.name,
            "max_length": model.max_length,
        }
        line = f"serve: {options.model} at {server.url} (Ctrl-C stops)"
        click.echo(json.dumps(facts) if options.as_json else line)
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


COMMAND = Command("serve", ServeOptions, serve)
