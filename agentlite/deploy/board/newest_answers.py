"""The newest answers that a stage has sampled, with the components of their rewards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from agentlite.core.records import GOLD
from agentlite.core.row_files import Row
from agentlite.deploy.board.growing_rows import newest_rows
from agentlite.report.charts import is_number

# in this order: those of pairs, grpo, eval, and of what acts in an environment
FILES = ("candidates.jsonl", "rollouts.jsonl", "answers.jsonl", "trajectories.jsonl")
MOST = 12
LONGEST = 4000  # characters of a text


class NewAnswer(Struct, frozen=True):
    """`about`: the record and turn, or the task, that was answered; `record` and `turn`: those, ""
    and None for a task. `step`: optimizer steps before it, or None. `components`: of its reward, or
    its scores; {} where it has none yet.
    """

    about: str
    record: str
    turn: int | None
    model: str
    text: str
    ended: str
    tokens: int | None
    step: int | None
    components: dict[str, float]
    feedback: str


def newest_answers(folder: Path, most: int = MOST) -> list[NewAnswer]:
    """The newest first; [] for a stage that samples nothing, or has not begun to."""
    file = next((folder / name for name in FILES if (folder / name).exists()), None)
    rows = newest_rows(file, most * 2) if file else []
    # the right answers of the records, with which rollouts.jsonl begins, were not sampled
    return [_answer(row) for row in rows if row.get("model") != GOLD][:most]


def _answer(row: Row) -> NewAnswer:
    scores = row.get("components") or row.get("scores")
    about = [row.get("record_id", row.get("task", "")), row.get("turn")]
    return NewAnswer(
        "/".join(str(part)[:80] for part in about if part is not None),
        str(row.get("record_id", ""))[:80],
        _whole(row.get("turn")),
        str(row.get("model", ""))[:200],
        _text(row)[:LONGEST],
        str(row.get("ended", ""))[:40],
        _whole(row.get("new_tokens")),
        _whole(row.get("trained")),
        {name: float(value) for name, value in scores.items() if is_number(value)}
        if isinstance(scores, Mapping)
        else {},
        str(row.get("error") or row.get("feedback") or row.get("problem") or "")[:500],
    )


def _text(row: Row) -> str:
    """Its text, or what a model said in the turns of a trajectory."""
    turns: Any = row.get("turns")
    if isinstance(turns, list):
        texts = [turn.get("text") for turn in turns if isinstance(turn, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    text = row.get("text")
    return text if isinstance(text, str) else ""


def _whole(value: object) -> int | None:
    return int(value) if is_number(value) else None
