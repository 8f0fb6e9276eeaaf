"""A model -> an OpenAI-compatible server, until it is stopped."""

import json
import logging
import signal
from typing import Annotated

import click
from msgspec import Meta

from agentlite.cli.options import Command, DecodingOptions
from agentlite.config.fields import COMMON, Count

Port = Annotated[int, Meta(ge=0, le=65535)]


class ServeOptions(DecodingOptions, frozen=True, kw_only=True):
    """What a server of a model can be told.

    Server:
        port: port to listen on; 0 for any that is free
    Sampling:
        max_new_tokens: maximum tokens of an answer, also where a client asks for more
    """

    port: Annotated[Port, COMMON] = 8000
    max_new_tokens: Annotated[Count, COMMON] = 1024


def serve(options: ServeOptions) -> None:
    """Raises UserError 2, 5, 7 or 8. The port is taken before the model is loaded, which takes
    longer.
    """
    from agentlite.core import console
    from agentlite.core.errors import require

    require("serve", ("starlette", "uvicorn"), "pip install 'agentlite[serve]'")
    from agentlite.deploy.server import Server

    model = options.chat_model()
    logging.basicConfig(format="serve: %(asctime)s %(message)s")  # on stderr
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    with Server(model, options.port) as server:
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


COMMAND = Command("serve", ServeOptions, serve)
