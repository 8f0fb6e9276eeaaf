"""Candidates of a finished pairs or grpo -> raw rows: rejection fine-tuning on the right ones."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from agentlite.core import console
from agentlite.core.conditions import Condition, Keep, refuse_unknown
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, Record, from_row, to_row
from agentlite.core.row_files import json_line, read_rows
from agentlite.data.curation.validate import end_with
from agentlite.data.formats.raw_rows import Raw
from agentlite.rendering import Protocol
from agentlite.scoring.read_turn import read_turn
from agentlite.scoring.rewards import WEIGHTS, settle_weights, total
from agentlite.stages.pairs.stored import candidates_file, read_stored
from agentlite.workspace import lookup

REWARD = "reward"  # the weighted total, beside the components that a condition can name
RIGHT = Condition("exact", ">=", 1.0)  # where the user has no condition


def scoring_digest(folder: Path) -> str:
    """Digests of what else the rows depend on than the candidates: records, scores, weights."""
    stage = lookup.finished_stage(folder)
    outputs = stage.outputs
    digests = [outputs[name][:16] for name in ("records.jsonl", "scores.jsonl") if name in outputs]
    weights = dict(stage.settings.get("weights") or {})
    return ",".join([*digests, *(f"{name}={value:g}" for name, value in sorted(weights.items()))])


def choose_candidates(folder: Path, keep: Keep) -> tuple[list[Raw], Counter[str]]:
    """The candidates that meet `keep`, each as the last turn of its dialog, the only one to be
    learned, as rows; and how many candidates ended how. Raises UserError 2 or 3 where there are
    none to choose from, or nothing says which are right.
    """
    stored, file = read_stored(folder), candidates_file(folder)
    stage_settings = stored.stage.settings
    if stage_settings.get("split") == "test":
        raise UserError(
            "its candidates answer the test records, which eval measures on.",
            "Run pairs on --split train.",
            location=str(folder),
        )
    names = {name for score in stored.scores.values() for name in score.components}
    known_names = names or {*WEIGHTS}
    if not keep.conditions and RIGHT.name not in known_names:
        raise UserError(
            "its prompts have no gold that says which candidates are right.",
            f"Say which are good enough: --keep '{REWARD}>=0.8'.",
            location=str(folder),
        )
    refuse_unknown(keep.conditions, [*sorted(known_names), REWARD], "--keep")
    weights = settle_weights(dict(stage_settings.get("weights") or {}), stored.user_components)
    score_weights = {name: weight for name, weight in weights.items() if name in names}
    records = {record.id: record for record in map(from_row, read_rows(folder / "records.jsonl"))}
    protocols = stored.protocols
    counts = Counter(read=0, below=0, unusable=0, surpassed=0, kept=0)
    # by step, where the best one is kept: the highest total; of equal ones the first sample
    chosen: dict[object, tuple[tuple[float, int], int, Record]] = {}
    for line, candidate in enumerate(stored.candidates, 1):
        score = stored.scores.get(candidate.key)
        if candidate.model == GOLD or not score or score.error:
            continue
        counts["read"] += 1
        scores = {**score.components, REWARD: total(score.components, score_weights)}
        if not all(c.holds(scores[c.name]) for c in keep.conditions or [RIGHT]):
            counts["below"] += 1
        elif record := _record(candidate, scores[REWARD], records, protocols):
            key = candidate.step if keep.best else line
            entry = ((-scores[REWARD], candidate.sample), line, record)
            # whichever of the two stays, one is left out
            counts["surpassed"] += key in chosen
            chosen[key] = min(entry, chosen.get(key, entry), key=lambda entry: entry[0])
        else:
            counts["unusable"] += 1
    counts["kept"] = len(chosen)
    console.notice(
        f"{file}: {counts['kept']} of {counts['read']} candidates are learned; {counts['below']} "
        f"do not meet --keep, {counts['unusable']} cannot be learned, {counts['surpassed']} are "
        "not the best"
    )
    rows = [Raw(f"{file}:{line}", json_line(to_row(record))) for _, line, record in chosen.values()]
    return rows, counts


def _record(
    candidate: Candidate,
    reward: float,
    records: Mapping[str, Record],
    protocols: Mapping[str, Protocol],
) -> Record | None:
    """The dialog up to the step, ended by the candidate; None where that was cut off, cannot be
    read, or calls what is not on offer. The gold of the step stays, so that later answers to it are
    judged as before.
    """
    record, turn = records[candidate.record_id], candidate.turn
    parsed = read_turn(candidate.text, protocols[candidate.protocol], record, turn)
    if candidate.ended == "cut" or parsed.problem:
        return None
    messages = [
        replace(message, loss=False) if message.role == "assistant" else message
        for message in record.messages[:turn]
    ]
    origin = {
        "record": record.id,
        "turn": turn,
        "model": candidate.model,
        "sample": candidate.sample,
        REWARD: round(reward, 6),
    }
    # a dev question, too, is trained then: whoever names its candidates learns from it
    gold = {turn: record.gold_at(turn)} if record.has_gold(turn) else {}
    return end_with(record, messages, parsed, gold=gold, meta={**record.meta, "candidate": origin})
