"""Files of preference rows -> the same folder as after sampling, without candidates and scores."""

import shlex
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from agentlite.config import resolve
from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import REJECTS, RowError, UserError
from agentlite.core.records import PreferencePair, Record, Side, from_row, to_row
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import find_rows, read_rows, write_rows
from agentlite.data.curation.decontaminate import leaks
from agentlite.data.curation.pii import mask
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.formats import files_of, read_raw
from agentlite.data.preferences import RecordedPreference, read_preferences
from agentlite.data.rejects import Reject, reject_row, report
from agentlite.rendering import (
    Mixture,
    check_reading,
    choose,
    encode_answer,
    prompt_at,
    render,
    settled,
)
from agentlite.rendering.template import Template
from agentlite.scoring.preference_pairs import write_pairs
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.lineage import lineage, setting_of
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

PREFERRED = "preferred"  # stands for a model's name: nobody knows which one answered
SETTINGS = ("preferences", "model", "max_length", "max_rejects")
HELD_OUT_SPLITS = ("dev", "test")
LEAK = "F331"


class HeldOutRecords(NamedTuple):
    """The dev and test records of a finished prep, and their digests by split.

    `masked`: they were masked, so a question is masked before it is compared with theirs.
    """

    traits: list[Traits]
    digests: dict[str, str]
    masked: bool


class RecordedPairs(NamedTuple):
    """What the files hold, in their order: each pair once, and the record that each belongs to.

    `left_out`: the pairs whose record gives a held-out one away.
    """

    read: int
    records: dict[str, Record]
    pairs: list[PreferencePair]
    rejects: list[Reject]
    left_out: int = 0


def take_recorded(settings: PairsSettings, target: RunTarget) -> Result:
    """Reads, renders and checks every row. Raises UserError 2, 3, 4 or 5."""
    if settings.candidates or settings.grid:
        raise UserError(
            "there is nothing to rank: the file says which answer is better.",
            "Leave --from and --grid out.",
            location="--preferences",
        )
    source = find_model(settings.model, target.run, target.begun)
    protocol = setting_of(settings.model, "protocol", target.run)
    mixture = _mixture(str(protocol or ""), source)
    files = [file for name in settings.preferences for file in files_of(name)]
    held_out = _held_out(settings.data, target.run)
    plan = Plan(
        "pairs",
        {key: resolve.plain_settings(settings)[key] for key in SETTINGS}
        | {"protocol": mixture.name},
        {name: file_digest(Path(name)) for name in files}
        | held_out.digests
        | {"model": source.digest},
        run_folder.versions(),
    )
    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        found = _without_leaks(
            _read(settings, files, mixture, load_template(source.base)), held_out
        )
        return Result(
            "pairs", "dry run", str(target.folder), {"folder": status, **_figures(found)}, [], 0.0
        )
    with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
        if stage.status != "done":
            try:
                with console.waiting("pairs: reading the preferences"):
                    found = _without_leaks(
                        _read(settings, files, mixture, load_template(source.base)), held_out
                    )
                rejects = stage.folder / "rejects.jsonl"
                write_rows(rejects, map(reject_row, found.rejects))
                _refuse_rejects(settings, found, rejects)
                if found.left_out:
                    console.notice(
                        f"pairs: {found.left_out} pairs give away a dev or test record of "
                        f"{settings.data} ({LEAK}) and are left out"
                    )
                write_rows(stage.folder / "records.jsonl", map(to_row, found.records.values()))
                write_pairs(stage.folder / "pairs.jsonl", found.pairs)
                models = lineage(settings.model, target.run)
                stage.finish(
                    ["records.jsonl", "pairs.jsonl", "rejects.jsonl"],
                    {**_figures(found), "lineage": models},
                )
            except UserError:
                stage.fail()
                raise
        return stage.result(target.next(f"agentlite dpo --data {shlex.quote(target.out)}"))


def _held_out(data: str, run: Path) -> HeldOutRecords:
    """Of the prep that is named, or of the run's own where there is one. Raises UserError 2 or 3
    for a prep that is not finished, or that is named and missing.
    """
    folder = run_folder.find_stage(data, run)
    if data == PairsSettings().data and not run_folder.is_stage(folder):
        return HeldOutRecords([], {}, False)
    outputs = run_folder.finished(folder, "prep").outputs
    files = [find_rows(folder, split) for split in HELD_OUT_SPLITS]
    return HeldOutRecords(
        [traits(record) for file in files for record in map(from_row, read_rows(file))],
        {f"held out {file.stem}": outputs[file.name] for file in files},
        setting_of(data, "personal", run) == "mask",
    )


