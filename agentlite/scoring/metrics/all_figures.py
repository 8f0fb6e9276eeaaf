"""The predictions of a model, their records -> all that metrics.json holds: steps, dialogs, timing,
tools, BFCL.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from agentlite.core.records import Parsed, Prediction, Record
from agentlite.scoring.metrics.bfcl import category_of, group_scores
from agentlite.scoring.metrics.confidence import summary
from agentlite.scoring.metrics.dialogs import Dialog
from agentlite.scoring.metrics.retrieval_loss import retrieval
from agentlite.scoring.metrics.summarize import BFCL, summarize
from agentlite.scoring.metrics.tool_f1 import AnsweredStep, parse_problems, tool_metrics


def figures(
    predictions: Sequence[Prediction],
    whole: Sequence[Dialog],
    records: Mapping[str, Record],
    seed: int,
) -> dict[str, Any]:
    """Every group of figures, by name; in each a figure with its interval by name, None where there
    was nothing to measure it on.
    """
    answers = [_answer(one, records[one.record_id]) for one in predictions]
    return {
        **summarize(predictions, whole, seed),
        "tools": to_builtins(tool_metrics(answers, seed)),
        "parse_problems": to_builtins(parse_problems([one.problem for one in predictions], seed)),
        **bfcl(predictions, records, seed),
        **retrieval(predictions, records, seed),
    }


def bfcl(
    predictions: Sequence[Prediction], records: Mapping[str, Record], seed: int
) -> dict[str, Any]:
    """v4's groups over the records that are BFCL's own; nothing if none is. Splitting BFCL makes it
    no leaderboard.
    """
    verdicts: dict[str, list[float]] = defaultdict(list)
    for one in predictions:
        if BFCL in one.metrics:
            verdicts[category_of(records[one.record_id])].append(one.metrics[BFCL])
    if not verdicts:
        return {}
    scores = group_scores(verdicts)
    means = {
        "bfcl_overall": scores["overall"],
        **{f"bfcl_{name}": mean for name, mean in scores["groups"].items()},
    }
    counts = sum(map(len, verdicts.values()))
    found: dict[str, Any] = {
        name: None if mean is None else {"mean": mean, "count": counts}
        for name, mean in means.items()
    }
    found |= {name: to_builtins(summary(values, seed)) for name, values in sorted(verdicts.items())}
    return {"bfcl": found, "bfcl_is": scores["name"], "bfcl_not_measured": scores["not_measured"]}


def _answer(one: Prediction, record: Record) -> AnsweredStep:
    """With the calls that the record has before it: they are what the model was shown."""
    earlier = tuple(call for message in record.messages[: one.turn] for call in message.calls)
    return AnsweredStep(
        Parsed("", one.calls, one.problem), record.expected(one.turn), record.tools, earlier
    )
