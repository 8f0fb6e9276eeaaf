"""Precision, recall and F1 of the decision to call, and of the names and parameters of calls.

Micro: counts are summed over all steps before they are divided, so a step with many calls weighs
more. Each interval comes from steps drawn again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Tool, canonical, choices_of
from agentlite.scoring.assignment import assign
from agentlite.scoring.metrics.confidence import Summary, ratios, summary
from agentlite.scoring.metrics.step_metrics import identity, is_valid, satisfies

PAIRING_WORTH = 1e-9  # what the mere pairing of calls of one tool is worth
Ratio = tuple[Any, Any]  # the part and the whole: of one sum of counts, or of each of many


# --- Call or no call ---


class TimingCounts(NamedTuple):
    """At how many of all steps a call was expected, was made, both, and was rightly not made."""

    expected: int
    called: int
    both: int
    rightly_silent: int
    steps: int


TIMING = {
    "timing_precision": "Of the calls that were made, the share where a call was needed.",
    "recall": "Of the questions that need a tool, the share with a call.",
    "f1": "The harmonic mean of timing precision and recall.",
    "balanced_accuracy": "The mean of recall and specificity.",
    "specificity": "Of the questions that need no tool, the share without a call.",
}


def count_timing(calls: Sequence[Call], gold: Gold, problem: str) -> TimingCounts:
    """At one step. Text that cannot be read is never a right "no call"."""
    expected, called = bool(gold.calls), bool(calls)
    is_silent = not expected and not called and not problem
    return TimingCounts(expected, called, expected and called, is_silent, True)


def timing(steps: Sequence[TimingCounts], seed: int) -> dict[str, Summary | int | None]:
    """The figures of calling as the positive class, over `count` steps. A figure is None where
    there is nothing to measure it on: no call made has no precision, no step of one of the two
    kinds no balanced accuracy.
    """
    resampled = ratios(
        steps,
        {
            "balanced_accuracy": _balanced_accuracy,
            "f1": lambda c: (2 * c.both, c.expected + c.called),
        },
        seed,
        len(steps),
    )

    def share(values: list[int]) -> Summary | None:
        return summary([*map(float, values)], seed) if values else None

    return {
        "balanced_accuracy": resampled["balanced_accuracy"],
        "count": len(steps),
        "f1": resampled["f1"],
        "recall": share([step.called for step in steps if step.expected]),
        "specificity": share([step.rightly_silent for step in steps if not step.expected]),
        "timing_precision": share([step.expected for step in steps if step.called]),
    }


def _balanced_accuracy(counts: TimingCounts) -> Ratio:
    """Nothing, not a number, where one of the two kinds of steps is missing."""
    unexpected = counts.steps - counts.expected
    sensitivity, specificity = counts.both / counts.expected, counts.rightly_silent / unexpected
    return sensitivity + specificity, 2 * (counts.expected > 0) * (unexpected > 0)


# --- Names and parameters ---


class CallCounts(NamedTuple):
    """Of one step, or of many. A call or parameter is right if it is expected; those that may be
    left out are not missed. Where any arguments are right, no parameter is counted; where any tool
    is, no call is compared.
    """

    called: int = 0
    compared: int = 0  # of these, with the expected calls
    expected: int = 0
    right: int = 0
    supplied: int = 0  # parameters
    needed: int = 0
    agreeing: int = 0
    offered: int = 0  # calls of tools that are on offer
    valid: int = 0  # of these, with arguments that fit the schema
    repeated: int = 0


SHARES: dict[str, Callable[[CallCounts], Ratio]] = {
    "name_precision": lambda c: (c.right, c.compared),
    "name_recall": lambda c: (c.right, c.expected),
    "name_f1": lambda c: (2 * c.right, c.compared + c.expected),
    "parameter_precision": lambda c: (c.agreeing, c.supplied),
    "parameter_recall": lambda c: (c.agreeing, c.needed),
    "parameter_f1": lambda c: (2 * c.agreeing, c.supplied + c.needed),
    "schema_validity": lambda c: (c.valid, c.offered),
    "hallucinated_tools": lambda c: (c.called - c.offered, c.called),
    "repeated_calls": lambda c: (c.repeated, c.called),
}
TOOLS = {
    "name_precision": "Of the tools that were called, the share that was expected.",
    "name_recall": "Of the tools that were expected, the share that was called.",
    "name_f1": "The harmonic mean of the two.",
    "parameter_precision": "Of the arguments that were given, the share that was expected.",
    "parameter_recall": "Of the arguments that were expected, the share that was given.",
    "parameter_f1": "The harmonic mean of the two.",
    "schema_validity": "Of the calls that were made, the share that fits the tool's schema.",
    "hallucinated_tools": "Of the calls that were made, the share of tools that were not on offer.",
    "repeated_calls": "Of the calls that were made, the share that repeats an earlier one.",
}


def count_calls(
    calls: Sequence[Call], gold: Gold, tools: Sequence[Tool], earlier_calls: Sequence[Call] = ()
) -> CallCounts:
    """At one step. `earlier_calls`: those before it in the dialog."""
    expected = gold.calls
    by_name = {tool.name: tool for tool in tools}
    offered = [call for call in calls if call.name in by_name]
    counts = CallCounts(
        called=len(calls),
        offered=len(offered),
        valid=sum(is_valid(call, gold, by_name[call.name]) for call in offered),
        repeated=_count_repetitions(calls, gold, by_name, earlier_calls),
    )
    if expected and not gold.names_tools:
        return counts
    pairs = _pair_calls(calls, expected)
    free_calls = [call for g, call in pairs if call and g.arguments is ANY_ARGUMENTS]
    return counts._replace(
        compared=len(calls),
        expected=len(expected),
        right=(Counter(c.name for c in calls) & Counter(c.name for c in expected)).total(),
        supplied=sum(len(c.arguments) for c in calls) - sum(len(c.arguments) for c in free_calls),
        # one that may be left out is expected only where it is given
        needed=sum(
            "" not in values or (call is not None and name in call.arguments)
            for gold_call, call in pairs
            for name, values in (gold_call.arguments or {}).items()
        ),
        agreeing=sum(_count_matching(call, g) for g, call in pairs if call),
    )


def _pair_calls(
    calls: Sequence[Call], expected: Sequence[GoldCall]
) -> list[tuple[GoldCall, Call | None]]:
    """Each expected call with a call of the same tool, so that most parameters agree; expected
    calls that take any arguments have what the others leave.
    """
    # less than any parameter, so that the pairing alone decides only between equal ones
    worth = [
        [
            _count_matching(call, gold) + PAIRING_WORTH / (1 + (gold.arguments is ANY_ARGUMENTS))
            if call.name == gold.name
            else 0.0
            for call in calls
        ]
        for gold in expected
    ]
    columns = dict(assign(worth))
    return [
        (gold, calls[columns[row]] if row in columns else None) for row, gold in enumerate(expected)
    ]


def _count_matching(call: Call, gold: GoldCall) -> int:
    """How many parameters have a value that is accepted, compared as text (Hammer's rule)."""
    accepted_values = gold.arguments or {}
    return sum(
        any(_matches(value, accepted) for accepted in accepted_values.get(name, ()))
        for name, value in call.arguments.items()
    )


def _matches(value: object, accepted: object) -> bool:
    """Inside an object each key has a list of accepted values; "" in it: may be left out."""
    if isinstance(value, dict) and isinstance(accepted, dict):
        if value == accepted:
            return True
        by_key = choices_of(accepted)
        return value.keys() <= by_key.keys() and all(
            any(_matches(value[key], c) for c in choices) if key in value else "" in choices
            for key, choices in by_key.items()
        )
    if isinstance(value, list) and isinstance(accepted, list):
        return len(value) == len(accepted) and all(map(_matches, value, accepted))
    if {type(value), type(accepted)} <= {int, float}:
        return value == accepted  # 60 is 60.0
    texts = [text if isinstance(text, str) else canonical(text) for text in (value, accepted)]
    return texts[0] == texts[1]


def _count_repetitions(
    calls: Sequence[Call], gold: Gold, tools: Mapping[str, Tool], earlier_calls: Sequence[Call]
) -> int:
    """Calls made again, in this turn or since an earlier one, beyond as many as are expected."""
    # of f, f, g one repeats a call; both f do where f was made before and none is expected
    earlier_identities = {identity(call) for call in earlier_calls}
    by_identity = {identity(call): call for call in calls}
    repetitions = 0
    for key, times in Counter(map(identity, calls)).items():
        expected = sum(satisfies(by_identity[key], g, tools.get(g.name)) for g in gold.calls)
        repetitions += max(0, times - max(expected, key not in earlier_identities))
    return repetitions
