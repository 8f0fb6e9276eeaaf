"""finished pairs -> an adapter that prefers chosen answers to rejected ones, by DPO."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentlite.config.settings import DpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, Side, Step, from_row
from agentlite.core.row_files import read_rows
from agentlite.data.curation.keep import parse_keep
from agentlite.engine import dpo
from agentlite.engine.dpo import Preference
from agentlite.engine.kto import Answer
from agentlite.engine.planning.suggest_fit import dry_run_memory
from agentlite.engine.refusals import refuse_contradictions
from agentlite.rendering import encode_answer, mixture_of, prompts
from agentlite.rendering.template import Template
from agentlite.scoring.preference_pairs import read_pairs
from agentlite.stages.frame import Figures
from agentlite.stages.pairs.stored import find_stored, scored, settle_conditions
from agentlite.stages.training import inherited_from_data, refuse_longer, train_stage
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import Result, RunTarget

# in place of the defaults, by loss: SimPO's smallest beta (arXiv 2405.14734), ORPO's own SFT loss
OF_LOSS: dict[str, dict[str, object]] = {"simpo": {"beta": 2.0}, "orpo": {"sft_weight": 1.0}}
CANDIDATES = ("candidates.jsonl", "scores.jsonl")  # what kto reads


def inherit(settings: DpoSettings, run: Path) -> dict[str, tuple[object, str]]:
    """Also what the loss wants in place of the defaults."""
    of_loss = OF_LOSS.get(settings.loss_type, {})
    origin = f"--loss-type {settings.loss_type}"
    return {
        **inherited_from_data("dpo", settings, run),
        **{key: (value, origin) for key, value in of_loss.items()},
    }


def run(settings: DpoSettings, target: RunTarget) -> Result:
    """Trains, or carries on."""
    refuse_contradictions("dpo", settings)
    data = run_folder.find_stage(settings.data, target.run)
    paired = run_folder.finished(data, "pairs")
    source = find_model(settings.model, target.run, target.begun)
    plan = run_folder.read_plan(data)
    if plan.settings.get("split") == "test":
        raise UserError(
            "its pairs are of the test records, which eval measures on.",
            "Run pairs on --split train.",
            location=str(data),
        )
    is_kto = settings.loss_type == "kto"
    unit = "answer" if is_kto else "pair"
    files = CANDIDATES if is_kto and CANDIDATES[0] in paired.outputs else ("pairs.jsonl",)
    digests = ",".join(paired.outputs[name][:16] for name in (*files, "records.jsonl"))

    def read() -> list[Preference] | list[Answer]:
        template = load_template(source.base)
        with console.waiting("dpo: reading the pairs"):
            if is_kto:
                return list(read_answers(settings, data, template))
            return list(read_preferences(settings, data, template))

    def train(folder: Path) -> Figures:
        rows = read()
        if not rows:
            raise UserError(
                f"holds no {unit}.",
                "Its stats.json says why: sample more (-n), raise the temperature, lower "
                "--margin, or add --gold.",
                location=str(data),
            )
        console.notice(f"dpo: {len(rows)} {unit}s, {sum(row.tokens for row in rows)} tokens")
        return {f"{unit}s": len(rows), **dpo.train(source, settings, folder, rows)}

    def dry_run() -> Figures:
        rows = read()
        planned = dpo.schedule(settings, rows)
        tokens = [row.tokens for row in rows]
        longest = max((row.longest for row in rows), default=0)
        return {
            f"{unit}s": len(rows),
            "steps": planned.steps,
            "tokens": round(sum(tokens) / max(1, len(rows)) * planned.rows),
            f"longest_{unit}": max(tokens, default=0),
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
        dry_run=dry_run,
        train=train,
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    margin = f"margin {figures['margin']:.2f}"
    if "accuracy" not in figures:  # kto has no pairs
        return margin
    return f"{margin}, accuracy {100 * figures['accuracy']:.0f} %"


def read_preferences(settings: DpoSettings, data: Path, template: Template) -> Iterator[Preference]:
    """The pairs as ids. Raises UserError with file and line for a pair that cannot be trained
    on.
    """
    path = data / "pairs.jsonl"
    pairs = list(read_pairs(path))
    lengths: dict[str, int] = {}
    prompt_ids = _prompt_ids(data, template, [pair.step for pair in pairs])
    for number, pair in enumerate(pairs, 1):
        location = f"{path}:{number}"
        prompt = prompt_ids[pair.step]
        chosen, rejected = (
            encode_answer(side.text, side.ended, template, prompt)
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
        row = Preference(prompt, chosen, rejected)
        lengths[location] = row.longest
        yield row
    refuse_longer(lengths, settings.max_length, "pair")


def read_answers(settings: DpoSettings, data: Path, template: Template) -> Iterator[Answer]:
    """The candidates as ids, each desirable or not; of pairs without candidates, which were
    recorded or ranked again, both sides. Raises UserError as read_preferences does, and for a
    condition that no score meets.
    """
    path = data / CANDIDATES[0]
    labelled: list[tuple[int, Step, Candidate | Side, bool]]
    if path.exists():
        candidates = scored(find_stored(str(data), data.parent))
        wanted = parse_keep(settings.desirable).conditions
        conditions = settle_conditions(wanted, candidates, data, "--desirable")
        labelled = [
            (one.line, one.candidate.step, one.candidate, one.meets(conditions))
            for one in candidates
        ]
    else:
        path = data / "pairs.jsonl"
        labelled = [
            (line, pair.step, side, side is pair.chosen)
            for line, pair in enumerate(read_pairs(path), 1)
            for side in (pair.chosen, pair.rejected)
        ]
    prompt_ids = _prompt_ids(data, template, [step for _, step, _, _ in labelled])
    lengths: dict[str, int] = {}
    for line, step, answer, desirable in labelled:
        location = f"{path}:{line}"
        prompt = prompt_ids[step]
        row = Answer(prompt, encode_answer(answer.text, answer.ended, template, prompt), desirable)
        lengths[location] = max(row.longest, lengths.get(location, 0))  # a pair has two answers
        yield row
    refuse_longer(lengths, settings.max_length, "answer")


def _prompt_ids(data: Path, template: Template, steps: Iterable[Step]) -> dict[Step, list[int]]:
    mixture = mixture_of(run_folder.read_plan(data).settings["protocol"], template)
    turns: dict[str, set[int]] = defaultdict(set)
    for step in steps:
        turns[step.record_id].add(step.turn)
    records = [
        record for row in read_rows(data / "records.jsonl") if (record := from_row(row)).id in turns
    ]
    found = prompts(records, mixture.of, template, lambda record: turns[record.id])
    return {prompt.step: prompt.ids for prompt in found}
