"""finished prep -> an adapter trained on the assistant's messages, by supervised fine-tuning."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agentlite.config.settings import SftSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, RowError, UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import find_rows, read_rows
from agentlite.data.curation.task_labels import level
from agentlite.engine import sft, trainer
from agentlite.engine.refusals import of_packing, refuse
from agentlite.rendering import TABLES, Encoded, mixture_of, training_rows
from agentlite.rendering.template import Template
from agentlite.stages.frame import Figures
from agentlite.stages.training import evaluated_on, inherit_settings, refuse_longer, train_stage
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import FinishedStage, Result, RunTarget, find_finished

inherit = partial(inherit_settings, "sft")
# the rows that are trained and the level of each, and the rows of dev
SplitRows = tuple[list[Encoded], list[int], list[Encoded]]


def run(settings: SftSettings, target: RunTarget) -> Result:
    """Trains, or carries on: `train_stage` has the rows read, and then the steps forecast in a dry
    run, or the model trained.
    """
    refuse("sft", of_packing(settings))
    prep = find_finished(settings.data, target.run, "prep")
    files = [name for name in prep.outputs if name.startswith(("train", "dev"))]
    source = find_model(settings.model, target.run, target.begun)

    def read() -> SplitRows:
        template = load_template(source.base)
        with console.waiting("sft: reading the rows"):
            rows, levels = read_encoded(settings, prep, "train", template)
            dev, _ = read_encoded(settings, prep, "dev", template)
        if not rows:
            raise UserError(
                "holds no training rows.",
                "Run prep with a smaller --test and --dev.",
                location=str(prep.folder),
            )
        return rows, levels, dev

    def forecast(split_rows: SplitRows) -> tuple[Figures, int]:
        lengths = [len(row.input_ids) for row in split_rows[0]]
        plan = trainer.schedule(settings, len(lengths))
        figures = {
            "rows": len(lengths),
            "steps": plan.steps,
            "tokens": round(sum(lengths) / len(lengths) * plan.rows),
            "longest_row": max(lengths),
        }
        return figures, max(lengths)

    def train(split_rows: SplitRows, folder: Path) -> Figures:
        rows, levels, dev = split_rows
        tokens = sum(len(row.input_ids) for row in rows)
        share = sum(label >= 0 for row in rows for label in row.labels) / tokens
        console.notice(f"sft: {len(rows)} rows, {tokens} tokens, {share:.1%} of them trained")
        in_order = levels if settings.order == "curriculum" else ()
        figures = sft.train(source, settings, folder, rows, dev, in_order)
        return {"rows": len(rows), "trained_share": round(share, 4), **figures}

    return train_stage(
        "sft",
        settings,
        target,
        source,
        protocol=prep.settings["protocol"],
        inputs={"data": ",".join(prep.outputs[name][:16] for name in files)},
        check=lambda: sft.check(settings),
        read=read,
        forecast=forecast,
        train=train,
        evaluate=evaluated_on(settings.data),
    )


def key_figure(figures: Mapping[str, object]) -> str:
    loss = figures["dev_loss"]
    return f"loss {figures['last_loss']:.3f}" if loss is None else f"dev loss {loss:.3f}"


def read_encoded(
    settings: SftSettings, prep: FinishedStage, split: str, template: Template
) -> tuple[list[Encoded], list[int]]:
    """The training rows of a split, and the level of each. Raises UserError if one is longer than
    `max_length` or trains nothing.
    """
    mixture = mixture_of(prep.settings["protocol"], template)
    weights = TABLES.get(settings.segment_weights)
    encoded: list[Encoded] = []
    levels: list[int] = []
    lengths: dict[str, int] = {}
    path = find_rows(prep.folder, split)
    for number, row in enumerate(read_rows(path), 1):
        location = f"{path}:{number}"
        try:
            record = from_row(row)
            new = training_rows(record, mixture.of(record), template, weights)
        except RowError as error:
            raise UserError(
                error.reason,
                "Run prep with this model: --model.",
                location=location,
                exit_code=MODEL,
            ) from error
        encoded += new
        lengths[location] = max(len(row.input_ids) for row in new)
        learned = [turn for turn in record.turns if record.messages[turn].loss]
        levels += [level(record, learned)] * len(new)
    refuse_longer(lengths, settings.max_length, "row", "or lower it (and join_tokens) at prep")
    return encoded, levels
