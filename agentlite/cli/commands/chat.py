"""`agentlite chat`: talk to a model in a terminal or a pipe; the dialog is a row for prep."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from agentlite.cli.decoding_options import DECODING
from agentlite.cli.help_page import Command
from agentlite.cli.options import AS_JSON, DEBUG, OUTPUT, RUN, Option, OptionType
from agentlite.config.metavars import File, Metavar, Model
from agentlite.config.pipeline import TRAINED
from agentlite.config.settings import SAMPLING, NonNegative, Positive, Seed

if TYPE_CHECKING:
    from agentlite.core.records import Call
    from agentlite.deploy.chat_session import ChatSession


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
    from agentlite.deploy.chat_session import ChatSession, executed, read_toolbox, recorded
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
    functions: Any = nullcontext(recorded(replay) if replay else None)
    if execute:
        functions = executed(execute, offered, seconds, memory)
    with functions as known:
        chat_model.load()
        tell = partial(print, end="", file=sys.stderr if as_json else sys.stdout, flush=True)
        prompter = Prompter(known)
        talk = prompter.talk = ChatSession(chat_model, offered, prompter.result, tell, _note)
        if sys.stdin.isatty():
            _note("/help lists the commands, which work at every prompt; Ctrl-D ends")
        try:
            _talk(prompter, talk, Decoding(chat_model.max_new_tokens, temperature, seed=seed))
        finally:
            if save and talk.messages:
                _save(talk, save)
            if as_json:
                dialog = {"model": model, "protocol": chat_model.protocol.name, **talk.row}
                click.echo(json.dumps(dialog, ensure_ascii=False))


def _talk(prompter: "Prompter", talk: Any, decoding: Any) -> None:
    from agentlite.deploy.chat_session import GivenUp

    while True:
        in_turn = False
        try:
            line = prompter.line("you> ")
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
            if given_up.command == "/reset":
                talk.messages.clear()
                _note("a new dialog")
            elif not in_turn:
                _note("taken back" if talk.undo() else "there is nothing to take back")


HELP = {
    "/help": "lists these commands",
    "/tools": "shows what the model may call",
    "/prompt": "shows what the model is shown",
    "/undo": "takes the last turn back, or the one that waits for a result",
    "/reset": "begins a new dialog",
    "/quit": "ends, as Ctrl-D does",
}
LEAVING = ("/undo", "/reset", "/quit")  # these end a turn that is under way
COMMAND_LINE = re.compile(r"(/[A-Za-z?][\w-]*)(?:\s|$)")


class Prompter:
    """The lines that a person types, at either prompt, without those that are commands. `known`:
    the result of a call, None where the person has to type it.
    """

    def __init__(self, known: Callable[["Call"], str | None] | None = None):
        self.known = known
        self.talk: Any = None

    def line(self, prompt: str) -> str | None:
        """The next line that is not a command; None at the end. Raises GivenUp for a command
        that ends the turn.
        """
        from agentlite.deploy.chat_session import GivenUp

        while (line := _read(prompt)) is not None:
            if line.startswith("//"):
                return line[1:]
            if not (typed := COMMAND_LINE.match(line)):
                return line
            if typed[1] in LEAVING:
                raise GivenUp(typed[1])
            _note(self._answer(typed[1]))
        return None

    def _answer(self, command: str) -> str:
        from agentlite.core.errors import RowError, nearest

        if command == "/help":
            lines = [f"{name:<8} {text}" for name, text in HELP.items()]
            return "\n".join([*lines, "//text   sends /text"])
        if command == "/tools":
            tools = [json.dumps(tool, ensure_ascii=False) for tool in self.talk.tools]
            return "\n".join(tools) or "none"
        if command == "/prompt":
            try:
                return str(self.talk.prompt())
            except RowError as error:
                return error.reason
        fix = nearest(command, HELP, other="")
        every = f"Known: {', '.join(HELP)}. //{command[1:]} sends it as a text"
        return " ".join(filter(None, [f"no command '{command}'.", fix, every]))

    def result(self, call: "Call") -> str:
        """Of a call. Raises UserError 2 where it has to be typed and the input ends."""
        from agentlite.core.errors import UserError
        from agentlite.core.records import plain

        known = self.known(call) if self.known else None
        if known is not None:
            _note(f"result: {known}")
            return known
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


def _save(talk: "ChatSession", path: str) -> None:
    from agentlite.core.row_files import Appender

    with Appender(Path(path)) as file:
        file.append(talk.row)
    answers = [message for message in talk.messages if message["role"] == "assistant"]
    reads = f"`agentlite prep {shlex.quote(path)}` reads it"
    if answers and all(message.get("loss") is False for message in answers):
        reads = "prep learns nothing of it: every turn of the model failed or invents a result"
    _note(f"saved: {path}; {reads}")


_tools = partial(Option, section="Tools and their results", default="")
_sampling = partial(Option, section=SAMPLING.title)
FUNCTIONS = "Python functions with the names of the tools; calls run them"
COMMAND = Command(
    "chat",
    params=[
        click.Argument(["model"], default=TRAINED, type=OptionType(Model)),
        _tools(
            ["--tools"],
            File,
            common=True,
            help="tools that the model may call: a JSON list of OpenAI tools",
        ),
        _tools(
            ["--exec", "execute"], Annotated[str, Metavar("FILE.py")], common=True, help=FUNCTIONS
        ),
        _tools(
            ["--replay"],
            File,
            common=True,
            help="recorded dialogs whose results answer the same calls",
        ),
        _tools(
            ["--seconds"], Positive, default=10.0, help="seconds that one call of --exec may take"
        ),
        _tools(
            ["--memory"],
            Positive,
            default=16.0,
            help="GiB of memory that each process of --exec may take (Linux)",
        ),
        _sampling(
            ["--temperature"],
            NonNegative,
            common=True,
            default=0.0,
            help="sampling temperature; 0 always takes the likeliest token",
        ),
        _sampling(["--seed"], Seed, default=0, help="random seed of the sampling"),
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
