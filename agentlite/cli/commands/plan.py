"""`agentlite plan`: the memory, time and disk that a command will need, without running it."""

from pathlib import Path
from typing import Annotated

import click
import msgspec
from msgspec import Struct

from agentlite.cli.options import OUTPUT, Option
from agentlite.cli.stage_options import StageCommand, run_options
from agentlite.config.gpu_profiles import AUTO, GRAPHED, SWITCHES
from agentlite.config.metavars import File, Metavar, Model, StageName
from agentlite.config.pipeline import TRAINED, TRAINERS
from agentlite.config.resolve import Given, Resolved
from agentlite.config.settings import COMMANDS, default
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.estimate import Planned, data_of, plan
from agentlite.engine.planning.gpus import Machine, machine_of
from agentlite.engine.planning.model_shape import (
    Shape,
    base_of,
    find_shape,
    read_shape,
    with_teacher,
)
from agentlite.engine.planning.suggest_fit import FittingRows, fitting, sweep
from agentlite.engine.refusals import of_embeddings, refuse
from agentlite.workspace.run_folder import RunTarget


class PlanRequest(Struct, frozen=True):
    """What is planned, for which card, and where the model's numbers come from."""

    command: str
    profile: str = AUTO
    config_json: str = ""
    fit: str = ""
    sweep: bool = False

    @property
    def machine(self) -> Machine:
        return machine_of(self.profile, self.fit)

    @property
    def shape(self) -> Shape | None:
        """None: that of the model in the settings."""
        return read_shape(Path(self.config_json)) if self.config_json else None


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


def report(request: PlanRequest, resolved: Resolved, run: Path) -> PlanReport:
    """`resolved`: the settings of the planned command. Raises UserError 2, 5 or 8."""
    settings = resolved.settings
    model = settings.model
    if not isinstance(model, str):  # eval compares several: the last
        model = model[-1] if model else TRAINED
    if not model and not request.config_json:
        raise UserError(
            f"no model is named: {request.command} takes that of {settings.data}, which is not "
            "there yet.",
            f"Run `agentlite {default(request.command, 'data')}` first, or add --model or "
            "--config-json.",
            location="--model",
        )
    shape = with_teacher(request.shape or find_shape(base_of(model, run)), settings, run)
    name, machine = model or request.config_json, request.machine
    if request.command in TRAINERS:
        refuse(request.command, of_embeddings(settings))
    data = data_of(settings, run)
    planned = plan(settings, shape, machine, data)
    ask_more = request.fit or not planned.gib.fits
    answers = fitting(request.command, settings, shape, machine, data.longest) if ask_more else []
    held = settings.in_memory(machine.gpu)
    decodes = machine.gpu and settings.engine == "unsloth" and (held.samples or held.greedy)
    decodes = decodes and not getattr(settings, "vllm", False)
    switches = SWITCHES if decodes and shape.kind in GRAPHED else {}
    return PlanReport(
        request.command,
        name,
        settings.engine,
        planned,
        answers,
        switches,
        sweep(settings, shape) if request.sweep else "",
        resolved.origin["load_in_4bit"],
    )


def present(answer: PlanReport, as_json: bool) -> None:
    """stdout holds the JSON object, or a table of terms and a few lines."""
    if as_json:
        print(msgspec.json.encode(answer).decode())
        return
    planned, gib = answer.plan, answer.plan.gib
    print(
        f"plan: {answer.command} of {answer.model}, {planned.bits}-bit, engine {answer.engine}, "
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
            print(
                f"{title}: "
                + ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in parts.items())
            )
    if answer.switches:
        print(
            "switched on: "
            + ", ".join(f"{name}={value}" for name, value in answer.switches.items())
        )
    for rows in answer.fit:
        print(_in_words(rows))
    if answer.sweep:
        print(answer.sweep)


def _in_words(fitting_rows: FittingRows) -> str:
    bits, length, batch = fitting_rows.bits, fitting_rows.length, fitting_rows.batch_size
    if not fitting_rows.max_length:
        return f"{bits}-bit: nothing fits"
    rows = f"{batch} x {length} tokens" if batch else f"no row of {length} tokens"
    paste = f"; {fitting_rows.paste}" if fitting_rows.paste else ""
    return f"{bits}-bit: {rows}, or one row of {fitting_rows.max_length}{paste}"


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

    request = PlanRequest(command, profile, config_json, fit, sweep)
    models = (model,) if model and command == "eval" else model
    flags = {key: value for key, value in (("model", models), ("data", data)) if value}
    # a card that is not this machine's is planned anew, whatever a stage was begun with
    target = RunTarget(Path(run), command, force=bool(fit))
    given = Given(flags, sets, config, profile)
    resolved = settle(command, given, target, request.machine, request.shape)
    present(report(request, resolved, Path(run)), as_json)


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
