"""Files of preference rows -> the same folder as after sampling, without candidates and scores."""

from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, RowError, UserError, exceeds_share
from agentlite.core.records import PreferencePair, Record, Side, from_row, to_row
from agentlite.core.row_files import read_rows, row_file, write_rows
from agentlite.data.curation.duplicates import leaks
from agentlite.data.curation.pii import mask_personal
from agentlite.data.curation.traits import traits
from agentlite.data.formats.raw_rows import files_of, read_raw
from agentlite.data.preferences import RecordedPreference, read_preference, split_preferences
from agentlite.data.rejects import Reject, reject_of, reject_row, report
from agentlite.rendering import Mixture, check_reading, mixture_of, prompt_at, render
from agentlite.rendering.protocol import without_thoughts
from agentlite.rendering.template import Template
from agentlite.scoring.preference_pairs import write_pairs
from agentlite.stages.frame import Work, plan_of, run_stage
from agentlite.stages.pairs.score import dpo_command, refuse_long
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest, load_template

PREFERRED = "preferred"  # stands for a model's name: nobody knows which one answered
SETTINGS = ("preferences", "model", "max_length", "max_rejects")
OUTPUTS = ("records.jsonl", "pairs.jsonl", "rejects.jsonl")
LEAK = "F331"


def take_preferences(settings: PairsSettings, target: lookup.RunTarget) -> lookup.Result:
    """Every row is read, rendered and checked. The dev and test records of the prep that is named,
    or of the run's own where there is one, are held out.
    """
    if settings.candidates or settings.judge:
        raise UserError(
            "there is nothing to rank: the file says which answer is better.",
            "Leave --from and --judge out.",
            location="--preferences",
        )
    folder, prep = lookup.find_stage(settings.data, target.run), None
    if settings.data != PairsSettings().data or lookup.is_stage(folder):
        prep = lookup.finished_stage(folder, "prep")
    source = lookup.find_model(settings.model, target.run, target.old_plan)
    template = load_template(source.base)
    mixture = mixture_of(str(source.settings.get("protocol") or ""), template)
    files = [file for name in settings.preferences for file in files_of(name)]
    prep_settings = prep.settings if prep else {}
    held_out_files = [row_file(prep.folder, split) for split in ("dev", "test")] if prep else []
    inputs = {name: file_digest(Path(name)) for name in files}
    inputs |= {f"held out {path.stem}": file_digest(path) for path in held_out_files}
    inputs["model"] = source.digest
    plan = plan_of("pairs", settings, inputs, SETTINGS, protocol=mixture.setting)

    def work() -> Work:
        with console.waiting("pairs: reading the preferences"):
            records, pairs, rejects, figures = _read_pairs(
                files, held_out_files, prep_settings, mixture, template, settings.max_length
            )
        stage = yield figures
        path = stage.folder / "rejects.jsonl"
        write_rows(path, map(reject_row, rejects))
        for line in report(rejects, str(path), repairs=False):
            console.row_notice(line)
        if "left_out" in figures:
            console.notice(
                f"pairs: {figures['left_out'][LEAK]} pairs give away a dev or test record of "
                f"{settings.data} ({LEAK}) and are left out"
            )
        rows_read, count = figures["read"], len(rejects)
        if exceeds_share(count, rows_read, settings.max_rejects, allowed=1) or not pairs:
            share = -(-100 * count // max(1, rows_read)) / 100  # rounded up, to be enough
            raise UserError(
                f"{count} of {rows_read} rows rejected, {len(pairs)} pairs left.",
                f"Correct the rows, or allow more: --max-rejects {share:.2f}."
                if pairs
                else "Correct the rows.",
                location=str(path),
                exit_code=REJECTS,
            )
        write_rows(stage.folder / "records.jsonl", map(to_row, records.values()))
        write_pairs(stage.folder / "pairs.jsonl", pairs)
        return OUTPUTS, {**figures, "lineage": source.lineage}

    return run_stage(plan, target, work(), next_command=dpo_command(target.out))


def _read_pairs(
    files: list[str],
    held_out_files: list[Path],
    prep_settings: Mapping[str, Any],
    mixture: Mixture,
    template: Template,
    max_length: int,
) -> tuple[dict[str, Record], list[PreferencePair], list[Reject], dict[str, Any]]:
    """Records, pairs, each once and in its order, rejects, and figures. Without the pairs whose
    record asks or calls what a held-out one does, as `prep --holdout` compares them; without
    thoughts, and masked to be compared, where prep's records are.
    """
    records: dict[str, Record] = {}
    pairs: dict[tuple[str, int, str], PreferencePair] = {}
    rejects, rows_read = [], 0
    for file, raw in ((name, raw) for name in files for raw in read_raw(name, BytesIO())):
        singles = split_preferences(raw)
        rows_read += len(singles)
        for number, single in enumerate(singles, 1):
            try:
                preference = read_preference(single.row, Path(file).name)
                if prep_settings.get("thoughts") == "drop":
                    sides = (preference.record, preference.rejected_record)
                    record, other = map(without_thoughts, sides)
                    preference = RecordedPreference(record, other.messages[-1], preference.scores)
                pair = _pair(preference, mixture, template, max_length)
                # a chosen answer may stand over several others; the same two are one pair
                key = (*pair.step, pair.rejected.text)
                if key not in pairs:
                    pairs[key] = pair
                    records[pair.record_id] = preference.record
            except RowError as error:
                rejects.append(reject_of(raw, error, number if len(singles) > 1 else 0))
    is_masked = prep_settings.get("personal") == "mask"
    record_traits = {
        record_id: traits(mask_personal(record)[0] if is_masked else record)
        for record_id, record in records.items()
    }
    held_out = [traits(from_row(row)) for path in held_out_files for row in read_rows(path)]
    leaking = leaks(record_traits, held_out)
    kept_pairs = [pair for pair in pairs.values() if pair.record_id not in leaking]
    records = {key: record for key, record in records.items() if key not in leaking}
    codes = Counter(reject.code for reject in rejects)
    left_out = len(pairs) - len(kept_pairs)
    figures = {
        "read": rows_read,
        "rejected": len(rejects),
        **({"rejected_by_code": dict(codes.most_common())} if codes else {}),
        **({"left_out": {LEAK: left_out}} if left_out else {}),
        "steps": len({pair.step for pair in kept_pairs}),
        "pairs": len(kept_pairs),
    }
    return records, kept_pairs, rejects, figures


def _pair(
    preference: RecordedPreference, mixture: Mixture, template: Template, max_length: int
) -> PreferencePair:
    """Both answers as a model of this protocol writes them."""
    record, turn = preference.record, preference.turn
    protocol = mixture.protocol_of(record)
    rows = render(record, protocol, template)
    check_reading(record, rows, protocol, template)
    chosen = prompt_at(record, turn, rows, protocol, template)
    # what is rejected need not read back: an answer may be rejected for that
    other = preference.rejected_record
    rejected = prompt_at(other, turn, render(other, protocol, template), protocol, template)
    if chosen.answer.strip() == rejected.answer.strip():
        raise RowError("E219", f"chosen and rejected are the same in protocol {protocol.name}")
    sides = [
        Side(prompt.answer, prompt.ended, PREFERRED, sample, preference.scores[sample])
        for sample, prompt in enumerate((chosen, rejected))
    ]
    refuse_long(chosen, sides, template, max_length)
    return PreferencePair(record.id, turn, protocol.name, *sides)
