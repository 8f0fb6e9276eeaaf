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

from agentlite.cli.decoding_options import DecodingOptions
from agentlite.cli.help_page import Command
from agentlite.cli.options import OUTPUT
from agentlite.config.fields import COMMON, Flag, NonNegative, Positive, Section, Seed
from agentlite.config.metavars import File, Metavar
from agentlite.config.settings import SAMPLING

if TYPE_CHECKING:
    from agentlite.core.records import Call
    from agentlite.deploy.chat_session import ChatSession

TOOLS = Section("Tools and their results")


class ChatOptions(DecodingOptions, frozen=True, kw_only=True):
    tools: Annotated[File, TOOLS, COMMON] = ""
    """tools that the model may call: a JSON list of OpenAI tools"""
    execute: Annotated[str, Flag(name="--exec"), Metavar("FILE.py"), TOOLS, COMMON] = ""
    """Python functions with the names of the tools; calls run them"""
    seconds: Annotated[Positive, TOOLS] = 10.0
    """seconds that one call of --exec may take"""
    memory: Annotated[Positive, TOOLS] = 16.0
    """GiB of memory that each process of --exec may take (Linux)"""
    temperature: Annotated[NonNegative, SAMPLING, COMMON] = 0.0
    """sampling temperature; 0 always takes the likeliest token"""
    seed: Annotated[Seed, SAMPLING] = 0
    """random seed of the sampling"""
    save: Annotated[File, OUTPUT, COMMON] = ""
    """file to which the dialog is appended, as a row that prep reads"""


def chat(options: ChatOptions) -> None:
    """Prints the model's answers, or with --json the whole dialog."""
    from agentlite.core.errors import UserError
    from agentlite.deploy.chat_session import ChatSession, executed, read_toolbox
    from agentlite.engine.decoding import Decoding

    offered = read_toolbox(options.tools) if options.tools else ()
    if options.execute and not offered:
        raise UserError(
            "needs the tools that the model may call.", "Add --tools FILE.", location="--exec"
        )
    model = options.chat_model()
    functions: Any = nullcontext()
    if options.execute:
        functions = executed(options.execute, offered, options.seconds, options.memory)
    with functions as run:
        model.load()
        stream = sys.stderr if options.as_json else sys.stdout
        tell = partial(print, end="", file=stream, flush=True)
        prompter = Prompter(run)
        talk = prompter.talk = ChatSession(model, offered, prompter.result, tell, _note)
        if sys.stdin.isatty():
            _note("/help lists the commands, which work at every prompt; Ctrl-D ends")
        try:
            decoding = Decoding(options.max_new_tokens, options.temperature, seed=options.seed)
            _talk(prompter, talk, decoding)
        finally:
            if options.save and talk.messages:
                _save(talk, options.save)
            if options.as_json:
                dialog = {"model": options.model, "protocol": model.protocol.name, **talk.row}
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
    """The lines that a person types, at either prompt, without those that are commands. `run`:
    gives the result of a call; None where the person types it.
    """

    def __init__(self, run: Callable[["Call"], str] | None = None):
        self.run = run
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

        if self.run:
            result = self.run(call)
            _note(f"result: {result}")
            return result
        name = f"{call.name}({plain(call.arguments)})"
        line = self.line(f"result of {name}> ")
        if line is None:
            raise UserError(
                f"the input ends where the result of {name} is expected.",
                "Add a line for it, or --exec FILE.",
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


COMMAND = Command("chat", ChatOptions, chat)
