"""finished prep -> an adapter trained to say what the assistant says, with metrics.jsonl and
checkpoints.
"""

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentlite.config import hardware, resolve
from agentlite.config.settings import SftSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, RowError, UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import find_rows, read_rows
from agentlite.engine import check_libraries, coordinate, deepspeed
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.rendering import TABLES, Encoded, settled, training_rows
from agentlite.rendering.template import Template
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import (
    adapter_shape,
    failing_early,
    lineage,
    refuse_circle,
    refuse_other_adapter,
    setting_of,
)
from agentlite.workspace.model_source import (
    EMBEDDED,
    Source,
    find_model,
    load_template,
    trained_files,
)
from agentlite.workspace.run_folder import Plan, Result, RunTarget

TOKENS_A_SECOND = (
    155  # the embedded model on two cores, seen in the demo: says roughly how long a run takes
)


def inherit(settings: SftSettings, run: Path) -> dict[str, tuple[Any, str]]:
    """The model of prep; and, from the stage that is continued, the shape of its adapter."""
    model = setting_of(settings.data, "model", run)
    return {
        **({"model": (model, settings.data)} if model else {}),
        **adapter_shape(settings.model, run),
        **deepspeed.inherited("sft", settings),
    }


def run(settings: SftSettings, target: RunTarget) -> Result:
    """Trains, or carries on. Raises UserError 3, 5, 6, 7, 74 or 75; Stopped after a signal."""
    data = run_folder.find_stage(settings.data, target.run)
    prepared = run_folder.finished(data, "prep")
    source = find_model(settings.model, target.run)
    digest = ",".join(
        value[:16] for name, value in prepared.outputs.items() if name.startswith(("train", "dev"))
    )
    protocol = run_folder.read_plan(data).settings["protocol"]
    plan = Plan(
        "sft",
        {**resolve.plain_settings(settings), "protocol": protocol},
        {"data": digest, "model": source.digest, **deepspeed.inputs(settings)},
        run_folder.versions(),
    )
    refuse_circle(settings.model, target)
    refuse_other_adapter("sft", settings, source, target.run)
    deepspeed.refuse_unfit("sft", settings, source)
    if target.dry_run:
        return _dry_run(settings, target, plan, data, source)
    if target.has_work(plan):
        check_libraries(settings.engine)
    with (
        console.stdout_to_stderr(),
        run_folder.open_stage(target.folder, plan, force=target.force) as stage,
    ):
        if stage.status != "done":
            coordinate.go()
            with failing_early(stage):
                _fill(stage, settings, data, source, lineage(settings.model, target.run))
        other = "" if settings.data == "prep" else f" --data {settings.data}"
        return stage.result(
            target.next(f"agentlite eval --model {source.name} --model {target.out}{other}")
        )


def key_figure(figures: Mapping[str, Any]) -> str:
    loss = figures["dev_loss"]
    return f"loss {figures['last_loss']:.3f}" if loss is None else f"dev loss {loss:.3f}"


def read_encoded(
    settings: SftSettings, data: Path, split: str, template: Template
) -> list[Encoded]:
    """The training rows of a split. Raises UserError if one is longer than `max_length` or trains
    nothing.
    """
    mixture = settled(run_folder.read_plan(data).settings["protocol"], template)
    encoded: list[Encoded] = []
    path = find_rows(data, split)
    for number, row in enumerate(read_rows(path), 1):
        try:
            record = from_row(row)
            new = training_rows(
                record, mixture.of(record), template, TABLES.get(settings.segment_weights)
            )
        except RowError as error:
            raise UserError(
                error.reason,
                "Run prep with this model: --model.",
                location=f"{path}:{number}",
                exit_code=MODEL,
            ) from error
        longest = max(len(item.input_ids) for item in new)
        if longest > settings.max_length:
            fix = f"Raise it here, --max-length {longest}, or lower it (and join_tokens) at prep."
            raise UserError(
                f"the row has {longest} tokens, max_length is {settings.max_length}.",
                fix,
                location=f"{path}:{number}",
            )
        encoded += new
    return encoded


def _fill(
    stage: run_folder.StageFolder,
    settings: SftSettings,
    data: Path,
    source: Source,
    models: list[str],
) -> None:
    template = load_template(source.base)
    with console.waiting("sft: reading the rows"):
        rows, dev = (read_encoded(settings, data, split, template) for split in ("train", "dev"))
    if not rows:
        raise UserError(
            "holds no training rows.",
            "Run prep with a smaller --test and --dev.",
            location=str(data),
        )
    trained = sum(label >= 0 for row in rows for label in row.labels)
    tokens = sum(len(row.input_ids) for row in rows)
    console.notice(
        f"sft: {len(rows)} rows, {tokens} tokens, {trained / tokens:.1%} of them trained"
    )
    from agentlite.engine import (
        sft,
    )  # torch and its friends: seconds, so only when there is work

    figures = sft.train(source, settings, stage.folder, rows, dev)
    files = trained_files(stage.folder, source.base)
    figures = {"rows": len(rows), "trained_share": round(trained / tokens, 4), **figures}
    stage.finish([*files, "metrics.jsonl"], {**figures, "lineage": [*models, stage.folder.name]})


def _dry_run(
    settings: SftSettings, target: RunTarget, plan: Plan, data: Path, source: Source
) -> Result:
    """Checks rows and template; says how many steps and tokens there would be."""
    status = "new" if target.force else run_folder.compare(target.folder, plan)
    template = load_template(source.base)
    rows = read_encoded(settings, data, "train", template)
    tokens = sum(len(row.input_ids) for row in rows)
    batch = settings.batch_size * settings.gradient_accumulation
    steps = settings.max_steps or math.ceil(len(rows) * settings.num_epochs / batch)
    seen = round(tokens / max(1, len(rows)) * batch * steps)
    longest = max((len(row.input_ids) for row in rows), default=0)
    figures: dict[str, Any] = {
        "folder": status,
        "rows": len(rows),
        "steps": steps,
        "tokens": seen,
        "longest_row": longest,
        "memory_gib": dry_run_memory("sft", settings, source.base, longest),
        "disk_free_gb": round(shutil.disk_usage(data).free / 1e9, 1),
    }
    if source.base in EMBEDDED and not hardware.has_gpu():
        figures["minutes_on_two_cores"] = round(seen / TOKENS_A_SECOND / 60, 1)
    return Result("sft", "dry run", str(target.folder), figures, [], 0.0, "")