def _without_leaks(found: RecordedPairs, held_out: HeldOutRecords) -> RecordedPairs:
    """The pairs without those whose record asks or calls what a held-out one does, as `prep
    --holdout` compares them.
    """
    records = list(found.records.values())
    compared = [mask(record)[0] if held_out.masked else record for record in records]
    leaking = {
        records[index].id for index in leaks([traits(one) for one in compared], held_out.traits)
    }
    pairs = [pair for pair in found.pairs if pair.record_id not in leaking]
    return found._replace(
        records={key: record for key, record in found.records.items() if key not in leaking},
        pairs=pairs,
        left_out=len(found.pairs) - len(pairs),
    )


def _mixture(protocol: str, source: Source) -> Mixture:
    template = load_template(source.base)
    return settled(protocol, template) if protocol else choose("auto", template)


def _read(
    settings: PairsSettings, files: list[str], mixture: Mixture, template: Template
) -> RecordedPairs:
    found = RecordedPairs(0, {}, [], [])
    read, seen = 0, set()
    for file in files:
        for raw in read_raw(file, BytesIO()):
            read += 1
            try:
                if raw.error:
                    raise raw.error
                if not isinstance(raw.value, dict):
                    raise RowError("E201", "is not an object")
                for preference in read_preferences(raw.value, Path(file).name):
                    pair = _pair(preference, mixture, template, settings.max_length)
                    key = (*pair.step, pair.rejected.text)
                    if key not in seen:
                        seen.add(key)
                        found.pairs.append(pair)
                        found.records[pair.record_id] = preference.record
            except RowError as error:
                content = raw.content.removesuffix(b"\n")
                hint = error.hint or CODES[error.code].hint
                found.rejects.append(
                    Reject(raw.location, content, error.code, error.reason, 0, hint, error.at)
                )
    return found._replace(read=read)


def _pair(
    preference: RecordedPreference, mixture: Mixture, template: Template, max_length: int
) -> PreferencePair:
    """Both answers as a model of this protocol writes them. Raises RowError E214, E215, E217 or
    E219.
    """
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
    longest = len(chosen.ids) + max(
        len(encode_answer(side.answer, side.ended, template, chosen.ids))
        for side in (chosen, rejected)
    )
    if longest > max_length:
        raise RowError("E217", f"{longest} tokens, max_length is {max_length}")
    return PreferencePair(
        record.id,
        turn,
        protocol.name,
        Side(chosen.answer, chosen.ended, PREFERRED, 0, 1.0),
        Side(rejected.answer, rejected.ended, PREFERRED, 1, 0.0),
    )


def _figures(found: RecordedPairs) -> dict[str, object]:
    codes = Counter(reject.code for reject in found.rejects)
    return {
        "read": found.read,
        "rejected": len(found.rejects),
        **({"rejected_by_code": dict(codes.most_common())} if codes else {}),
        **({"left_out": {LEAK: found.left_out}} if found.left_out else {}),
        "steps": len({pair.step for pair in found.pairs}),
        "pairs": len(found.pairs),
    }


def _refuse_rejects(settings: PairsSettings, found: RecordedPairs, file: Path) -> None:
    """Shows the rejects of each kind; raises UserError 4 where there are too many, or no pair
    is left.
    """
    for line in report(found.rejects, str(file), repairs=False):
        console.notice(line)
    if len(found.rejects) > max(1, settings.max_rejects * found.read) or not found.pairs:
        allowed = min(1.0, len(found.rejects) / max(1, found.read) + 0.005)
        left_out = f", {found.left_out} pairs left out ({LEAK})" if found.left_out else ""
        raise UserError(
            f"{len(found.rejects)} of {found.read} rows rejected{left_out}, "
            f"{len(found.pairs)} pairs left.",
            f"Correct the rows, or allow more: --max-rejects {allowed:.2f}."
            if found.pairs
            else "Ask what no dev or test record asks, or name another prep: --data."
            if found.left_out
            else "Correct the rows.",
            location=str(file),
            exit_code=REJECTS,
        )
