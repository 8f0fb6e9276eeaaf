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
    right: dict[str, list[float]] = {"tool_selection_accuracy": [], "exact_call": []}
    offered, retrieved, as_declared = [], [], []
    for prediction in predictions:
        record = records[prediction.record_id]
        gold = record.expected(prediction.turn)
        if META not in record.meta or not gold.names_tools:
            continue
        method, expected = record.meta[META], {call.name for call in gold.calls}
        offered.append(expected <= {tool.name for tool in record.tools})
        retrieved.append(expected.isdisjoint(method.get("missing", ())))
        declared = expected.isdisjoint(method.get("other_schema", ()))
        as_declared.append(retrieved[-1] and declared)
        for name, values in right.items():
            values.append(prediction.metrics[name])
    if not offered:
        return None

    def share(values: Sequence[float]) -> Summary:
        return summary([float(value) for value in values], seed)

    shares = {}
    for name, values in right.items():
        pairs = [*zip(values, offered, strict=True)]
        shares[name] = share(values)
        shares[f"{name}_lost_to_retrieval"] = share([(1 - r) * (not there) for r, there in pairs])
        shares[f"{name}_lost_to_choosing"] = share([(1 - r) * there for r, there in pairs])
    return RetrievalLoss(
        k=method["k"],
        by=method["by"],
        steps=len(offered),
        retrieved=share(retrieved),
        as_declared=share(as_declared),
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
