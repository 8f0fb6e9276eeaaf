"""A stage as a command: an option for each of its settings, and what happens when it is typed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from agentlite.cli.help_page import IS_FULL, Command
from agentlite.cli.options import (
    AS_JSON,
    DEBUG,
    RUN,
    SETTINGS,
    WORKSPACE,
    Option,
    OptionType,
)
from agentlite.config.metavars import File, Metavar, Name, as_typed
from agentlite.config.pipeline import MADE, STAGES
from agentlite.core.errors import UserError

if TYPE_CHECKING:
    from agentlite.config.resolve import Resolved
    from agentlite.workspace.run_folder import Result

ARGUMENTS = ("sources", "what")  # settings that are not options but arguments
# names of agentlite.data.write_formats.SHAPES
Shape = Literal["openai", "sharegpt", "ms-swift", "llamafactory"]
DEFAULTS = "agentlite.defaults"  # in the context: the settings of a run without options


class StageCommand(Command):
    """A command with settings, whose help shows them as they are on this machine."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            fix = "Files are read by `agentlite prep FILE`; other stages read the one before them."
            raise click.UsageError(f"{error.message}. {fix}", ctx) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Where the defaults are from that are not the same everywhere."""
        resolved = _defaults(ctx, self.name) if self.name in STAGES else None
        origins = dict.fromkeys(resolved.origin.values() if resolved else ())
        if places := [where for where in origins if where != "default"]:
            formatter.write_paragraph()
            formatter.write_text(f"The defaults follow {' and '.join(places)}.")
        self._write_rest(ctx, formatter)
        super().format_epilog(ctx, formatter)

    def _write_rest(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """On the full page: the settings that no option sets."""
        from agentlite.config.settings import fields, has_flag

        name = self.name or ""
        rest = [key for key in fields(name) if not has_flag(name, key)] if name in STAGES else []
        if rest and ctx.meta.get(IS_FULL):
            formatter.write_paragraph()
            formatter.write_text(
                f"Set in a settings file, or as --set {name}.{rest[0]}=VALUE: {', '.join(rest)} "
                f"({ctx.command_path} --print-config shows their values)."
            )


class SettingOption(Option):
    """The option of a setting. Its value stays a text, which is read with all other settings."""

    def __init__(self, command: str, key: str):
        from agentlite.config import settings

        self.command, self.key = command, key
        kind, flag = settings.fields(command)[key], settings.flag_of(command, key)
        # a switch may stand alone
        alone = "true" if settings.default(command, key) is False else ""
        rest: dict[str, Any] = {"is_flag": False, "flag_value": alone} if alone else {}
        super().__init__(
            [flag.name or f"--{key.replace('_', '-')}", *flag.more.split(), key],
            kind,
            section=settings.section_of(command, key),
            common=settings.is_common(command, key),
            words=settings.default_in_words(command, key),
            is_read=False,
            multiple=flag.repeat,
            help=settings.describe(command, key),
            **rest,
        )

    def default_shown(self, ctx: click.Context) -> str:
        """The value in a run without options, here and now; in words where memory decides."""
        from agentlite.config.gpu_profiles import has_gpu

        resolved = _defaults(ctx, self.command)
        if resolved is None:
            from agentlite.config.settings import default

            return as_typed(default(self.command, self.key)) or self.words
        if has_gpu() and self.key in _planned(resolved):
            return "by free GPU memory"
        return as_typed(getattr(resolved.settings, self.key)) or self.words


def stage_command(name: str, text: str) -> StageCommand:
    """`agentlite NAME` for a stage; `text`: the upper part of its help page."""
    from agentlite.config.settings import fields, has_flag

    settings = [key for key in fields(name) if has_flag(name, key) and key not in ARGUMENTS]
    parameters: list[click.Parameter] = [SettingOption(name, key) for key in settings]
    if name == "prep":
        sources = click.Argument(
            ["sources"], nargs=-1, metavar="SOURCE...", type=OptionType(File, is_read=False)
        )
        parameters = [sources, *parameters, *_prep_options()]

    if name == "make":
        made = OptionType(fields(name)["what"], is_read=False)
        parameters = [
            click.Argument(["what"], metavar="|".join(("dialogs", *MADE)), type=made),
            *parameters,
            *_make_options(),
        ]

    def callback(**given: object) -> None:
        _run(name, given)

    return StageCommand(
        name, params=[*parameters, *run_options(name)], callback=callback, help=text
    )


def _defaults(ctx: click.Context, command: str) -> "Resolved | None":
    """None where agentlite.yaml holds a mistake, which a run will name."""
    if DEFAULTS not in ctx.meta:
        from agentlite.config.resolve import Given, resolve

        try:
            ctx.meta[DEFAULTS] = resolve(command, Given())
        except UserError:
            ctx.meta[DEFAULTS] = None
    found: Resolved | None = ctx.meta[DEFAULTS]
    return found


def _planned(resolved: "Resolved") -> set[str]:
    """The settings that --profile auto will choose on a GPU, by the memory that is free."""
    if not hasattr(resolved.settings, "load_in_4bit"):
        return set()
    from agentlite.engine.planning.choose import keys_to_choose

    return keys_to_choose(resolved)


def run_options(name: str) -> list[click.Parameter]:
    """What every stage takes in addition to its settings."""
    from agentlite.config.gpu_profiles import AUTO, ProfileName

    return [
        RUN,
        Option(
            ["--out"],
            Name,
            section=WORKSPACE,
            common=True,
            words=name,
            help="name of the stage's folder in the workspace",
        ),
        Option(
            ["--force"],
            section=WORKSPACE,
            common=True,
            is_flag=True,
            help="start over, and discard earlier results",
        ),
        Option(
            ["--dry-run"],
            section=WORKSPACE,
            common=True,
            is_flag=True,
            help="check everything, write nothing",
        ),
        Option(
            ["--config"],
            File,
            section=SETTINGS,
            multiple=True,
            help="YAML file of settings, with one section per command",
        ),
        Option(
            ["--set", "sets"],
            Annotated[str, Metavar("COMMAND.KEY=VALUE")],
            section=SETTINGS,
            multiple=True,
            help=f"any setting, such as {name}.seed=1",
        ),
        Option(
            ["--profile"],
            ProfileName,
            section=SETTINGS,
            is_read=False,
            default=AUTO,
            help="settings for a machine; auto chooses by model and free memory",
        ),
        Option(
            ["--print-config"],
            section=SETTINGS,
            is_flag=True,
            help="show every setting and where it came from",
        ),
        AS_JSON,
        DEBUG,
    ]


def _make_options() -> list[click.Parameter]:
    """What make can show."""
    from agentlite.config.settings import DIALOGS

    return [_show_option(DIALOGS.title, "number of dialogs to print")]


def _show_option(section: str, text: str) -> Option:
    from agentlite.config.settings import Whole

    return Option(["--show"], Whole, section=section, common=True, default=0, help=text)


def _prep_options() -> list[click.Parameter]:
    """What prep can show, with a source or without one."""
    from agentlite.config.settings import LEARNED, READ, ROWS, SPLITS

    return [
        _show_option(
            ROWS.title, "number of records to print, with the trained tokens between ⟦ and ⟧"
        ),
        Option(
            ["--as", "shape"],
            Shape,
            section=SPLITS.title,
            default="",
            help="format in which to write the records to stdout",
        ),
        Option(
            ["--why"],
            Annotated[str, Metavar("ID|FILE:LINE")],
            section=LEARNED.title,
            default="",
            help="say where a record came from, what was done to it and where it ended",
        ),
        Option(
            ["--fix"],
            section=READ.title,
            common=True,
            is_flag=True,
            help="make all repairs that lose and guess nothing, as --repair literal,json does",
        ),
        Option(
            ["--formats"],
            section=READ.title,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_list_formats,
            help="list the formats that are read, with an example row of each",
        ),
        Option(
            ["--explain"],
            Annotated[str, Metavar("CODE")],
            section=READ.title,
            is_eager=True,
            expose_value=False,
            callback=_explain,
            help="explain the code of a rejected row, with a row before and after",
        ),
    ]


def _list_formats(context: click.Context, option: click.Parameter, is_set: bool) -> None:
    if is_set:
        from agentlite.data.formats import FORMATS

        for name, row_format in FORMATS.items():
            click.echo(f"{click.style(name, bold=True)}\n  {row_format.example}")
        context.exit()


def _explain(context: click.Context, option: click.Parameter, code: str | None) -> None:
    if code is not None:
        from agentlite.core.reject_codes import explain

        click.echo(explain(code))
        context.exit()


def _run(name: str, options: dict[str, Any]) -> None:
    """Runs the stage and prints its result; or only what `--why` or `--print-config` ask for."""
    from agentlite.config.resolve import Given, as_object, as_yaml, weightings
    from agentlite.stages.api import execute, settle, target_of

    run, out, shape = Path(options["run"]), options["out"] or name, options.pop("shape", "")
    why, show, fix = (options.pop(key, None) for key in ("why", "show", "fix"))
    if why:
        _print_provenance(run / out, why, options["as_json"])
        return
    not_settings = {option.name for option in run_options(name)}
    flags = {key: value for key, value in options.items() if key not in not_settings}
    if fix:
        flags["repair"] = _with_safe_repairs(flags["repair"])
    given = Given(weightings(flags), options["sets"], options["config"], options["profile"])
    target = target_of(name, run, out, options["force"], options["dry_run"], given)
    resolved = settle(name, given, target)
    if options["print_config"]:
        as_json = json.dumps(as_object(name, resolved), ensure_ascii=False)
        click.echo(as_json if options["as_json"] else as_yaml(name, resolved))
        return
    result = execute(name, resolved.settings, target)
    _present(result, resolved.settings, options["as_json"], show or 0, shape)


def _with_safe_repairs(given: str | None) -> str:
    from agentlite.data.formats.json_decode import SAFE

    return ",".join(dict.fromkeys([*(given or "").split(","), *SAFE])).removeprefix(",")


def _print_provenance(folder: Path, name: str, as_json: bool) -> None:
    from agentlite.stages.prep.show import as_text, why

    rows = why(folder, name)
    click.echo(json.dumps(rows, ensure_ascii=False) if as_json else "\n".join(map(as_text, rows)))


def _present(result: "Result", settings: object, as_json: bool, show: int, shape: str) -> None:
    """stdout holds one thing: the JSON object, the records of `--rows -` or `--as`, or a table."""
    from agentlite.cli.output import OWN, present
    from agentlite.core.errors import GATE, UserError

    written = shape or (OWN if getattr(settings, "rows", "") == "-" else "")
    present(result, as_json=as_json, show=show, shape=written)
    if result.failed:
        failed = "; ".join(result.failed)
        raise UserError(f"the gate is not passed: {failed}.", location="--gate", exit_code=GATE)
