"""finished pairs -> an adapter that prefers chosen answers to rejected ones, by DPO."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentlite.config.resolve import Origins
from agentlite.config.settings import DpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import PreferencePair, Step, from_row
from agentlite.core.row_files import read_rows, read_structs
from agentlite.engine import dpo, trainer
from agentlite.engine.dpo import Preference
from agentlite.engine.refusals import loss_cases, refuse
from agentlite.rendering import encode_answer, mixture_of, prompts_of
from agentlite.rendering.template import Template
from agentlite.stages.training import Training, inherit_settings, refuse_longer, train_stage
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Result, RunTarget, Source, StoredStage

INPUTS = ("pairs.jsonl", "records.jsonl")  # files of a finished pairs
# in place of the defaults, by loss: SimPO's smallest beta (arXiv 2405.14734), ORPO's own SFT loss
LOSS_DEFAULTS: dict[str, dict[str, object]] = {"simpo": {"beta": 2.0}, "orpo": {"sft_weight": 1.0}}


def inherit(settings: DpoSettings, run: Path) -> Origins:
    """Also what the loss wants in place of the defaults."""
    loss_defaults = LOSS_DEFAULTS.get(settings.loss_type, {}).items()
    origin = f"--loss-type {settings.loss_type}"
    origins = {key: (value, origin) for key, value in loss_defaults}
    return {**inherit_settings("dpo", settings, run), **origins}


def run(settings: DpoSettings, target: RunTarget) -> Result:
    """Trains, or carries on."""
    refuse("dpo", loss_cases(settings))
    data = lookup.find_finished_stage(settings.data, target.run, "pairs")
    if data.settings.get("split") == "test":
        raise UserError(
            "its pairs are of the test records, which eval measures on.",
            "Run pairs on --split train.",
            location=str(data.folder),
        )
    source = lookup.find_learner("dpo", settings, target)
    training = train(settings, data, source, load_template(source.base))
    return train_stage(
        "dpo",
        settings,
        target,
        source,
        training,
        protocol=data.settings["protocol"],
        inputs={"data": ",".join(data.outputs[name][:16] for name in INPUTS)},
    )


def train(settings: DpoSettings, data: StoredStage, source: Source, template: Template) -> Training:
    """Reads the pairs, and yields what is known of the steps; then trains."""
    with console.waiting("dpo: reading the pairs"):
        rows = read_preferences(settings, data, template)
    if not rows:
        raise UserError(
            "holds no pair.",
            "Its stats.json says why: sample more (-n), raise the temperature, lower "
            "--margin, or add --gold.",
            location=str(data.folder),
        )
    plan = trainer.schedule(settings, len(rows))
    tokens = [row.tokens for row in rows]
    forecast = {
        "pairs": len(rows),
        "steps": plan.steps,
        "tokens": round(sum(tokens) / len(rows) * plan.rows),
        "longest_pair": max(tokens),
    }
    folder = yield forecast, max(row.longest for row in rows)
    console.notice(f"dpo: {len(rows)} pairs, {sum(tokens)} tokens")
    return {"pairs": len(rows), **dpo.train(source, settings, folder, rows)}


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"margin {figures['margin']:.2f}, accuracy {100 * figures['accuracy']:.0f} %"


def read_preferences(
    settings: DpoSettings, data: StoredStage, template: Template
) -> list[Preference]:
    """The pairs as ids. Raises UserError with file and line for a pair that is too long."""
    path = data.folder / "pairs.jsonl"
    pairs = list(read_structs(path, PreferencePair))
    prompt_ids = _prompt_ids(data, template, [pair.step for pair in pairs])
    rows: list[Preference] = []
    lengths: dict[str, int] = {}
    for number, pair in enumerate(pairs, 1):
        location, prompt = f"{path}:{number}", prompt_ids[pair.step]
        chosen, rejected = (
            encode_answer(answer.text, answer.ended, template, prompt)
            for answer in (pair.chosen, pair.rejected)
        )
        if chosen == rejected:
            console.notice(
                f"{location}: chosen and rejected are the same to the tokenizer, left out"
            )
            continue
        rows.append(Preference(prompt, chosen, rejected))
        lengths[location] = rows[-1].longest
    refuse_longer(lengths, settings.max_length, "pair")
    return rows


def _prompt_ids(
    data: StoredStage, template: Template, steps: Iterable[Step]
) -> dict[Step, list[int]]:
    mixture = mixture_of(data.settings["protocol"], template)
    turns: dict[str, set[int]] = defaultdict(set)
    for step in steps:
        turns[step.record_id].add(step.turn)
    records = [from_row(row) for row in read_rows(data.folder / "records.jsonl")]
    paired = [record for record in records if record.id in turns]
    prompts = prompts_of(paired, mixture.protocol_of, template, lambda record: turns[record.id])
    return {prompt.step: prompt.ids for prompt in prompts}
