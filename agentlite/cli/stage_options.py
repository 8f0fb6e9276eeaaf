"""A stage as a command: an option for each of its settings, and what happens when it is typed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentlite.cli.options import AS_JSON, DEBUG, RUN

if TYPE_CHECKING:
    from agentlite.workspace.run_folder import Result

ARGUMENTS = ("sources",)  # settings that are no options, but words of their own
PASSED_ON = ("trl", "peft")  # mappings, which only --set and YAML files can write
OTHERS = "Options"  # the section of what names none


class StageOption(click.Option):
    """An option under a heading of its help page."""

    def __init__(self, names: list[str], section: str = OTHERS, **rest: Any):
        super().__init__(names, **rest)
        self.section = section


class StageCommand(click.Command):
    """Lists its options in sections, in the order in which the settings begin them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            fix = "Files are read by `agentlite prep FILE`; other stages read the one before them."
            raise click.UsageError(f"{error.message}. {fix}", ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (row := parameter.get_help_record(ctx)):
                sections.setdefault(getattr(parameter, "section", OTHERS), []).append(row)
        sections[OTHERS] = sections.pop(OTHERS)  # the last
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def stage_command(name: str, text: str) -> StageCommand:
    """`agentlite NAME` for a stage; `text`: the upper part of its help page."""
    from agentlite.config.settings import fields

    settings = [key for key in fields(name) if key not in (*ARGUMENTS, *PASSED_ON)]
    parameters: list[click.Parameter] = [setting_option(name, key) for key in settings]
    if name == "prep":
        sources = click.Argument(["sources"], nargs=-1, metavar="SOURCE...")
        parameters = [sources, *parameters, *_prep_options()]

    def callback(**given: object) -> None:
        _run(name, given)

    return StageCommand(
        name, params=[*parameters, *run_options(name)], callback=callback, help=text
    )


def setting_option(name: str, key: str) -> StageOption:
    from agentlite.config.settings import default, describe, flag_of, section_of

    value, text, flag = default(name, key), describe(name, key), flag_of(name, key)
    shown = "" if value in (None, {}) else str(value)
    if isinstance(value, tuple):
        shown = ",".join(map(str, value))
    switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if value is False else {}
    return StageOption(
        [flag.name or f"--{key.replace('_', '-')}", *flag.more.split(), key],
        section_of(name, key) or OTHERS,
        multiple=flag.repeat,
        metavar="VALUE",
        help=f"{text} [{shown}]" if shown and "[" not in text else text,
        **switch,
    )


def run_options(name: str) -> list[click.Parameter]:
    """What every stage takes in addition to its settings."""
    return [
        RUN,
        click.Option(["--out"], metavar="NAME", help=f"folder in the workspace [{name}]"),
        click.Option(
            ["--config"],
            multiple=True,
            metavar="FILE",
            help="YAML file with one section per command; may be repeated",
        ),
        click.Option(
            ["--set", "sets"],
            multiple=True,
            metavar="KEY=VALUE",
            help=f"any setting: {name}.seed=1; may be repeated",
        ),
        click.Option(
            ["--profile"],
            default="auto",
            metavar="NAME",
            help="cpu, gpu, rtx3060, t4, rtx4090, a100 [auto: by model and free memory]",
        ),
        click.Option(["--force"], is_flag=True, help="start over"),
        click.Option(["--dry-run"], is_flag=True, help="check everything, write nothing"),
        click.Option(
            ["--print-config"], is_flag=True, help="show each setting and where it came from"
        ),
        AS_JSON,
        DEBUG,
    ]


def _prep_options() -> list[click.Parameter]:
    """What prep can show, with a source or without one."""
    from agentlite.config.settings import LEARNED, READ, ROWS

    return [
        StageOption(
            ["--show"],
            ROWS.title,
            type=int,
            default=0,
            metavar="N",
            help="print N records, the trained tokens between ⟦ and ⟧",
        ),
        StageOption(
            ["--as", "shape"],
            default="",
            metavar="NAME",
            help="write the records to stdout as openai, sharegpt, ms-swift or llamafactory rows",
        ),
        StageOption(
            ["--why"],
            LEARNED.title,
            default="",
            metavar="ID",
            help="say where a record came from, what was done to it and where it ended; FILE:LINE "
            "for a row",
        ),
        StageOption(
            ["--fix"],
            READ.title,
            is_flag=True,
            help="make every safe repair, those that lose and guess nothing: --repair literal,json",
        ),
        StageOption(
            ["--formats"],
            READ.title,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_list_formats,
            help="list the formats that are read, with an example row of each",
        ),
        StageOption(
            ["--explain"],
            READ.title,
            metavar="CODE",
            is_eager=True,
            expose_value=False,
            callback=_explain,
            help="say what the code of a rejected row means, with a row before and after",
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
        from agentlite.data.reject_examples import example_of

        click.echo(explain(code))
        click.echo(example_of(code.strip().upper()))
        context.exit()


def _run(name: str, options: dict[str, Any]) -> None:
    """Runs the stage and prints its result; or only what `--why` or `--print-config` ask for."""
    from agentlite.config.resolve import Given, as_yaml
    from agentlite.stages.api import execute, settle
    from agentlite.workspace.run_folder import RunTarget

    run, out, shape = Path(options["run"]), options["out"] or name, options.pop("shape", "")
    why, show, fix = (options.pop(key, None) for key in ("why", "show", "fix"))
    if why:
        _print_provenance(run / out, why, options["as_json"])
        return
    not_settings = {option.name for option in run_options(name)}
    flags = {key: value for key, value in options.items() if key not in not_settings}
    if fix:
        flags["repair"] = _with_safe_repairs(flags["repair"])
    given = Given(_weightings(flags), options["sets"], options["config"], options["profile"])
    target = RunTarget(run, out, options["force"], options["dry_run"])
    resolved = settle(name, given, target)
    if options["print_config"]:
        click.echo(as_yaml(name, resolved))
        return
    if shape:
        _check_shape(shape)
    result = execute(name, resolved.settings, target)
    _present(result, resolved.settings, options["as_json"], show or 0, shape)


def _with_safe_repairs(given: str | None) -> str:
    from agentlite.data.formats.json_repair import SAFE

    return ",".join(dict.fromkeys([*(given or "").split(","), *SAFE])).removeprefix(",")


def _print_provenance(folder: Path, name: str, as_json: bool) -> None:
    from agentlite.stages.prep.provenance import as_text, why

    rows = why(folder, name)
    click.echo(json.dumps(rows, ensure_ascii=False) if as_json else "\n".join(map(as_text, rows)))


def _weightings(flags: Mapping[str, Any]) -> dict[str, object]:
    """The flags that were given. One --weights is a setting; several are a grid of them."""
    given = {key: value for key, value in flags.items() if value not in (None, ())}
    weights = given.pop("weights", ())
    if len(weights) > 1 and not isinstance(weights, str):
        given["grid"] = (*given.get("grid", ()), *weights)
    elif weights:
        given["weights"] = weights if isinstance(weights, str) else weights[0]
    return given


def _check_shape(shape: str) -> None:
    from agentlite.core.errors import UserError, nearest
    from agentlite.data.write_formats import SHAPES

    if shape not in SHAPES:
        raise UserError(f"no shape '{shape}'.", nearest(shape, SHAPES), location="--as")


def _present(result: "Result", settings: object, as_json: bool, show: int, shape: str) -> None:
    """stdout holds one thing: the JSON object, the records of `--rows -` or `--as`, or a table."""
    from agentlite.cli.output import OWN, present
    from agentlite.core.errors import GATE, UserError

    written = shape or (OWN if getattr(settings, "rows", "") == "-" else "")
    present(result, as_json=as_json, show=show, shape=written)
    if result.failed:
        failed = "; ".join(result.failed)
        raise UserError(f"the gate is not passed: {failed}.", location="--gate", exit_code=GATE)
