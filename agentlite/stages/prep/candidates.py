"""Candidates of a finished pairs or grpo -> raw rows: rejection fine-tuning on the right ones."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Message, Record, Step, from_row, to_row
from agentlite.core.row_files import encode, read_rows
from agentlite.data.curation.keep import Keep
from agentlite.data.curation.validate import validate
from agentlite.data.formats import RawLine
from agentlite.rendering import Protocol
from agentlite.scoring.read_turn import read_turn
from agentlite.scoring.rewards.scorer import protocols_by_name
from agentlite.stages.pairs.stored import (
    REWARD,
    Scored,
    candidates_file,
    find_stored,
    scored_candidates,
    settle_conditions,
)
from agentlite.workspace import stage_folder


class ChosenCandidates(NamedTuple):
    """Rows as prep reads them, how many candidates ended how, and that in words."""

    lines: list[RawLine]
    figures: dict[str, int]
    note: str


def inputs_of(folder: Path) -> str:
    """Of what else the rows depend on than the candidates: records, scores, the weights."""
    stage = stage_folder.finished(folder)
    outputs = stage.outputs
    digests = [outputs[name][:16] for name in ("records.jsonl", "scores.jsonl") if name in outputs]
    weights = dict(stage.settings.get("weights") or {})
    return ",".join([*digests, *(f"{name}={value:g}" for name, value in sorted(weights.items()))])


def choose_candidates(name: str, keep: Keep, run: Path) -> ChosenCandidates:
    """The candidates that meet `keep`, each as the last turn of its dialog, the only one to be
    learned. Raises UserError 2 or 3 where there are none to choose from, or nothing says which are
    right.
    """
    folder = stage_folder.find_stage(name, run)
    stored = find_stored(folder)
    if stored.stage.settings.get("split") == "test":
        raise UserError(
            "its candidates answer the test records, which eval measures on.",
            "Run pairs on --split train.",
            location=str(folder),
        )
    candidates = scored_candidates(stored)
    conditions = settle_conditions(keep.conditions, candidates, folder, "--keep")
    met = [candidate for candidate in candidates if candidate.meets(conditions)]
    records = {record.id: record for record in map(from_row, read_rows(folder / "records.jsonl"))}
    protocols = protocols_by_name(str(stored.stage.settings["protocol"]), stored.written_for.base)
    usable = [
        (candidate, record)
        for candidate in met
        if (record := _record(candidate, records, protocols)) is not None
    ]
    kept = usable
    if keep.best:
        # at each step the one with the highest total; of equal ones the first sample
        at_steps: dict[Step, list[tuple[Scored, Record]]] = defaultdict(list)
        for pair in usable:
            at_steps[pair[0].candidate.step].append(pair)
        kept = [
            min(pairs, key=lambda pair: (-pair[0].scores[REWARD], pair[0].candidate.sample))
            for pairs in at_steps.values()
        ]
    file = candidates_file(folder)
    lines = [RawLine(f"{file}:{one.line}", encode(to_row(record)) + b"\n") for one, record in kept]
    figures = {
        "read": len(candidates),
        "below": len(candidates) - len(met),
        "unusable": len(met) - len(usable),
        "surpassed": len(usable) - len(kept),
        "kept": len(kept),
    }
    note = (
        f"{figures['kept']} of {figures['read']} candidates are learned; "
        f"{figures['below']} do not meet --keep, {figures['unusable']} cannot be learned, "
        f"{figures['surpassed']} are not the best"
    )
    return ChosenCandidates(lines, figures, note)


def _record(
    one: Scored, records: Mapping[str, Record], protocols: Mapping[str, Protocol]
) -> Record | None:
    """The dialog up to the step, ended by the candidate; None where that was cut off, cannot be
    read, or calls what is not on offer. The gold of the step stays, so that later answers to it are
    judged as before.
    """
    candidate = one.candidate
    record, turn = records[candidate.record_id], candidate.turn
    parsed = read_turn(candidate.text, protocols[candidate.protocol], record, turn)
    if candidate.ended == "cut" or parsed.problem:
        return None
    before = [
        replace(message, loss=False) if message.role == "assistant" else message
        for message in record.messages[:turn]
    ]
    origin = {
        "record": record.id,
        "turn": turn,
        "model": candidate.model,
        "sample": candidate.sample,
        REWARD: round(one.scores[REWARD], 6),
    }
    made = replace(
        record,
        messages=(*before, Message("assistant", parsed.content, parsed.calls)),
        gold={turn: record.expected(turn)} if record.has_gold(turn) else {},
        split="train",  # also a dev question: whoever names its candidates learns from it
        parent=record.parent or record.id,
        meta={**record.meta, "candidate": origin},
    )
    try:
        validate(made)
    except RowError:
        return None
    return made
