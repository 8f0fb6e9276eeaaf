"""A stage as a command: an option for each of its settings, and what happens when it is typed."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from agentlite.cli.options import IS_FULL, Command, Option, RunOptions
from agentlite.config.fields import COMMON, NO_FLAG, REPEAT, File, Flag, Metavar, Name, Whole
from agentlite.config.pipeline import MAKE_COMMANDS
from agentlite.config.settings import fields
from agentlite.config.this_machine import AUTO, ProfileName
from agentlite.core.errors import GATE, UserError

if TYPE_CHECKING:
    from agentlite.config.resolve import UserSettings


class SettingsOptions(RunOptions, frozen=True, kw_only=True):
    """What every command can be told that has settings.

    Settings:
        config: YAML file of settings, with one section per command
        sets: any setting, such as sft.seed=1
        profile: settings for a machine; auto chooses by model and free memory
    """

    config: Annotated[tuple[File, ...], REPEAT] = ()
    sets: Annotated[
        tuple[str, ...], Flag(name="--set", repeat=True), Metavar("COMMAND.KEY=VALUE")
    ] = ()
    profile: ProfileName = AUTO

    def user_settings(self, flags: Mapping[str, object]) -> "UserSettings":
        from agentlite.config.resolve import UserSettings

        return UserSettings(flags, self.sets, self.config, self.profile)


class StageOptions(SettingsOptions, frozen=True, kw_only=True):
    """What every stage can be told beside its settings.

    Workspace:
        out: name of the stage's folder in the workspace [as the stage]
        force: start over, and discard earlier results
        dry_run: check everything, write nothing
    Settings:
        print_config: show every setting and where it came from
    """

    out: Annotated[Name, COMMON] = ""
    force: Annotated[bool, COMMON] = False
    dry_run: Annotated[bool, COMMON] = False
    print_config: bool = False


class PrepOptions(StageOptions, frozen=True, kw_only=True):
    """What prep can be told beside its settings.

    Training rows:
        show: number of records to print, with the trained tokens between ⟦ and ⟧
    Splits and output:
        shape: format in which to write the records to stdout
    Input:
        formats: list the formats that are read, with an example row of each
        explain: explain the code of a rejected row
    """

    show: Annotated[Whole, COMMON] = 0
    shape: Annotated[Literal["", "openai"], Flag(name="--as")] = ""
    formats: bool = False
    explain: Annotated[str, Metavar("CODE")] = ""


class StageCommand(Command):
    """A command with settings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            fix = "Files are read by `agentlite prep FILE`; other stages read the one before them."
            raise click.UsageError(f"{error.message}. {fix}", ctx) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """On the full page the settings that no option sets."""
        keys = [key for key, field in fields(self.name or "").items() if NO_FLAG in field.marks]
        if keys and ctx.meta.get(IS_FULL):
            formatter.write_paragraph()
            example = f"--set {self.name}.{keys[0]}=VALUE"
            formatter.write_text(f"Set in a settings file, or as {example}: {', '.join(keys)}.")
        formatter.write_paragraph()
        formatter.write_text(
            f"{ctx.command_path} --print-config shows every setting as a run here would have it."
        )
        super().format_epilog(ctx, formatter)


def stage_command(name: str, text: str) -> StageCommand:
    """`agentlite NAME` for a stage; `text`: the upper part of its help page."""
    settings: list[click.Parameter] = []
    for key, field in fields(name).items():
        if key == "sources":
            settings.append(click.Argument([key], nargs=-1, metavar="SOURCE...", type=str))
        elif key == "what":
            kinds = "|".join(("dialogs", *MAKE_COMMANDS))
            settings.append(click.Argument([key], metavar=kinds, type=str))
        elif NO_FLAG not in field.marks:
            # --packing is "true", and --packing false undoes what a file sets; each value stays a
            # text, which is read with all settings
            switch = {"is_flag": False, "flag_value": "true"} if field.default is False else {}
            settings.append(Option(key, field, **switch))

    options = PrepOptions if name == "prep" else StageOptions
    return StageCommand(name, options, partial(_run, name), params=settings, help=text)


def _explain(options: PrepOptions) -> bool:
    """Whether prep has only printed what it knows of formats or codes."""
    if options.formats:
        from agentlite.data.formats import FORMATS

        for name, row_format in FORMATS.items():
            click.echo(f"{click.style(name, bold=True)}\n  {row_format.example}")
    elif options.explain:
        from agentlite.core.reject_codes import explain_code

        click.echo(explain_code(options.explain))
    return bool(options.formats or options.explain)


def _run(name: str, options: StageOptions, **flags: Any) -> None:
    """Runs the stage and prints its result, or what `--print-config` asks for. stdout holds one
    thing: the JSON object, the records of `--rows -` or `--as`, or a table.
    """
    if isinstance(options, PrepOptions) and _explain(options):
        return
    from agentlite.cli.output import OWN_SHAPE, present
    from agentlite.config.resolve import as_yaml, plain_settings
    from agentlite.stages.api import execute, settle, target_of

    flags = {key: value for key, value in flags.items() if value not in (None, ())}
    user_settings = options.user_settings(flags)
    run, out = Path(options.run), options.out or name
    target = target_of(name, run, out, options.force, options.dry_run, user_settings)
    resolved = settle(name, user_settings, target)
    if options.print_config:
        report = {"settings": plain_settings(resolved.settings), "origin": resolved.origin}
        json_text = json.dumps({"command": name, **report}, ensure_ascii=False)
        click.echo(json_text if options.as_json else as_yaml(name, resolved))
        return
    result = execute(name, resolved.settings, target)
    default_shape = OWN_SHAPE if getattr(resolved.settings, "rows", "") == "-" else ""
    shape, show = getattr(options, "shape", "") or default_shape, getattr(options, "show", 0)
    in_full = any(getattr(resolved.settings, key, False) for key in ("every", "metrics"))
    present(result, as_json=options.as_json, show=show, shape=shape, in_full=in_full)
    if result.failed:
        metrics = "; ".join(result.failed)
        raise UserError(f"the gate is not passed: {metrics}.", location="--gate", exit_code=GATE)
