"""`agentlite chat`: talk to a model in a terminal or a pipe; the dialog is a row for prep."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import click

from agentlite.cli.decoding_options import DECODING
from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, OUTPUT, RUN, Option, OptionType
from agentlite.config.metavars import File, Metavar, Model
from agentlite.config.pipeline import TRAINED
from agentlite.config.settings import SAMPLING, NonNegative, Positive, Seed

TOOLS = "Tools and their results"


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
    """Raises UserError 2, 5, 7, 8 or 74. The result is the model's answer, or the whole dialog with
    --json.
    """
    from agentlite.core.errors import UserError
    from agentlite.deploy.chat_model import ChatModel
    from agentlite.deploy.chat_session import ChatSession
    from agentlite.deploy.tool_results import read_toolbox
    from agentlite.engine.decoding import Decoding

    offered = read_toolbox(tools) if tools else ()
    if (replay or execute) and not offered:
        raise UserError(
            "needs the tools that the model may call.",
            "Add --tools FILE.",
            location="--exec" if execute else "--replay",
        )
    if replay and execute:
        raise UserError(
            "cannot be used with --exec.", "Leave one of them out.", location="--replay"
        )
    chat_model = ChatModel(model, Path(run), **options)
    asides = Asides()
    with _results(replay, execute, offered, seconds, memory, asides.typed) as observe:
        chat_model.load()
        stream = sys.stderr if as_json else sys.stdout
        talk = ChatSession(
            chat_model,
            offered,
            observe,
            lambda text: print(text, end="", file=stream, flush=True),
            _note,
        )
        asides.talk = talk
        if sys.stdin.isatty():
            _note("/help lists the commands, which work at every prompt; Ctrl-D ends")
        try:
            _talk(asides, talk, Decoding(chat_model.max_new_tokens, temperature, seed=seed))
        finally:
            _end(talk, chat_model.protocol.name, save, as_json)


def _talk(asides: "Asides", talk: Any, decoding: Any) -> None:
    from agentlite.deploy.chat_session import GivenUp

    while True:
        in_turn = False
        try:
            line = asides.line("you> ")
            if line is None:
                return
            if line.strip():
                in_turn = True
                talk.say(line, decoding)
        except GivenUp as given_up:
            if given_up.command == "/quit":
                return
            if in_turn:  # it is taken back already
                _note("this turn is taken back")
            if not in_turn or given_up.command != "/undo":
                _note(LEAVING[given_up.command](talk))


def _tools(talk: Any) -> str:
    return "\n".join(json.dumps(tool, ensure_ascii=False) for tool in talk.tools) or "none"


def _reset(talk: Any) -> str:
    talk.reset()
    return "a new dialog"


# command -> its help; what a command says; what one does that takes a turn back first
HELP = {
    "/help": "lists these commands",
    "/tools": "shows what the model may call",
    "/prompt": "shows what the model is shown",
    "/undo": "takes the last turn back, or the one that waits for a result",
    "/reset": "begins a new dialog",
    "/quit": "ends, as Ctrl-D does",
}
SAYING: dict[str, Callable[[Any], str]] = {
    "/help": lambda talk: "\n".join(
        [*(f"{name:<8} {text}" for name, text in HELP.items()), "//text   sends /text"]
    ),
    "/tools": _tools,
    "/prompt": lambda talk: talk.prompt(),
}
LEAVING: dict[str, Callable[[Any], str]] = {
    "/undo": lambda talk: "taken back" if talk.undo() else "there is nothing to take back",
    "/reset": _reset,
}
COMMAND_LINE = re.compile(r"(/[A-Za-z?][\w-]*)(?:\s|$)")


class Asides:
    """The lines that a person types, at either prompt, without those that are commands."""

    talk: Any = None

    def line(self, prompt: str) -> str | None:
        """The next line that is not a command; None at the end. Raises GivenUp for a command
        that ends the turn.
        """
        from agentlite.core.errors import RowError, nearest
        from agentlite.deploy.chat_session import GivenUp

        while (line := _read(prompt)) is not None:
            if line.startswith("//"):
                return line[1:]
            if not (typed := COMMAND_LINE.match(line)):
                return line
            command = typed[1]
            if command in LEAVING or command == "/quit":
                raise GivenUp(command)
            if command in SAYING:
                try:
                    _note(SAYING[command](self.talk))
                except RowError as error:
                    _note(error.reason)
                continue
            fix = nearest(command, HELP, other="")
            every = f"Known: {', '.join(HELP)}. //{command[1:]} sends it as a text"
            _note(f"no command '{command}'. {fix} {every}".replace("  ", " "))
        return None

    def typed(self, call: Any) -> str:
        """The result of a call, as the person types it. Raises UserError 2 where the input ends."""
        from agentlite.core.errors import UserError
        from agentlite.core.records import plain

        name = f"{call.name}({plain(call.arguments)})"
        line = self.line(f"result of {name}> ")
        if line is None:
            raise UserError(
                f"the input ends where the result of {name} is expected.",
                "Add a line for it, or --replay FILE, or --exec FILE.",
                location="stdin",
            )
        return line


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
    replay: str,
    execute: str,
    tools: Any,
    seconds: float,
    memory: float,
    typed: Callable[[Any], str],
) -> Iterator[Callable[[Any], str]]:
    """The source of the results of calls. A result that was not recorded is `typed`."""
    from agentlite.deploy.tool_results import executed, recorded

    if execute:
        with executed(execute, tools, seconds, memory) as observe:
            yield lambda call: _shown(observe(call))
        return
    recorded_result = recorded(replay) if replay else lambda call: None

    def observe_or_ask(call: Any) -> str:
        result = recorded_result(call)
        return typed(call) if result is None else _shown(result)

    yield observe_or_ask


def _shown(result: str) -> str:
    _note(f"result: {result}")
    return result


def _end(talk: Any, protocol: str, save: str, as_json: bool) -> None:
    from agentlite.core.row_files import Appender

    if save and talk.messages:
        with Appender(Path(save)) as file:
            file.append(talk.row)
        answers = [one for one in talk.row["messages"] if one["role"] == "assistant"]
        reads = f"`agentlite prep {shlex.quote(save)}` reads it"
        if answers and all(one.get("loss") is False for one in answers):
            reads = "prep learns nothing of it: every turn of the model failed or invents a result"
        _note(f"saved: {save}; {reads}")
    if as_json:
        click.echo(
            json.dumps(
                {"model": talk.chat_model.name, "protocol": protocol, **talk.row},
                ensure_ascii=False,
            )
        )


COMMAND = Command(
    "chat",
    params=[
        click.Argument(["model"], default=TRAINED, type=OptionType(Model)),
        Option(
            ["--tools"],
            File,
            section=TOOLS,
            common=True,
            default="",
            help="tools that the model may call: a JSON list of OpenAI tools",
        ),
        Option(
            ["--exec", "execute"],
            Annotated[str, Metavar("FILE.py")],
            section=TOOLS,
            common=True,
            default="",
            help="Python functions with the names of the tools; calls run them",
        ),
        Option(
            ["--replay"],
            File,
            section=TOOLS,
            common=True,
            default="",
            help="recorded dialogs whose results answer the same calls",
        ),
        Option(
            ["--seconds"],
            Positive,
            section=TOOLS,
            default=10.0,
            help="seconds that one call of --exec may take",
        ),
        Option(
            ["--memory"],
            Positive,
            section=TOOLS,
            default=16.0,
            help="GiB of memory that each process of --exec may take (Linux)",
        ),
        Option(
            ["--temperature"],
            NonNegative,
            section=SAMPLING.title,
            common=True,
            default=0.0,
            help="sampling temperature; 0 always takes the likeliest token",
        ),
        Option(
            ["--seed"], Seed, section=SAMPLING.title, default=0, help="random seed of the sampling"
        ),
        Option(
            ["--save"],
            File,
            section=OUTPUT,
            common=True,
            default="",
            help="file to which the dialog is appended, as a row that prep reads",
        ),
        *DECODING,
        RUN,
        AS_JSON,
        DEBUG,
    ],
    callback=chat,
)
