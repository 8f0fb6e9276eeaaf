"""finished prep -> an adapter trained on the assistant's messages, by supervised fine-tuning."""

from collections.abc import Mapping
from pathlib import Path

from agentlite.config.settings import SftSettings
from agentlite.core import console
from agentlite.core.errors import MODEL, RowError, UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import find_rows, read_rows
from agentlite.data.curriculum import level
from agentlite.engine import deepspeed, sft, trainer
from agentlite.engine.planning.suggest_fit import dry_run_memory
from agentlite.rendering import TABLES, Encoded, mixture_of, training_rows
from agentlite.rendering.template import Template
from agentlite.stages.training import evaluated_on, refuse_longer, train_stage
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import adapter_shape, longer_rows, setting_of
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import Result, RunTarget


def inherit(settings: SftSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The model of prep and the length of its rows, and the shape of the adapter that is
    continued.
    """
    model = setting_of(settings.data, "model", run)
    return {
        **({"model": (model, settings.data)} if model else {}),
        **longer_rows("sft", settings.data, run),
        **adapter_shape(settings.model, run),
        **deepspeed.inherited("sft", settings),
    }


def run(settings: SftSettings, target: RunTarget) -> Result:
    """Trains, or carries on."""
    data = run_folder.find_stage(settings.data, target.run)
    prepared = run_folder.finished(data, "prep")
    source = find_model(settings.model, target.run, target.begun)
    digests = ",".join(
        value[:16] for name, value in prepared.outputs.items() if name.startswith(("train", "dev"))
    )

    def read(split: str) -> tuple[list[Encoded], list[int]]:
        with console.waiting(f"sft: reading the rows of {split}"):
            return read_encoded(settings, data, split, load_template(source.base))

    def dry_run() -> dict[str, object]:
        rows, _ = read("train")
        tokens = sum(len(row.input_ids) for row in rows)
        longest = max((len(row.input_ids) for row in rows), default=0)
        planned = trainer.schedule_of(settings, len(rows))
        return {
            "rows": len(rows),
            "steps": planned.steps,
            "tokens": round(tokens / max(1, len(rows)) * planned.rows),
            "longest_row": longest,
            "memory_gib": dry_run_memory("sft", settings, source.base, longest),
        }

    def train(folder: Path) -> dict[str, object]:
        (rows, levels), (dev, _) = read("train"), read("dev")
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
        in_order = levels if settings.order == "curriculum" else ()
        figures = sft.train(source, settings, folder, rows, dev, in_order)
        return {"rows": len(rows), "trained_share": round(trained / tokens, 4), **figures}

    return train_stage(
        "sft",
        settings,
        target,
        source,
        protocol=run_folder.read_plan(data).settings["protocol"],
        inputs={"data": digests},
        check=lambda: sft.check(settings),
        dry_run=dry_run,
        train=train,
        evaluate=evaluated_on(settings.data),
    )


def key_figure(figures: Mapping[str, object]) -> str:
    loss = figures["dev_loss"]
    return f"loss {figures['last_loss']:.3f}" if loss is None else f"dev loss {loss:.3f}"


def read_encoded(
    settings: SftSettings, data: Path, split: str, template: Template
) -> tuple[list[Encoded], list[int]]:
    """The training rows of a split, and the level of each. Raises UserError if one is longer than
    `max_length` or trains nothing.
    """
    mixture = mixture_of(run_folder.read_plan(data).settings["protocol"], template)
    encoded: list[Encoded] = []
    levels: list[int] = []
    lengths: dict[str, int] = {}
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
        lengths[f"{path}:{number}"] = max(len(item.input_ids) for item in new)
        encoded += new
        learned = [turn for turn in record.turns if record.messages[turn].loss]
        levels += [level(record, learned)] * len(new)
    refuse_longer(lengths, settings.max_length, "row", "or lower it (and join_tokens) at prep")
    return encoded, levels
