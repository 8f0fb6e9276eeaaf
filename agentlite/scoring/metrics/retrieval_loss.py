"""Predictions of records whose tools were retrieved -> how much is lost to retrieval, and how much
to choosing.

1 - the figure = what is lost to retrieval + what is lost to choosing, always.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from agentlite.core.records import ANY_TOOL, Prediction, Record
from agentlite.scoring.metrics.confidence import summary

META = "retrieved"
TO_RETRIEVAL, TO_CHOOSING = "lost_to_retrieval", "lost_to_choosing"
FIGURES = ("tool_selection_accuracy", "exact_call")


def retrieval(
    predictions: Sequence[Prediction], records: Mapping[str, Record], seed: int
) -> dict[str, Any]:
    """Of the steps at which a call is due, in records whose tools were brought. Nothing if there
    are none.

    `brought`: all that are due at the step; `as_declared`: with the schemas that the record has.
    What prep added to be learned was not brought, and is on offer: it loses nothing.
    """
    asked = [
        (one, records[one.record_id]) for one in predictions if META in records[one.record_id].meta
    ]
    steps = [(one, record) for one, record in asked if _expected(one, record)]
    if not steps:
        return {}
    offered = [
        _expected(one, record) <= {tool.name for tool in record.tools} for one, record in steps
    ]
    brought = [
        _expected(one, record).isdisjoint(record.meta[META].get("missing", ()))
        for one, record in steps
    ]
    other = [
        bool(_expected(one, record) & {*record.meta[META].get("other_schema", ())})
        for one, record in steps
    ]
    told = steps[0][1].meta[META]
    declared = [there and not changed for there, changed in zip(brought, other, strict=True)]
    found = {
        "k": told["k"],
        "by": told["by"],
        "steps": len(steps),
        "brought": _summary(brought, seed),
        "as_declared": _summary(declared, seed),
    }
    for name in FIGURES:
        lost = [
            (1 - one.metrics[name], there) for (one, _), there in zip(steps, offered, strict=True)
        ]
        found[name] = _summary([1 - missed for missed, _ in lost], seed)
        found[f"{name}_{TO_RETRIEVAL}"] = _summary(
            [missed * (not there) for missed, there in lost], seed
        )
        found[f"{name}_{TO_CHOOSING}"] = _summary([missed * there for missed, there in lost], seed)
    return {"retrieval": found}


def in_words(found: Mapping[str, Any]) -> str:
    """One line of it."""
    right, retrieval, choosing = (
        f"{100 * found[FIGURES[0] + part]['mean']:.1f} %"
        for part in ("", f"_{TO_RETRIEVAL}", f"_{TO_CHOOSING}")
    )
    brought = (
        f"{100 * found['brought']['mean']:.1f} % had their tools among the {found['k']} "
        f"brought ({found['by']})"
    )
    return (
        f"of {found['steps']} steps with a call due, {brought}; right tool {right}: {retrieval} "
        "lost to retrieval, "
        f"{choosing} to choosing"
    )


def _summary(values: Sequence[float], seed: int) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(summary([float(value) for value in values], seed))
    return found


def _expected(one: Prediction, record: Record) -> set[str]:
    return {call.name for call in record.expected(one.turn).calls} - {ANY_TOOL}
