"""How many wrong steps are due to the retrieval of tools, and how many to the model's choice.

1 - the figure = the share lost to retrieval + the share lost to choosing, always.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from agentlite.core.records import Prediction, Record
from agentlite.scoring.metrics.confidence import Summary, summary

META = "retrieved"


class RetrievalLoss(Struct, frozen=True, kw_only=True):
    """Over the `steps` at which a call is expected, in records with the top `k` tools of the method
    `by`.

    `retrieved`: the share of steps whose expected tools were all retrieved; `as_declared`: and with
    the schemas that the record has. Tools that prep added for training were not retrieved, and are
    on offer: they cost nothing.
    """

    k: int
    by: str
    steps: int
    retrieved: Summary
    as_declared: Summary
    tool_selection_accuracy: Summary
    tool_selection_accuracy_lost_to_retrieval: Summary
    tool_selection_accuracy_lost_to_choosing: Summary
    exact_call: Summary
    exact_call_lost_to_retrieval: Summary
    exact_call_lost_to_choosing: Summary


def retrieval_loss(
    predictions: Sequence[Prediction], records: Mapping[str, Record], seed: int
) -> RetrievalLoss | None:
    """None where no tools were retrieved for any step at which a call is expected."""
    steps = [
        (prediction, record, expected)
        for prediction in predictions
        if META in (record := records[prediction.record_id]).meta
        and record.expected(prediction.turn).names_tools
        and (expected := _expected_tools(prediction, record))
    ]
    if not steps:
        return None

    def share(values: Sequence[float]) -> Summary:
        return summary([float(value) for value in values], seed)

    offered = [expected <= {tool.name for tool in record.tools} for _, record, expected in steps]
    retrieved = [
        expected.isdisjoint(record.meta[META].get("missing", ())) for _, record, expected in steps
    ]
    redeclared = [
        not expected.isdisjoint(record.meta[META].get("other_schema", ()))
        for _, record, expected in steps
    ]
    shares = {}
    for name in ("tool_selection_accuracy", "exact_call"):
        right = [prediction.metrics[name] for prediction, _, _ in steps]
        pairs = [*zip(right, offered, strict=True)]
        shares[name] = share(right)
        shares[f"{name}_lost_to_retrieval"] = share([(1 - r) * (not there) for r, there in pairs])
        shares[f"{name}_lost_to_choosing"] = share([(1 - r) * there for r, there in pairs])
    method = steps[0][1].meta[META]
    return RetrievalLoss(
        k=method["k"],
        by=method["by"],
        steps=len(steps),
        retrieved=share(retrieved),
        as_declared=share(
            [there and not other for there, other in zip(retrieved, redeclared, strict=True)]
        ),
        **shares,
    )


def in_words(loss: RetrievalLoss) -> str:
    """In one line."""

    def percent(figure: Summary) -> str:
        return f"{100 * figure.mean:.1f} %"

    return (
        f"of {loss.steps} steps with an expected call, {percent(loss.retrieved)} had their tools "
        f"among the {loss.k} retrieved ({loss.by}); "
        f"right tool {percent(loss.tool_selection_accuracy)}: "
        f"{percent(loss.tool_selection_accuracy_lost_to_retrieval)} lost to retrieval, "
        f"{percent(loss.tool_selection_accuracy_lost_to_choosing)} to choosing"
    )


def _expected_tools(prediction: Prediction, record: Record) -> set[str]:
    return {call.name for call in record.expected(prediction.turn).calls}
