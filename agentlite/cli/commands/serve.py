"""A model -> an OpenAI-compatible server, until it is stopped."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
from msgspec import Meta

from agentlite.cli.decoding_options import DECODING
from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, RUN, Option, OptionType
from agentlite.config.metavars import Metavar, Model, StageName, Variable
from agentlite.config.pipeline import TRAINED
from agentlite.config.settings import Whole

if TYPE_CHECKING:
    from agentlite.deploy.chat_model import ChatModel
    from agentlite.deploy.saved_dialogs import SavedDialogs

SERVER = "Server"
Port = Annotated[int, Meta(ge=0, le=65535)]

LEAST_TOKEN = 16  # characters


def serve(
    model: str,
    port: int,
    host: str,
    token_env: str,
    queue: int,
    save: str,
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
    from agentlite.workspace.stage_name import refuse_odd_name

    if save:
        refuse_odd_name(save, "rollout", "--save")
    token = read_token(token_env) if token_env else ""
    chat_model = ChatModel(model, Path(run), **options)
    with (
        _saving(save, chat_model, Path(run)) as saved,
        Server(
            chat_model, port, host=host, token=token, longest_queue=queue, saved=saved
        ) as server,
    ):
        with server.loading():
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


@contextmanager
def _saving(save: str, chat_model: "ChatModel", run: Path) -> Iterator["SavedDialogs | None"]:
    """The folder of the dialogs, which is that of a rollout: finished when the server stops. Raises
    UserError 3 for one of another model, 74 or 75.
    """
    if not save:
        yield None
        return
    from agentlite.core import console
    from agentlite.core.row_files import write_rows
    from agentlite.deploy.saved_dialogs import SERVED, SavedDialogs, trajectories
    from agentlite.environments.trajectories import SERVER, TRAJECTORIES
    from agentlite.stages.acting import figures_of
    from agentlite.workspace import run_folder
    from agentlite.workspace.lineage import lineage

    settings = {
        "env": SERVER,
        "model": chat_model.name,
        "protocol": chat_model.protocol.name,
        "split": "all",
    }
    inputs = {"model": chat_model.source.digest}
    plan = run_folder.Plan("rollout", settings, inputs, run_folder.versions())
    folder = run / save
    with run_folder.open_stage(folder, plan, force=False) as stage:
        if stage.status == "done":
            stage.reopen()
        chat_model.keeps_probabilities = True
        console.notice(f"serve: everything that is asked and answered is stored in {folder}")
        try:
            with SavedDialogs(folder, chat_model.template) as saved:
                yield saved
        finally:  # also where the model cannot be loaded: earlier dialogs stay finished
            done = list(trajectories(folder))
            write_rows(folder / TRAJECTORIES, map(msgspec.to_builtins, done))
            figures = {**figures_of(done), "lineage": lineage(chat_model.name, run)}
            stage.finish([SERVED, TRAJECTORIES], figures)
            console.notice(f"serve: {len(done)} dialogs in {folder / TRAJECTORIES}")


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


COMMAND = Command(
    "serve",
    params=[
        click.Argument(["model"], default=TRAINED, type=OptionType(Model)),
        Option(
            ["--port"],
            Port,
            section=SERVER,
            common=True,
            default=8000,
            help="port to listen on; 0 for any that is free",
        ),
        Option(
            ["--host"],
            Annotated[str, Metavar("ADDRESS")],
            section=SERVER,
            common=True,
            default="127.0.0.1",
            help="address to listen on; one that other machines reach needs --token-env",
        ),
        Option(
            ["--token-env"],
            Variable,
            section=SERVER,
            common=True,
            default="",
            help="environment variable with the token that clients must send as their API key",
        ),
        Option(
            ["--queue"],
            Whole,
            section=SERVER,
            default=64,
            help="requests that may wait; more are answered with 503 and Retry-After",
        ),
        Option(
            ["--save"],
            StageName,
            section=SERVER,
            common=True,
            default="",
            help="stage that keeps all dialogs as trajectories, for prep --from and pairs --from",
        ),
        *DECODING,
        RUN,
        AS_JSON,
        DEBUG,
    ],
    callback=serve,
)
