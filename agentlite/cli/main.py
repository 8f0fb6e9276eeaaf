"""The command line: a Click group, and errors -> a few lines and an exit code."""

import contextlib
import errno
import importlib
import json
import os
import sys
from typing import Any, NoReturn

import click

from agentlite.cli.commands import OTHER_COMMANDS, OtherCommand
from agentlite.config.pipeline import MAKE_COMMANDS, STAGES, USUAL, Stage, full_command
from agentlite.core.console import printable, redact
from agentlite.core.errors import DISK, GATE, NAMES, OTHER_NAMES, UserError, suggest
from agentlite.core.version import VERSION

COMMANDS: dict[str, Stage | OtherCommand] = {**STAGES, **OTHER_COMMANDS}


class Commands(click.Group):
    """Knows its commands by name; the settings of one are looked up when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return _command(name) if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        advanced = [name for name in STAGES if name not in USUAL]
        sections = (("Stages", USUAL), ("Advanced", advanced), ("Other commands", OTHER_COMMANDS))
        for title, names in sections:
            with formatter.section(title):
                formatter.write_dl([(full_command(name), COMMANDS[name].help) for name in names])
        with formatter.section("More help"):
            formatter.write_dl(
                [
                    ("agentlite", "what to do next in this folder"),
                    ("agentlite COMMAND --help", "the common options of a command"),
                    ("agentlite COMMAND --help-all", "every option of a command"),
                ]
            )

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """["make", "queries", "-n", "5"] -> "make queries", its command, ["-n", "5"]."""
        if args[:1] == ["make"] and len(args) > 1 and args[1] in MAKE_COMMANDS:
            return full_command(args[1]), self.get_command(ctx, args[1]), args[2:]
        if not ctx.resilient_parsing:  # a shell that completes a line would print the error into it
            _refuse_unknown(args)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would end with 1
            _exit_broken_pipe()


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(VERSION, prog_name="agentlite")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Tune a language model to use tools, on one GPU.

    \b
    Examples:
      agentlite init home          make a folder with sample dialogs
      agentlite prep data.jsonl    check the dialogs and split them
      agentlite sft                train on them
      agentlite eval               measure the model before and after
      agentlite chat sft           talk to it

    The stages keep their results in a workspace, the folder runs/default (or --run FOLDER), and
    read each other's results from there. If a stage was stopped, run the same command again: it
    goes on where it stopped.
    """
    if ctx.invoked_subcommand is None:
        from agentlite.cli.next_step import show

        show()


def main() -> None:
    """Runs the command line; an error that a user can fix is a few lines and an exit code."""
    from agentlite.core.console import SafeStderr

    # a terminal that is not UTF-8, or a line that is not, must not end a run
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]  # a TextIOWrapper
    sys.stderr = SafeStderr(sys.stderr)
    try:
        group(prog_name="agentlite", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _exit_broken_pipe()
    except click.ClickException as error:
        error = _with_suggestion(error)
        error.show()
        context = error.ctx if isinstance(error, click.UsageError) else None
        location = context.command_path if context else ""
        _exit(UserError(error.format_message(), location=location, exit_code=error.exit_code))
    except (Exception, KeyboardInterrupt) as error:
        user_error = _as_user_error(error)
        has_stopped = user_error.exit_code > 128
        if "--debug" in sys.argv and not has_stopped:
            raise
        text = f"Stopped. {user_error.fix}" if has_stopped else f"Error: {user_error}"
        click.echo(printable(text), err=True)
        _exit(user_error)


def _as_user_error(error: BaseException) -> UserError:
    """An error as one that is told in a few lines."""
    if isinstance(error, UserError):
        from agentlite.cli.next_step import with_next_command

        return with_next_command(error)
    is_interrupted = isinstance(error, KeyboardInterrupt | click.Abort)
    # engine.watch.Stopped has a code, and is not imported
    if code := 130 if is_interrupted else getattr(error, "exit_code", 0):
        goes_on = "begins anew" if sys.argv[1:2] == ["prep"] else "carries on"
        fix = f"The same command again {goes_on}."
        return UserError("stopped.", fix, exit_code=code)
    if isinstance(error, OSError) and (error.filename or error.errno == errno.ENOSPC):
        from agentlite.core.row_files import disk_fix

        problem, location = f"the system says: {error.strerror}.", str(error.filename or "")
        return UserError(problem, disk_fix(error), location=location, exit_code=DISK)
    fix = "This is a fault of agentlite or of a library. --debug shows where; please report it."
    return UserError(f"{type(error).__name__}: {error}", fix, exit_code=1)


def _exit(error: UserError) -> NoReturn:
    """With --json, the error is the one object on stdout, unless the result stands there: that of a
    gate that is not passed.
    """
    if "--json" in sys.argv and error.exit_code != GATE:
        report = {
            "code": NAMES.get(error.exit_code, "stopped" if error.exit_code > 128 else "fault"),
            "location": redact(error.location),
            "problem": redact(error.problem),
            "fix": redact(error.fix),
            "exit_code": error.exit_code,
        }
        click.echo(json.dumps({"error": report}, ensure_ascii=False))
    sys.exit(error.exit_code)


def _refuse_unknown(words: list[str]) -> None:
    """Raises click.UsageError for a command that there is not, or what `make` cannot make."""
    if words[0] == "make" and words[1:] and words[1].isalpha() and words[1] != "dialogs":
        fix = suggest(words[1], ["dialogs", *MAKE_COMMANDS])
        raise click.UsageError(f"'{words[1]}' cannot be made. {fix}")
    if words[0] not in COMMANDS:
        other_names = {name: command.other_names for name, command in COMMANDS.items()}
        fix = suggest(words[0], COMMANDS, other_names=other_names)
        raise click.UsageError(f"no command '{words[0]}'. {fix}")


def _with_suggestion(error: click.ClickException) -> click.ClickException:
    """With the option that is meant, by the names that other tools have for it as well."""
    from agentlite.config.fields import NO_FLAG, option_text
    from agentlite.config.settings import fields

    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    command, name = error.ctx.command.name or "", error.option_name.lstrip("-").replace("-", "_")
    for key, field in fields(command).items() if command in STAGES else ():
        other_names = OTHER_NAMES.get(key, "").replace("-", "_").split()
        if NO_FLAG in field.marks and name in (key, *other_names):
            example = option_text(field.default) or "VALUE"
            return click.UsageError(f"Write it as --set {command}.{key}={example}", error.ctx)
    options = [name for p in error.ctx.command.get_params(error.ctx) for name in p.opts]
    names = [name for name in options if name.startswith("--")]
    page = "--help-all" if "--help-all" in names else "--help"  # `agentlite` itself has one page
    help_hint = f"`{error.ctx.command_path} {page}` lists them all."
    fix = suggest(error.option_name, names, fallback=help_hint)
    return click.UsageError(f"No such option '{error.option_name}'. {fix}", error.ctx)


def _exit_broken_pipe() -> NoReturn:
    """`| head`: what is on disk is whole. Python would fail at its end, and change the code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(141)


def _command(name: str) -> click.Command:
    if name in STAGES:
        from agentlite.cli.stage_options import stage_command

        return stage_command(name, _help(name))
    command: click.Command = importlib.import_module(f"agentlite.cli.commands.{name}").COMMAND
    command.help = _help(name)
    return command


def _help(name: str) -> str:
    """Examples first: they are what most people look for."""
    examples = (f"  {line}" for line in COMMANDS[name].examples.strip().splitlines())
    return "\n".join([COMMANDS[name].help, "", "\b", "Examples:", *examples])
