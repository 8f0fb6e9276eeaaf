"""A model -> an OpenAI-compatible server on this machine, until it is stopped."""

import json
import signal
from pathlib import Path
from typing import Any

import click

from agentlite.cli.options import AS_JSON, DEBUG, DECODING, RUN
from agentlite.config.pipeline import TRAINED


def serve(model: str, port: int, run: str, as_json: bool, debug: bool, **options: Any) -> None:
    """Raises UserError 2, 5, 7 or 8. The port is taken before the model is loaded, which takes
    longer.
    """
    from agentlite.core import console
    from agentlite.deploy.chat_model import ChatModel
    from agentlite.deploy.http_server import Server

    chat_model = ChatModel(model, Path(run), **options)
    with Server(chat_model, port) as server:
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


COMMAND = click.Command(
    "serve",
    params=[
        click.Argument(["model"], default=TRAINED),
        click.Option(
            ["--port"], type=int, default=8000, metavar="N", help="0: any that is free [8000]"
        ),
        *DECODING,
        RUN,
        AS_JSON,
        DEBUG,
    ],
    callback=serve,
)
