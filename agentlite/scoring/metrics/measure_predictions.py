"""The predictions of a model and their records -> all that follows from them in metrics.json."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import UNSET, structs

from agentlite.core.records import Parsed, Prediction, Record
from agentlite.scoring.metrics.bfcl import category_of, group_scores
from agentlite.scoring.metrics.confidence import summary
from agentlite.scoring.metrics.dialogs import Dialog
from agentlite.scoring.metrics.model_metrics import BFCL, Metrics
from agentlite.scoring.metrics.retrieval_loss import retrieval_loss
from agentlite.scoring.metrics.summarize import summarize
from agentlite.scoring.metrics.tool_f1 import AnsweredStep, parse_problems, tool_metrics


def figures(
    predictions: Sequence[Prediction],
    whole: Sequence[Dialog],
    records: Mapping[str, Record],
    seed: int,
) -> Metrics:
    """Steps, dialogs and timing; names and parameters of calls; BFCL's groups; what retrieval cost.

    The groups that need more than the predictions are left out: judge, passes, forgetting,
    self-cognition.
    """
    answers = [_answer(prediction, records[prediction.record_id]) for prediction in predictions]
    metrics = structs.replace(
        summarize(predictions, whole, seed),
        tools=tool_metrics(answers, seed),
        parse_problems=parse_problems([prediction.problem for prediction in predictions], seed),
        retrieval=retrieval_loss(predictions, records, seed) or UNSET,
    )
    return _with_bfcl(metrics, predictions, records, seed)


def _with_bfcl(
    metrics: Metrics, predictions: Sequence[Prediction], records: Mapping[str, Record], seed: int
) -> Metrics:
    """With v4's groups over the records that are BFCL's own, if there are any. Splitting BFCL into
    train and test makes it no leaderboard score.
    """
    verdicts: dict[str, list[float]] = defaultdict(list)
    for prediction in predictions:
        if BFCL in prediction.metrics:
            category = category_of(records[prediction.record_id])
            verdicts[category].append(prediction.metrics[BFCL])
    if not verdicts:
        return metrics
    scores = group_scores(verdicts)
    by_name = scores.figures
    for category, values in sorted(verdicts.items()):
        by_name[category] = summary(values, seed)
    return structs.replace(
        metrics, bfcl=by_name, bfcl_is=scores.name, bfcl_not_measured=scores.not_measured
    )


def _answer(prediction: Prediction, record: Record) -> AnsweredStep:
    """With the calls that the record has before the step: the model was shown these."""
    earlier = tuple(
        call for message in record.messages[: prediction.turn] for call in message.calls
    )
    return AnsweredStep(
        Parsed("", prediction.calls, prediction.problem),
        record.expected(prediction.turn),
        record.tools,
        earlier,
    )
