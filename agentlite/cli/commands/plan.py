"""`agentlite plan`: the memory, time and disk that a command will need, without running it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Struct

from agentlite.cli.options import Command
from agentlite.cli.stage_options import SettingsOptions
from agentlite.config.fields import COMMON, Metavar, Model, StageName
from agentlite.config.pipeline import TRAINERS
from agentlite.config.settings import COMMANDS, default
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.engine.planning.choose import FittingRows, find_fitting_rows
from agentlite.engine.planning.estimate import ResourcePlan, data_of, plan
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.model_shape import shape_under
from agentlite.engine.refusals import embedding_cases, refuse
from agentlite.workspace.lookup import RunTarget


class PlanReport(Struct, frozen=True):
    """The one JSON object of `--json`."""

    command: str
    model: str
    engine: str
    plan: ResourcePlan
    fit: list[FittingRows]
    precision_from: str  # where it was set, or the reason of --profile auto


if TYPE_CHECKING:
    Plannable = str
else:
    Plannable = Literal[tuple(name for name in COMMANDS if hasattr(COMMANDS[name], "in_memory"))]


class PlanOptions(SettingsOptions, frozen=True, kw_only=True):
    """The settings are those of the planned command, so that plan and run cannot differ.

    What to plan:
        command: command to plan
        model: alias, path, hub id or earlier stage [that of the command]
        data: finished stage whose longest row counts [that of the command]
        fit: say what would fit into a GPU with so much memory, such as 12GB
    """

    command: Annotated[Plannable, COMMON] = TRAINERS[0]
    model: Annotated[Model, COMMON] = ""
    data: Annotated[StageName, COMMON] = ""
    fit: Annotated[str, Metavar("GIGABYTES"), COMMON] = ""


def _plan(options: PlanOptions) -> None:
    from agentlite.stages.api import model_of, settle

    command, machine = options.command, machine_of(options.profile, options.fit)
    model = (options.model,) if options.model and command == "eval" else options.model
    flags = {key: value for key, value in (("model", model), ("data", options.data)) if value}
    # a card that is not this machine's is planned anew, whatever a stage was begun with
    target = RunTarget(Path(options.run), command, force=bool(options.fit))
    resolved = settle(command, options.user_settings(flags), target, machine)

    settings = resolved.settings
    name = model_of(settings)
    if not name:
        raise UserError(
            f"no model is named: {command} takes that of {settings.data}, which is not there yet.",
            f"Run `agentlite {default(command, 'data')}` first, or add --model.",
            location="--model",
        )
    shape = shape_under(settings, name, target.run)
    if command in TRAINERS:
        refuse(command, embedding_cases(settings))
    rows = data_of(settings, target.run)
    planned = plan(settings, shape, machine, rows)
    asks_more = options.fit or not planned.gib.fits
    report = PlanReport(
        command,
        name,
        settings.engine,
        planned,
        find_fitting_rows(command, settings, shape, machine, rows.longest) if asks_more else [],
        resolved.origin["load_in_4bit"],
    )
    if options.as_json:
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
    if planned.sampled:
        together, room = planned.sampled["together"], planned.sampled["room"]
        print(f"answers sampled together: {together}, with room on the card for {room}")
    if planned.host_gib:
        print(f"{planned.host_gib:g} GiB of activations wait in the host's memory")
    for title, figures in (("time, calculated", planned.time), ("disk, GB", planned.disk_gb)):
        if figures:
            texts = [f"{key.replace('_', ' ')} {value:g}" for key, value in figures.items()]
            print(f"{title}: {', '.join(texts)}")
    for fit in report.fit:
        rows = f"{fit.batch_size} x" if fit.batch_size else "no row of"
        paste = f"; {fit.paste}" if fit.paste else ""
        fits = f"{rows} {fit.length} tokens, or one row of {fit.max_length}{paste}"
        print(f"{fit.bits}-bit: {fits if fit.max_length else 'nothing fits'}")


COMMAND = Command("plan", PlanOptions, _plan)
