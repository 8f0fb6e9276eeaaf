"""Which rollouts are learned: those whose scores meet `--keep`, and the best one of each task."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

from agentlite.core.conditions import Keep
from agentlite.core.errors import RowError
from agentlite.core.records import Record


def refuse_unmet(record: Record, keep: Keep) -> None:
    """Raises RowError F314 for a rollout that does not meet a condition, or lacks its score. Other
    records are not measured.
    """
    if "rollout" not in record.meta:
        return
    scores = record.meta["rollout"]["scores"]
    for condition in keep.conditions:
        score = scores.get(condition.name)
        if score is None:
            names = ", ".join(scores) or "none"
            raise RowError("F314", f"has no score {condition.name}; its scores: {names}")
        if not condition.holds(score):
            raise RowError("F314", f"{condition.name} is {score:g}, --keep asks for {condition}")


def find_surpassed(records: Iterable[tuple[int, Record]]) -> dict[int, str]:
    """Index -> the id of the better rollout of its task. The best has the highest mean of its
    scores; of equal ones the one with the fewest turns, then the first.
    """
    ranks: dict[str, list[tuple[float, int, int, int, str]]] = defaultdict(list)
    for index, record in records:
        if rollout := record.meta.get("rollout"):
            mean = fmean(rollout["scores"].values()) if rollout["scores"] else 0.0
            rank = (-mean, len(record.turns), rollout["sample"], index, record.id)
            ranks[rollout["task"]].append(rank)
    surpassed: dict[int, str] = {}
    for of_task in ranks.values():
        *_, best, best_id = min(of_task)
        surpassed |= {index: best_id for *_, index, _ in of_task if index != best}
    return surpassed
