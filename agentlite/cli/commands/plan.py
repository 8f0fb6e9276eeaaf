"""A planned command's settings and a model's shape -> what it needs, what would fit, and a picture;
nothing is run.
"""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentlite.config.hardware import SWITCHES
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.row_files import disk_errors
from agentlite.engine.planning.estimate import Planned, data_of, plan
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.model_shape import base_of, find_shape, read_shape
from agentlite.engine.planning.suggest_fit import FittingRows, fitting


class PlanRequest(Struct, frozen=True):
    """What is planned, for which card, and where the model's numbers come from."""

    command: str
    profile: str = "auto"
    config_json: str = ""
    fit: str = ""
    sweep: str = ""


class PlanReport(Struct, frozen=True):
    """The one JSON object of `--json`."""

    command: str
    model: str
    engine: str
    plan: Planned
    fit: list[FittingRows]
    switches: dict[str, str]  # of Unsloth, that are set for the run
    sweep: str


def run(asked: PlanRequest, settings: Any, place: Path) -> PlanReport:
    """`settings`: of the planned command. Raises UserError 2, 5 or 8."""
    model = _model(settings)
    if not model and not asked.config_json:
        raise UserError("no model is named.", "Add --model or --config-json.", location="--model")
    shape = (
        read_shape(Path(asked.config_json))
        if asked.config_json
        else find_shape(base_of(model, place))
    )
    name = model or asked.config_json
    machine = machine_of(asked.profile, asked.fit)
    data = data_of(asked.command, settings, place)
    planned = plan(asked.command, settings, shape, machine, data)
    ask_more = asked.fit or not planned.gib.fits
    answers = fitting(asked.command, settings, shape, machine, data.longest) if ask_more else []
    if asked.sweep:
        from agentlite.engine.planning.sweep_plot import sweep

        with disk_errors(Path(asked.sweep)):
            Path(asked.sweep).write_text(
                sweep(asked.command, settings, shape, name), encoding="utf-8"
            )
    switches = SWITCHES if machine.gpu and settings.engine == "unsloth" else {}
    return PlanReport(asked.command, name, settings.engine, planned, answers, switches, asked.sweep)


def _model(settings: Any) -> str:
    """Of the models that eval compares, the last."""
    named = settings.model
    return named if isinstance(named, str) else named[-1] if named else "sft"


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
    print(f"{'fits' if gib.fits else 'does not fit'} into {gib.of:.1f} GiB with 8 % left free")
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
    for one in answer.fit:
        print(_told(one))
    if answer.sweep:
        print(f"picture: {answer.sweep}")


def _told(one: FittingRows) -> str:
    if not one.max_length:
        return f"{one.bits}-bit: nothing fits"
    rows = (
        f"{one.batch_size} x {one.length} tokens"
        if one.batch_size
        else f"no row of {one.length} tokens"
    )
    return (
        f"{one.bits}-bit: {rows}, or one row of "
        f"{one.max_length}{f'; {one.paste}' if one.paste else ''}"
    )
