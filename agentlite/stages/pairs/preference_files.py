"""Files of preference rows -> the same folder as after sampling, without candidates and scores."""

import shlex
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, RowError, UserError
from agentlite.core.records import PreferencePair, Record, Side, from_row, to_row
from agentlite.core.row_files import find_rows, read_rows, write_rows
from agentlite.data.curation.duplicates import leaks
from agentlite.data.curation.pii import mask
from agentlite.data.curation.traits import traits
from agentlite.data.formats.raw_rows import files_of, read_raw
from agentlite.data.preferences import RecordedPreference, read_preferences
from agentlite.data.rejects import Reject, reject_of, reject_row, report
from agentlite.rendering import Mixture, check_reading, mixture_of, prompt_at, render
from agentlite.rendering.protocol import without_thoughts
from agentlite.rendering.template import Template
from agentlite.scoring.preference_pairs import write_pairs
from agentlite.stages.frame import Work, plan_of, run_stage
from agentlite.stages.pairs.score import refuse_long
from agentlite.workspace import stage_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.stage_folder import Result, RunTarget, StoredStage

PREFERRED = "preferred"  # stands for a model's name: nobody knows which one answered
SETTINGS = ("preferences", "model", "max_length", "max_rejects")
OUTPUTS = ("records.jsonl", "pairs.jsonl", "rejects.jsonl")
LEAK = "F331"


class RecordedPairs(NamedTuple):
    """What the files hold, in their order: each pair once, and the record that each belongs to.

    `left_out`: the pairs whose record gives a held-out one away.
    """

    read: int
    records: dict[str, Record]
    pairs: list[PreferencePair]
    rejects: list[Reject]
    left_out: int

    @property
    def figures(self) -> dict[str, object]:
        codes = Counter(reject.code for reject in self.rejects)
        return {
            "read": self.read,
            "rejected": len(self.rejects),
            **({"rejected_by_code": dict(codes.most_common())} if codes else {}),
            **({"left_out": {LEAK: self.left_out}} if self.left_out else {}),
            "steps": len({pair.step for pair in self.pairs}),
            "pairs": len(self.pairs),
        }


def take_recorded(settings: PairsSettings, target: RunTarget) -> Result:
    """Every row is read, rendered and checked."""
    if settings.candidates or settings.judge:
        raise UserError(
            "there is nothing to rank: the file says which answer is better.",
            "Leave --from and --judge out.",
            location="--preferences",
        )
    prep = _prep_of(settings.data, target.run)
    source = find_model(settings.model, target.run, target.begun)
    template = load_template(source.base)
    mixture = mixture_of(str(source.settings.get("protocol") or ""), template)
    files = [file for name in settings.preferences for file in files_of(name)]
    inputs = {name: file_digest(Path(name)) for name in files}
    inputs |= {f"held out {file.stem}": digest for file, digest in _held_out_files(prep).items()}
    inputs["model"] = source.digest
    plan = plan_of("pairs", settings, inputs, SETTINGS, protocol=mixture.name)

    def work() -> Work:
        with console.waiting("pairs: reading the preferences"):
            recorded = _read(files, prep, mixture, template, settings.max_length)
        stage = yield recorded.figures
        rejects = stage.folder / "rejects.jsonl"
        write_rows(rejects, map(reject_row, recorded.rejects))
        for line in report(recorded.rejects, str(rejects), repairs=False):
            console.row_notice(line)
        _refuse_rejects(recorded, settings.max_rejects, rejects)
        if recorded.left_out:
            console.notice(
                f"pairs: {recorded.left_out} pairs give away a dev or test record of "
                f"{settings.data} ({LEAK}) and are left out"
            )
        write_rows(stage.folder / "records.jsonl", map(to_row, recorded.records.values()))
        write_pairs(stage.folder / "pairs.jsonl", recorded.pairs)
        return OUTPUTS, {**recorded.figures, "lineage": source.lineage}

    return run_stage(
        plan,
        target,
        work(),
        next_command=f"agentlite dpo --data {shlex.quote(target.out)}",
    )


