"""`agentlite chat`: talk to a model in a terminal or a pipe; the dialog is a row for prep."""

import json
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from agentlite.cli.options import Command, DecodingOptions
from agentlite.config.fields import COMMON, File, Flag, Metavar, NonNegative, Seed

if TYPE_CHECKING:
    from agentlite.core.records import Call


class ChatOptions(DecodingOptions, frozen=True, kw_only=True):
    """What a talk can be told beside its model.

    Tools and their results:
        tools: tools that the model may call: a JSON list of OpenAI tools
        execute: Python functions with the names of the tools; calls run them
    Sampling:
        temperature: sampling temperature; 0 always takes the likeliest token
        seed: random seed of the sampling
    Output:
        save: file to which the dialog is appended, as a row that prep reads
    """

    tools: Annotated[File, COMMON] = ""
    execute: Annotated[str, Flag(name="--exec"), Metavar("FILE.py"), COMMON] = ""
    temperature: Annotated[NonNegative, COMMON] = 0.0
    seed: Seed = 0
    save: Annotated[File, COMMON] = ""


def chat(options: ChatOptions) -> None:
    """Prints the model's answers, or with --json the whole dialog."""
    from agentlite.core.errors import UserError
    from agentlite.deploy.chat_session import ChatSession, executor, read_toolbox
    from agentlite.engine.decoding import Decoding

    tools = read_toolbox(options.tools) if options.tools else ()
    if options.execute and not tools:
        raise UserError(
            "needs the tools that the model may call.", "Add --tools FILE.", location="--exec"
        )
    path = Path(options.save).absolute()
    if options.save and (path.is_dir() or not path.parent.is_dir()):
        problem = "is a folder." if path.is_dir() else "its folder is not there."
        raise UserError(problem, "Name a file in a folder that is there.", location=options.save)
    model = options.chat_model()
    with executor(options.execute, tools) if options.execute else nullcontext() as execute:
        model.load()
        stream = sys.stderr if options.as_json else sys.stdout
        tell = partial(print, end="", file=stream, flush=True)
        session = ChatSession(model, tools, partial(_result, execute), tell, _note)
        decoding = Decoding(options.max_new_tokens, options.temperature, seed=options.seed)
        try:
            while (line := _read_line("you> ")) is not None:
                if line.strip():
                    session.say(line, decoding)
        finally:
            if options.save and session.messages:
                _append(path, session.row)
                _note(
                    f"saved: {options.save}; `agentlite prep {shlex.quote(options.save)}` reads it"
                )
    if options.as_json:
        dialog = {"model": options.model, "protocol": model.protocol.name, **session.row}
        click.echo(json.dumps(dialog, ensure_ascii=False))


def _append(path: Path, row: object) -> None:
    """Nothing in the user's file is cut: a last line without an end gets one."""
    from agentlite.core.row_files import disk_errors, json_line

    with disk_errors(path), open(path, "ab") as file:
        if file.seekable() and file.tell() and not path.read_bytes().endswith(b"\n"):
            file.write(b"\n")
        file.write(json_line(row))


def _result(execute: Callable[["Call"], str] | None, call: "Call") -> str:
    """What `execute` or the person gives for a call. Raises UserError 2 where the input ends."""
    from agentlite.core.errors import UserError
    from agentlite.core.records import to_json

    if execute:
        result = execute(call)
        _note(f"result: {result}")
        return result
    name = f"{call.name}({to_json(call.arguments)})"
    line = _read_line(f"result of {name}> ")
    if line is None:
        raise UserError(
            f"the input ends where the result of {name} is expected.",
            "Add a line for it, or --exec FILE.",
            location="stdin",
        )
    return line


def _read_line(prompt: str) -> str | None:
    """A line of the person's; None at the end."""
    try:
        if sys.stdin.isatty():
            import readline  # noqa: F401  (arrow keys and history)

            return input(prompt)
        # a pipe: no prompt, which would stand among the answers
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    except EOFError:
        return None


def _note(text: str) -> None:
    click.echo(click.style(f"({text})", dim=True), err=True)


COMMAND = Command("chat", ChatOptions, chat)
