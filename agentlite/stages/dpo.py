"""finished pairs -> an adapter that prefers chosen answers to rejected ones, by DPO."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentlite.config.settings import DpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows
from agentlite.engine import deepspeed, dpo
from agentlite.engine.dpo import Preference
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.rendering import encode_answer, prompts, settled
from agentlite.rendering.template import Template
from agentlite.scoring.preference_pairs import read_pairs
from agentlite.stages.training import train_stage
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import adapter_shape, setting_of
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import Result, RunTarget

# in place of the defaults, by loss: SimPO's smallest beta (arXiv 2405.14734), ORPO's own SFT loss
OF_LOSS: dict[str, dict[str, object]] = {"simpo": {"beta": 2.0}, "orpo": {"sft_weight": 1.0}}
SMOOTHED = ("sigmoid", "robust", "exo_pair")


def inherit(settings: DpoSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The model that the pairs were sampled from, the shape of the adapter that is continued, and
    what the loss wants in place of the defaults.
    """
    model = settings.model or str(setting_of(settings.data, "model", run) or "")
    return {
        **({"model": (model, settings.data)} if model else {}),
        **adapter_shape(model, run),
        **deepspeed.inherited("dpo", settings),
        **{
            key: (value, f"--loss-type {settings.loss_type}")
            for key, value in OF_LOSS.get(settings.loss_type, {}).items()
        },
    }


def run(settings: DpoSettings, target: RunTarget) -> Result:
    """Trains, or carries on. Raises UserError 2, 3, 5, 6, 7, 74 or 75; Stopped after a signal."""
    if Path(settings.data).is_file():
        raise UserError(
            "is a file of rows, not a finished pairs.",
            f"agentlite pairs --preferences {settings.data} makes pairs of its rows.",
            location=settings.data,
        )
    data = run_folder.find_stage(settings.data, target.run)
    paired = run_folder.finished(data, "pairs")
    source = find_model(settings.model, target.run, target.begun)
    _refuse_smoothing(settings)
    plan = run_folder.read_plan(data)
    if plan.settings.get("split") == "test":
        raise UserError(
            "its pairs are of the test records, which eval measures on.",
            "Run pairs on --split train.",
            location=str(data),
        )
    digests = ",".join(paired.outputs[name][:16] for name in ("pairs.jsonl", "records.jsonl"))

    def train(folder: Path) -> dict[str, object]:
        with console.waiting("dpo: reading the pairs"):
            rows = list(read_preferences(settings, data, load_template(source.base)))
        if not rows:
            raise UserError(
                "holds no pair.",
                "Its stats.json says why: sample more (-n), raise the temperature, lower "
                "--margin, or add --gold.",
                location=str(data),
            )
        console.notice(f"dpo: {len(rows)} pairs, {sum(row.tokens for row in rows)} tokens")
        return {"pairs": len(rows), **dpo.train(source, settings, folder, rows)}

    def forecast() -> dict[str, object]:
        """Reads the pairs as `train` does; says how many steps and tokens there would be."""
        rows = list(read_preferences(settings, data, load_template(source.base)))
        planned = dpo.schedule(settings, rows)
        tokens = sum(row.tokens for row in rows)
        longest = max(
            (len(row.prompt) + max(len(row.chosen), len(row.rejected)) for row in rows), default=0
        )
        return {
            "pairs": len(rows),
            "steps": planned.steps,
            "tokens": round(tokens / max(1, len(rows)) * planned.rows),
            "longest_pair": max((row.tokens for row in rows), default=0),
            "memory_gib": dry_run_memory("dpo", settings, source.base, longest),
        }

    return train_stage(
        "dpo",
        settings,
        target,
        source,
        protocol=plan.settings["protocol"],
        inputs={"data": digests},
        check=lambda: dpo.check(settings),
        forecast=forecast,
        train=train,
    )


def _refuse_smoothing(settings: DpoSettings) -> None:
    if settings.label_smoothing and settings.loss_type not in SMOOTHED:
        raise UserError(
            f"{settings.loss_type} has no label smoothing.",
            "Leave it out, or take --loss-type sigmoid.",
            location="dpo.label_smoothing",
        )
    if settings.loss_type == "exo_pair" and not settings.label_smoothing:
        raise UserError(
            "exo_pair takes the logarithm of the label smoothing, which is 0.",
            "Add --label-smoothing 0.001, as its paper does.",
            location="dpo.label_smoothing",
        )


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"margin {figures['margin']:.2f}, accuracy {100 * figures['accuracy']:.0f} %"


def read_preferences(settings: DpoSettings, data: Path, template: Template) -> Iterator[Preference]:
    """The pairs as ids. Raises UserError with file and line for a pair that cannot be trained
    on.
    """
    mixture = settled(run_folder.read_plan(data).settings["protocol"], template)
    path = data / "pairs.jsonl"
    pairs = list(read_pairs(path))
    turns: dict[str, set[int]] = defaultdict(set)
    for pair in pairs:
        turns[pair.record_id].add(pair.turn)
    records = [
        record for row in read_rows(data / "records.jsonl") if (record := from_row(row)).id in turns
    ]
    steps = prompts(records, mixture.of, template, lambda record: turns[record.id])
    prompt_ids = {prompt.step: prompt.ids for prompt in steps}
    for number, pair in enumerate(pairs, 1):
        location = f"{path}:{number}"
        if pair.step not in prompt_ids:
            raise UserError(
                f"records.jsonl has no record {pair.record_id} with turn {pair.turn}.",
                "Run pairs again with --force.",
                location=location,
            )
        chosen, rejected = (
            encode_answer(side.text, side.ended, template, prompt_ids[pair.step])
            for side in (pair.chosen, pair.rejected)
        )
        if pair.chosen.text.strip() == pair.rejected.text.strip():
            raise UserError(
                "chosen and rejected are the same.",
                "Rank the candidates again: agentlite pairs --from.",
                location=location,
            )
        if chosen == rejected:
            console.notice(
                f"{location}: chosen and rejected are the same to the tokenizer, left out"
            )
            continue
        row = Preference(prompt_ids[pair.step], chosen, rejected)
        longest = len(row.prompt) + max(len(row.chosen), len(row.rejected))
        if longest > settings.max_length:
            raise UserError(
                f"the pair has {longest} tokens, max_length is {settings.max_length}.",
                f"Raise it: --max-length {longest}.",
                location=location,
            )
        yield row
