"""`agentlite chat`: talk to a model in a terminal or a pipe; the dialog is a row for prep."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from agentlite.cli.options import AS_JSON, DEBUG, DECODING, RUN
from agentlite.config.pipeline import TRAINED


def chat(
    model: str,
    tools: str,
    replay: str,
    execute: str,
    seconds: float,
    memory: float,
    temperature: float,
    seed: int,
    save: str,
    run: str,
    as_json: bool,
    debug: bool,
    **options: Any,
) -> None:
    """Raises UserError 2, 5, 7, 8 or 74. What the model says is the result, or with --json the
    whole dialog.
    """
    from agentlite.core.errors import UserError
    from agentlite.deploy.chat_model import ChatModel
    from agentlite.deploy.chat_session import ChatSession
    from agentlite.deploy.tool_results import read_toolbox
    from agentlite.engine.decoding import Decoding

    offered = read_toolbox(tools) if tools else ()
    if (replay or execute) and not offered:
        raise UserError(
            "results of which tools?",
            "Add --tools FILE.",
            location="--exec" if execute else "--replay",
        )
    if replay and execute:
        raise UserError("is there beside --exec.", "Leave one of them out.", location="--replay")
    chat_model = ChatModel(model, Path(run), **options)
    with _results(replay, execute, offered, seconds, memory) as observe:
        chat_model.load()
        stream = sys.stderr if as_json else sys.stdout
        talk = ChatSession(
            chat_model,
            offered,
            observe,
            lambda text: print(text, end="", file=stream, flush=True),
            _note,
        )
        if sys.stdin.isatty():
            _note(
                "/undo takes a turn back, /prompt shows what the model sees, /tools what it may "
                "call; Ctrl-D ends"
            )
        try:
            _talk(talk, Decoding(chat_model.max_new_tokens, temperature, seed=seed))
        finally:
            _end(talk, chat_model.protocol.name, save, as_json)


def _talk(talk: Any, decoding: Any) -> None:
    while (line := _read("you> ")) is not None:
        if line in ASIDES:
            _note(ASIDES[line](talk))
        elif line.strip():
            talk.say(line, decoding)


ASIDES: dict[str, Callable[[Any], str]] = {
    "/undo": lambda talk: "taken back" if talk.undo() else "there is nothing to take back",
    "/prompt": lambda talk: talk.prompt(),
    "/tools": lambda talk: (
        "\n".join(json.dumps(tool, ensure_ascii=False) for tool in talk.tools) or "none"
    ),
}


def _read(prompt: str) -> str | None:
    """A line of the person's; None at the end."""
    try:
        if sys.stdin.isatty():
            import readline  # noqa: F401  (arrow keys and history)

            return input(prompt)
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    except EOFError:
        return None


def _note(text: str) -> None:
    click.echo(click.style(f"({text})", dim=True), err=True)


@contextmanager
def _results(
    replay: str, execute: str, tools: Any, seconds: float, memory: float
) -> Iterator[Callable[[Any], str]]:
    """Where the results of calls come from. What was not recorded is asked for."""
    from agentlite.deploy.tool_results import executed, recorded

    if execute:
        with executed(execute, tools, seconds, memory) as observe:
            yield lambda call: _shown(observe(call))
        return
    recorded_result = recorded(replay) if replay else lambda call: None

    def observe_or_ask(call: Any) -> str:
        result = recorded_result(call)
        return _typed(call) if result is None else _shown(result)

    yield observe_or_ask


def _shown(result: str) -> str:
    _note(f"result: {result}")
    return result


def _typed(call: Any) -> str:
    from agentlite.core.errors import UserError
    from agentlite.core.records import plain

    line = _read(f"result of {call.name}({plain(call.arguments)})> ")
    if line is None:
        raise UserError(
            f"the input ends where the result of {call.name}({plain(call.arguments)}) is due.",
            "Add a line for it, or --replay FILE, or --exec FILE.",
            location="stdin",
        )
    return line


def _end(talk: Any, protocol: str, save: str, as_json: bool) -> None:
    from agentlite.core.row_files import Appender

    if save and talk.messages:
        with Appender(Path(save)) as file:
            file.append(talk.row)
        _note(f"saved: {save}; `agentlite prep {save}` reads it")
    if as_json:
        click.echo(
            json.dumps(
                {"model": talk.chat_model.name, "protocol": protocol, **talk.row},
                ensure_ascii=False,
            )
        )


COMMAND = click.Command(
    "chat",
    params=[
        click.Argument(["model"], default=TRAINED),
        click.Option(
            ["--tools"],
            default="",
            metavar="FILE",
            help="what may be called: a JSON list of OpenAI tools",
        ),
        click.Option(
            ["--replay"],
            default="",
            metavar="FILE",
            help="dialogs whose results are given for like calls",
        ),
        click.Option(
            ["--exec", "execute"],
            default="",
            metavar="FILE.py",
            help="functions of your own that bear the names of the tools; they are run",
        ),
        click.Option(
            ["--seconds"],
            type=click.FloatRange(0, min_open=True),
            default=10.0,
            metavar="S",
            help="time limit of one call of --exec [10]",
        ),
        click.Option(
            ["--memory"],
            type=click.FloatRange(0, min_open=True),
            default=16.0,
            metavar="GIB",
            help="memory that each process of --exec may take, on Linux [16]",
        ),
        click.Option(
            ["--temperature"],
            type=click.FloatRange(0),
            default=0.0,
            metavar="T",
            help="0 always takes the likeliest token [0]",
        ),
        click.Option(["--seed"], type=int, default=0, metavar="N", help="of what is drawn [0]"),
        click.Option(
            ["--save"],
            default="",
            metavar="FILE",
            help="append the dialog, as a row that prep reads",
        ),
        *DECODING,
        RUN,
        AS_JSON,
        DEBUG,
    ],
    callback=chat,
)
