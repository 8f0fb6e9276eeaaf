"""Many weightings -> one row each, side by side; scored candidates -> what their parts tell, in
plain sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import sqrt
from operator import mul
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from agentlite.config.resolve import refuse_grown, yaml_loader
from agentlite.core.errors import UserError
from agentlite.core.records import Step
from agentlite.scoring.preference_pairs import (
    UNIT,
    PairChoice,
    PairRule,
    PreparedStep,
    Reason,
    ScoredCandidate,
    choices,
    count_reasons,
    prepare,
)
from agentlite.scoring.rewards import settle_weights

TOGETHER = 0.95  # |r| from which one part says what another does
SITUATIONS = {"due": "Where a call is due", "not_due": "Where no call is due"}
NOT_DONE = {"calling": "none called", "abstaining": "none abstained"}
HOW = (
    "Write a line for each: `brief: {efficiency: 0.3}`; `defaults: {}` is the one without changes."
)

Found = Sequence[PairChoice | Reason]


def compare_weightings(
    groups: Mapping[Step, Sequence[ScoredCandidate]],
    weightings: Mapping[str, Mapping[str, float]],
    rule: PairRule,
) -> list[dict[str, Any]]:
    """A row a weighting, in order: its pairs, and what is different from the first one's.

    `flipped`: steps that both give a pair and whose chosen text is another; `gained`, `lost`: steps
    that only this one, or only the first one gives a pair. `chosen`, `rejected`: the mean of each
    raw part over these sides; empty without pairs. `no_pair`: steps without a pair, by reason.
    """
    prepared = prepare(groups, rule)
    found = {name: list(choices(prepared, weights, rule)) for name, weights in weightings.items()}
    first: Found = next(iter(found.values()), [])
    return [
        {"name": name, "weights": dict(weightings[name]), **_row(prepared, here, first)}
        for name, here in found.items()
    ]


def _row(prepared: PreparedStep, found: Found, first: Found) -> dict[str, Any]:
    pairs = [choice for choice in found if isinstance(choice, PairChoice)]
    return {
        "steps": len(found),
        "pairs": len(pairs),
        **_differences(found, first),
        "mean_margin": fmean(choice.margin for choice in pairs) if pairs else 0.0,
        "chosen": _mean_parts([prepared.parts[choice.chosen.parts] for choice in pairs]),
        "rejected": _mean_parts([prepared.parts[choice.rejected.parts] for choice in pairs]),
        "no_pair": count_reasons(found),
    }


def _differences(found: Found, first: Found) -> dict[str, int]:
    flipped = gained = lost = 0
    for here, there in zip(found, first, strict=True):
        if isinstance(here, PairChoice) and isinstance(there, PairChoice):
            flipped += here.chosen.text != there.chosen.text
        else:
            gained += isinstance(here, PairChoice)
            lost += isinstance(there, PairChoice)
    return {"flipped": flipped, "gained": gained, "lost": lost}


def _mean_parts(sides: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean([parts[name] for parts in sides]) for name in (sides[0] if sides else ())}


class Column(NamedTuple):
    """A part of every candidate; how far it is from its mean within the step; in what share of the
    steps it differs.

    The share is of the steps with two candidates or more.
    """

    values: list[float]
    deviations: list[float]
    differs: float


def report_parts(
    groups: Mapping[Step, Sequence[ScoredCandidate]],
    weights: Mapping[str, float],
    expected: Mapping[Step, bool],
) -> dict[str, Any]:
    """What the parts of the sampled candidates tell; the gold takes no part.

    `parts`: weight, mean, std of the sample, and the share of steps in which the part `differs`
    between candidates. `constant`: parts that never do, so that their weight has no say.
    `together`: parts that rise and fall with each other, |r| >= .95; r is Pearson's, of the
    differences from the step's mean, since pairs are made within a step. `abstaining`: the mean
    total of those that call and those that do not, where a call is `due` and where none is.
    """
    prepared = prepare(groups, PairRule())
    columns = {
        name: _column(prepared, name) for name in (prepared.parts[0] if prepared.parts else ())
    }
    constant = [name for name, column in columns.items() if not column.differs]
    return {
        "steps": len(prepared.steps),
        "candidates": sum(len(step.sampled) for step in prepared.steps),
        "parts": {
            name: _describe(column, weights.get(name, 0.0)) for name, column in columns.items()
        },
        "constant": constant,
        "together": _together(
            {name: columns[name].deviations for name in columns if name not in constant}
        ),
        "abstaining": _abstaining(prepared, prepared.totals(weights), expected),
    }


def _column(prepared: PreparedStep, name: str) -> Column:
    values: list[float] = []
    deviations: list[float] = []
    compared = differing = 0
    for step in prepared.steps:
        here = [prepared.parts[one.parts][name] for one in step.sampled]
        compared += len(here) > 1
        differs = len(set(here)) > 1
        differing += differs
        values += here
        mean = sum(here) / len(here) if differs else 0.0
        deviations += [value - mean for value in here] if differs else [0.0] * len(here)
    return Column(values, deviations, differing / compared if compared else 0.0)


def _describe(column: Column, weight: float) -> dict[str, float | None]:
    values = column.values
    return {
        "weight": weight,
        "mean": fmean(values) if values else None,
        "std": stdev(values) if len(values) > 1 else None,
        "differs": column.differs,
    }


def _together(deviations: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    lengths = {name: sqrt(sum(map(mul, values, values))) for name, values in deviations.items()}
    found = []
    for one, other in combinations(deviations, 2):
        r = sum(map(mul, deviations[one], deviations[other])) / (lengths[one] * lengths[other])
        if abs(r) >= TOGETHER:
            found.append({"parts": [one, other], "r": r})
    return found


def _abstaining(
    prepared: PreparedStep, totals: Sequence[int], expected: Mapping[Step, bool]
) -> dict[str, Any]:
    earned: dict[str, dict[str, list[float]]] = {
        kind: {"calling": [], "abstaining": []} for kind in SITUATIONS
    }
    for one in (
        one for step in prepared.steps for one in step.sampled if one.candidate.step in expected
    ):
        parts, is_expected = prepared.parts[one.parts], expected[one.candidate.step]
        called = not parts["missed_call"] if is_expected else parts["wrong_tool"] > 0
        earned["due" if is_expected else "not_due"]["calling" if called else "abstaining"].append(
            totals[one.parts] / UNIT
        )
    return {
        kind: {
            did: {"mean": fmean(values), "count": len(values)} if values else None
            for did, values in sides.items()
        }
        for kind, sides in earned.items()
    }


def sentences(report: Mapping[str, Any]) -> list[str]:
    """A report for a terminal. Parts without a weight are left to the JSON."""
    weighed = {name: part for name, part in report["parts"].items() if part["weight"]}
    constant = [name for name in report["constant"] if name in weighed]
    everywhere = [name for name in constant if not weighed[name]["std"]]
    within = [name for name in constant if weighed[name]["std"]]
    return [
        *(_moving(found) for found in report["together"] if {*found["parts"]} <= {*weighed}),
        *_deciding_nothing(everywhere, "the same for every candidate"),
        *_deciding_nothing(within, "the same for all candidates of a step"),
        *(text for kind in SITUATIONS if (text := _calling(kind, report["abstaining"][kind]))),
    ]


def _moving(found: Mapping[str, Any]) -> str:
    how = "together" if found["r"] > 0 else "against each other"
    return (
        f"{' and '.join(found['parts'])} move {how} (r = {found['r']:.2f}): one of them is enough."
    )


def _deciding_nothing(names: Sequence[str], what: str) -> list[str]:
    if not names:
        return []
    *others, last = names
    if not others:
        return [f"{last} is {what}: its weight decides nothing."]
    return [f"{', '.join(others)} and {last} are {what}: their weights decide nothing."]


def _calling(kind: str, earned: Mapping[str, Mapping[str, float] | None]) -> str:
    """What calling earns against abstaining, the right one first; "" if nobody was asked there."""
    order = ("calling", "abstaining") if kind == "due" else ("abstaining", "calling")
    told = [(did, found) for did in order if (found := earned[did])]
    if not told:
        return ""
    (did, found), *second = told
    text = f"{SITUATIONS[kind]}, {did} earns {found['mean']:.2f} on average (n = {found['count']})"
    for other, beside in second:
        return f"{text} and {other} {beside['mean']:.2f} (n = {beside['count']})."
    return f"{text}; {next(words for name, words in NOT_DONE.items() if name != did)}."


def read_grid(path: Path, own: Iterable[str] = ()) -> dict[str, dict[str, float]]:
    """The weightings of a YAML file, settled: a mapping name -> weights, or a list named by what it
    changes.

    `own`: parts beside the built-in ones. Raises UserError 2 with file and name.
    """
    own = list(own)
    grid: dict[str, dict[str, float]] = {}
    for name, weights in _entries(path):
        place = f"{path}, {name}"
        if not isinstance(weights, dict | None):
            raise UserError(f"{weights!r} is no mapping of parts to weights.", HOW, location=place)
        if name in grid:
            raise UserError(
                "is there twice.", "Give each weighting a name of its own.", location=place
            )
        try:
            given = {str(part): _number(part, weight) for part, weight in (weights or {}).items()}
            grid[name] = settle_weights(given, own)
        except UserError as error:
            raise UserError(
                error.problem, error.fix, location=": ".join(filter(None, (place, error.location)))
            ) from error
    if not grid:
        raise UserError("holds no weighting.", HOW, location=str(path))
    return grid


def _entries(path: Path) -> list[tuple[str, Any]]:
    """What the file holds, with its names. Names may be there twice: read as a mapping, YAML drops
    the first.
    """
    import yaml

    try:
        loader = yaml_loader(path)
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            made = [
                [loader.construct_object(half, deep=True) for half in entry] for entry in node.value
            ]
            refuse_grown(made, str(path))
            return [(str(name), weights) for name, weights in made]
        listed = loader.construct_document(node) if node else []
        refuse_grown(listed, str(path))
    except OSError as error:
        raise UserError(
            f"cannot read the weightings: {error.strerror}.", location=str(path)
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"no YAML: {' '.join(str(error).split())}", location=str(path)) from error
    return [
        (_name(weights), weights) for weights in (listed if isinstance(listed, list) else [listed])
    ]


def _name(weights: Any) -> str:
    """What it changes: `tool_accuracy=0.5,efficiency=0`."""
    if isinstance(weights, dict):
        return ",".join(f"{part}={weight}" for part, weight in weights.items()) or "defaults"
    return "defaults" if weights is None else str(weights)


def _number(part: Any, weight: Any) -> float:
    """Also of text: to YAML, -.3 is no number."""
    try:
        return float("" if isinstance(weight, bool) else weight)
    except (TypeError, ValueError):
        raise UserError(
            f"{part} is {weight!r}, which is no number.", "Write it as `efficiency: 0.3`."
        ) from None
