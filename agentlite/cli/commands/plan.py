"""`agentlite plan`: the memory, time and disk that a command will need, without running it."""

from pathlib import Path
from typing import Annotated

import click
import msgspec
from msgspec import Struct

from agentlite.cli.options import OUTPUT, Option
from agentlite.cli.stage_options import StageCommand, run_options
from agentlite.config.gpu_profiles import GRAPHED, SWITCHES
from agentlite.config.metavars import File, Metavar, Model, StageName
from agentlite.config.pipeline import TRAINERS
from agentlite.config.resolve import Given
from agentlite.config.settings import COMMANDS, default
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.choose import FittingRows, fitting, sweep_table
from agentlite.engine.planning.estimate import Planned, data_of, plan
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.model_shape import base_of, find_shape, read_shape, with_teacher
from agentlite.engine.refusals import of_embeddings, refuse
from agentlite.workspace.run_folder import RunTarget


class PlanReport(Struct, frozen=True):
    """The one JSON object of `--json`."""

    command: str
    model: str
    engine: str
    plan: Planned
    fit: list[FittingRows]
    switches: dict[str, str]  # of Unsloth, that are set and have an effect on this run
    sweep: str
    precision_from: str  # where it was set, or the reason of --profile auto


def _plan(
    command: str,
    model: str | None,
    data: str | None,
    fit: str,
    sweep: bool,
    config_json: str,
    run: str,
    config: tuple[str, ...],
    sets: tuple[str, ...],
    profile: str,
    as_json: bool,
    debug: bool,
) -> None:
    from agentlite.stages.api import settle
    from agentlite.stages.auto_profile import model_of

    machine = machine_of(profile, fit)
    given_shape = read_shape(Path(config_json)) if config_json else None
    models = (model,) if model and command == "eval" else model
    flags = {key: value for key, value in (("model", models), ("data", data)) if value}
    # a card that is not this machine's is planned anew, whatever a stage was begun with
    target = RunTarget(Path(run), command, force=bool(fit))
    resolved = settle(command, Given(flags, sets, config, profile), target, machine, given_shape)

    settings = resolved.settings
    name = model_of(settings)
    if not name and not config_json:
        raise UserError(
            f"no model is named: {command} takes that of {settings.data}, which is not there yet.",
            f"Run `agentlite {default(command, 'data')}` first, or add --model or --config-json.",
            location="--model",
        )
    shape = given_shape or find_shape(base_of(name, target.run))
    shape = with_teacher(shape, settings, target.run)
    if command in TRAINERS:
        refuse(command, of_embeddings(settings))
    rows = data_of(settings, target.run)
    planned = plan(settings, shape, machine, rows)
    held = settings.in_memory(machine.gpu)
    decodes = machine.gpu and settings.engine == "unsloth" and (held.samples or held.greedy)
    decodes = decodes and not getattr(settings, "vllm", False)
    asks_more = fit or not planned.gib.fits
    report = PlanReport(
        command,
        name or config_json,
        settings.engine,
        planned,
        fitting(command, settings, shape, machine, rows.longest) if asks_more else [],
        SWITCHES if decodes and shape.kind in GRAPHED else {},
        sweep_table(settings, shape) if sweep else "",
        resolved.origin["load_in_4bit"],
    )
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        _present(report)


def _present(report: PlanReport) -> None:
    """A table of terms and a few lines."""
    planned, gib = report.plan, report.plan.gib
    print(
        f"plan: {report.command} of {report.model}, {planned.bits}-bit, engine {report.engine}, "
        f"{planned.batch_size} x {planned.length} tokens ({planned.length_from})"
    )
    terms = [[name.replace("_", " "), f"{value:.2f}"] for name, value in gib.terms.items()]
    console.print_table([["GiB", f"({gib.moment})"], *terms, ["total", f"{gib.total:.2f}"]])
    print(f"{'fits' if gib.fits else 'does not fit'} into {gib.of:.1f} GiB, with a reserve of 8 %")
    if planned.vllm:
        share, tokens = planned.vllm["share"], planned.vllm["cached_tokens"]
        print(f"vLLM on the same weights: {share:.0%} of the card, a cache of {tokens} tokens")
    for title, parts in (("time, calculated", planned.time), ("disk, GB", planned.disk_gb)):
        if parts:
            figures = [f"{key.replace('_', ' ')} {value:g}" for key, value in parts.items()]
            print(f"{title}: {', '.join(figures)}")
    if report.switches:
        switches = [f"{name}={value}" for name, value in report.switches.items()]
        print(f"switched on: {', '.join(switches)}")
    for fit in report.fit:
        rows = f"{fit.batch_size} x {fit.length} tokens"
        if not fit.batch_size:
            rows = f"no row of {fit.length} tokens"
        paste = f"; {fit.paste}" if fit.paste else ""
        fits = f"{rows}, or one row of {fit.max_length}{paste}"
        print(f"{fit.bits}-bit: {fits if fit.max_length else 'nothing fits'}")
    if report.sweep:
        print(report.sweep)


PLANNED = "What to plan"
NOT_PLANNED = {"out", "force", "dry_run", "print_config"}
COMMAND = StageCommand(
    "plan",
    callback=_plan,
    params=[
        Option(
            ["--command"],
            section=PLANNED,
            common=True,
            type=click.Choice([name for name in COMMANDS if hasattr(COMMANDS[name], "in_memory")]),
            default=TRAINERS[0],
            help="command to plan",
        ),
        Option(
            ["--model"],
            Model,
            section=PLANNED,
            common=True,
            words="that of the command",
            help="alias, path, hub id or earlier stage",
        ),
        Option(
            ["--config-json"],
            File,
            section=PLANNED,
            common=True,
            default="",
            help="config.json of a model, in place of --model; no weights are read",
        ),
        Option(
            ["--data"],
            StageName,
            section=PLANNED,
            common=True,
            words="that of the command",
            help="finished stage whose longest row counts",
        ),
        Option(
            ["--fit"],
            Annotated[str, Metavar("GIGABYTES")],
            section=PLANNED,
            common=True,
            default="",
            help="say what would fit into a GPU with so much memory, such as 12GB",
        ),
        Option(
            ["--sweep"],
            section=OUTPUT,
            common=True,
            is_flag=True,
            help="show memory against context, with weights of 4 and of 16 bit",
        ),
        # the settings are those of the planned command, so that plan and run cannot differ
        *(option for option in run_options(TRAINERS[0]) if option.name not in NOT_PLANNED),
    ],
)
