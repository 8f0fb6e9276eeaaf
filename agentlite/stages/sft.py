"""finished prep -> an adapter trained on the assistant's messages, by supervised fine-tuning."""

from collections.abc import Mapping
from functools import partial

from agentlite.config.settings import SftSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, RowError, UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows, row_file
from agentlite.engine import sft, trainer
from agentlite.rendering import Encoded, mixture_of, training_rows
from agentlite.rendering.template import Template
from agentlite.stages.training import (
    Training,
    data_option,
    inherit_settings,
    refuse_longer,
    train_stage,
)
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Result, RunTarget, Source, StoredStage

inherit = partial(inherit_settings, "sft")


def run(settings: SftSettings, target: RunTarget) -> Result:
    """Trains, or carries on."""
    prep = lookup.find_finished_stage(settings.data, target.run, "prep")
    files = [name for name in prep.outputs if name.startswith(("train", "dev"))]
    source = lookup.find_learner("sft", settings, target)
    training = train(settings, prep, source, load_template(source.base))
    return train_stage(
        "sft",
        settings,
        target,
        source,
        training,
        protocol=prep.settings["protocol"],
        inputs={"data": ",".join(prep.outputs[name][:16] for name in files)},
        eval_options=data_option(settings.data),
    )


def train(settings: SftSettings, prep: StoredStage, source: Source, template: Template) -> Training:
    """Reads the rows, and yields what is known of the steps; then trains."""
    with console.waiting("sft: reading the rows"):
        rows = encode_rows(settings, prep, "train", template)
        dev = encode_rows(settings, prep, "dev", template)
    if not rows:
        raise UserError(
            "holds no training rows.",
            "Run prep with a smaller --test and --dev.",
            location=str(prep.folder),
        )
    lengths = [len(row.input_ids) for row in rows]
    plan = trainer.schedule(settings, len(rows))
    forecast = {
        "rows": len(rows),
        "steps": plan.steps,
        "tokens": round(sum(lengths) / len(rows) * plan.rows),
        "longest_row": max(lengths),
    }
    folder = yield forecast, max(lengths)
    share = sum(label >= 0 for row in rows for label in row.labels) / sum(lengths)
    console.notice(f"sft: {len(rows)} rows, {sum(lengths)} tokens, {share:.1%} of them trained")
    figures = sft.train(source, settings, folder, rows, dev)
    return {"rows": len(rows), "trained_share": round(share, 4), **figures}


def key_figure(figures: Mapping[str, object]) -> str:
    loss = figures["dev_loss"]
    return f"loss {figures['last_loss']:.3f}" if loss is None else f"dev loss {loss:.3f}"


def encode_rows(
    settings: SftSettings, prep: StoredStage, split: str, template: Template
) -> list[Encoded]:
    """The training rows of a split. Raises UserError if one is longer than `max_length` or trains
    nothing.
    """
    mixture = mixture_of(prep.settings["protocol"], template)
    encoded: list[Encoded] = []
    lengths: dict[str, int] = {}
    path = row_file(prep.folder, split)
    for number, row in enumerate(read_rows(path), 1):
        location = f"{path}:{number}"
        try:
            record = from_row(row)
            new_rows = training_rows(record, mixture.protocol_of(record), template)
        except RowError as error:
            raise UserError(
                error.reason,
                "Run prep with this model: --model.",
                location=location,
                exit_code=MODEL,
            ) from error
        encoded += new_rows
        lengths[location] = max(len(r.input_ids) for r in new_rows)
    refuse_longer(lengths, settings.max_length, "row", "or lower it (and join_tokens) at prep")
    return encoded