def _prep_of(data: str, run: Path) -> StoredStage | None:
    """The prep that is named, or the run's own where there is one: its dev and test records are
    held out.
    """
    folder = stage_folder.find_stage(data, run)
    is_none = data == PairsSettings().data and not stage_folder.is_stage(folder)
    return None if is_none else stage_folder.finished(folder, "prep")


def _held_out_files(prep: StoredStage | None) -> dict[Path, str]:
    """The files of its dev and test records, with their digests."""
    files = [find_rows(prep.folder, split) for split in ("dev", "test")] if prep else []
    return {file: prep.outputs[file.name] for file in files if prep}


def _read(
    files: list[str],
    prep: StoredStage | None,
    mixture: Mixture,
    template: Template,
    max_length: int,
) -> RecordedPairs:
    """Without the pairs whose record asks or calls what a held-out one does, as `prep --holdout`
    compares them; without thoughts, and masked to be compared, where prep's records are.
    """
    planned = prep.settings if prep else {}
    records: dict[str, Record] = {}
    pairs: dict[tuple[str, int, str], PreferencePair] = {}
    rejects, read = [], 0
    for file, raw in ((name, raw) for name in files for raw in read_raw(name, BytesIO())):
        read += 1
        try:
            for preference in read_preferences(raw.row, Path(file).name):
                if planned.get("thoughts") == "drop":
                    record, other = map(without_thoughts, (preference.record, preference.other))
                    preference = RecordedPreference(record, other.messages[-1], preference.scores)
                pair = _pair(preference, mixture, template, max_length)
                key = (*pair.step, pair.rejected.text)
                if key not in pairs:
                    pairs[key] = pair
                    records[pair.record_id] = preference.record
        except RowError as error:
            rejects.append(reject_of(raw, error))
    compared = {
        record_id: traits(mask(record)[0] if planned.get("personal") == "mask" else record)
        for record_id, record in records.items()
    }
    held_out = [row for file in _held_out_files(prep) for row in read_rows(file)]
    leaking = leaks(compared, [traits(from_row(row)) for row in held_out])
    kept = [pair for pair in pairs.values() if pair.record_id not in leaking]
    records = {key: record for key, record in records.items() if key not in leaking}
    return RecordedPairs(read, records, kept, rejects, len(pairs) - len(kept))


def _pair(
    preference: RecordedPreference, mixture: Mixture, template: Template, max_length: int
) -> PreferencePair:
    """Both answers as a model of this protocol writes them."""
    record, turn = preference.record, preference.turn
    protocol = mixture.of(record)
    rows = render(record, protocol, template)
    check_reading(record, rows, protocol, template)
    chosen = prompt_at(record, turn, rows, protocol, template)
    # what is rejected need not read back: an answer may be rejected for that
    other = preference.other
    rejected = prompt_at(other, turn, render(other, protocol, template), protocol, template)
    if chosen.answer.strip() == rejected.answer.strip():
        raise RowError("E219", f"chosen and rejected are the same in protocol {protocol.name}")
    sides = [
        Side(prompt.answer, prompt.ended, PREFERRED, sample, preference.scores[sample])
        for sample, prompt in enumerate((chosen, rejected))
    ]
    refuse_long(chosen, sides, template, max_length)
    return PreferencePair(record.id, turn, protocol.name, *sides)


def _refuse_rejects(recorded: RecordedPairs, allowed: float, file: Path) -> None:
    """Raises UserError 4 where there are too many rejects, or no pair is left."""
    count, left = len(recorded.rejects), len(recorded.pairs)
    if count <= max(1, allowed * recorded.read) and left:
        return
    fix = "Correct the rows."
    if left:
        share = min(1.0, count / recorded.read + 0.005)
        fix = f"Correct the rows, or allow more: --max-rejects {share:.2f}."
    leaking = f", {recorded.left_out} pairs left out ({LEAK})" if recorded.left_out else ""
    raise UserError(
        f"{count} of {recorded.read} rows rejected{leaking}, {left} pairs left.",
        fix,
        location=str(file),
        exit_code=REJECTS,
    )
