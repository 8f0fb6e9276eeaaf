"""Many weightings of the same candidates side by side, and what their components tell."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import sqrt
from operator import mul
from statistics import fmean, stdev

from msgspec import Struct

from agentlite.core.records import Step
from agentlite.scoring.preference_pairs import (
    UNIT,
    PairChoice,
    PairRule,
    Reason,
    ScoredSteps,
    choices,
    count_reasons,
)

TOGETHER = 0.95  # |r| from which two components measure the same
FEW = 30  # candidates below which a correlation tells nothing
SITUATIONS = {"expected": "where a call is expected", "not_expected": "where no call is expected"}
WITHOUT_THE_OTHER = {"calling": "none abstained", "abstaining": "none called"}


class WeightingRow(Struct, frozen=True, kw_only=True):
    """A weighting, its pairs, and what is different from the first weighting's.

    `flipped`: steps with a pair under both, and another chosen text; `gained`, `lost`: steps with a
    pair only under this one, or only under the first one. `chosen`, `rejected`: the mean of each
    component over the chosen and the rejected candidates; empty without pairs. `no_pair`: steps
    without a pair, by reason.
    """

    name: str
    weights: dict[str, float]
    steps: int
    pairs: int
    flipped: int
    gained: int
    lost: int
    mean_margin: float
    chosen: dict[str, float]
    rejected: dict[str, float]
    no_pair: dict[str, int]


class ComponentFigures(Struct, frozen=True):
    """`std`: of the sample; `differs`: the share of steps in which candidates differ in it."""

    weight: float
    mean: float | None
    std: float | None
    differs: float


class Correlated(Struct, frozen=True):
    """Two components that rise and fall with each other, |r| >= .95; r is Pearson's, of the
    differences from the step's mean, since pairs are made within a step.
    """

    components: tuple[str, str]
    r: float


class MeanTotal(Struct, frozen=True):
    mean: float
    count: int


# the mean total of the candidates that are `calling` and of those `abstaining`; None without any
TotalsByDecision = Mapping[str, MeanTotal | None]


class ComponentsReport(Struct, frozen=True, kw_only=True):
    """What the components of the sampled candidates tell; the gold is left out.

    `constant`: the components that never differ within a step: their weights have no effect.
    `abstaining`: calling against abstaining, where a call is `expected` and where it is
    `not_expected`.
    """

    steps: int
    candidates: int
    components: dict[str, ComponentFigures]
    constant: list[str]
    together: list[Correlated]
    abstaining: dict[str, TotalsByDecision]


def compare_weightings(
    scored: ScoredSteps, weightings: Mapping[str, Mapping[str, float]], rule: PairRule
) -> list[WeightingRow]:
    """One row per weighting, in order."""
    first: list[PairChoice | Reason] = []
    rows = []
    for name, weights in weightings.items():
        made = list(choices(scored, weights, rule))
        first = first or made
        flipped = gained = lost = 0
        for here, there in zip(made, first, strict=True):
            if isinstance(here, PairChoice) and isinstance(there, PairChoice):
                flipped += here.chosen.text != there.chosen.text
            else:
                gained += isinstance(here, PairChoice)
                lost += isinstance(there, PairChoice)
        pairs = [choice for choice in made if isinstance(choice, PairChoice)]
        row = WeightingRow(
            name=name,
            weights=dict(weights),
            steps=len(made),
            pairs=len(pairs),
            flipped=flipped,
            gained=gained,
            lost=lost,
            mean_margin=fmean(pair.margin for pair in pairs) if pairs else 0.0,
            chosen=_mean_components([scored.scores[pair.chosen.scores] for pair in pairs]),
            rejected=_mean_components([scored.scores[pair.rejected.scores] for pair in pairs]),
            no_pair=count_reasons(made),
        )
        rows.append(row)
    return rows


def _mean_components(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: fmean([score[name] for score in scores]) for name in (scores[0] if scores else ())
    }


def report_components(
    scored: ScoredSteps, weights: Mapping[str, float], expected: Mapping[Step, bool]
) -> ComponentsReport:
    """`expected`: for each step, whether a call is expected; empty where that is not known."""
    components: dict[str, ComponentFigures] = {}
    deviations: dict[str, list[float]] = {}
    compared = sum(len(step.sampled) > 1 for step in scored.steps)
    for name in scored.scores[0] if scored.scores else ():
        values: list[float] = []
        from_mean: list[float] = []
        differing = 0
        for step in scored.steps:
            of_step = [scored.scores[one.scores][name] for one in step.sampled]
            values += of_step
            if len(set(of_step)) > 1:
                differing += 1
                mean = sum(of_step) / len(of_step)
                from_mean += [value - mean for value in of_step]
            else:  # exactly 0, not what rounding leaves of value - mean
                from_mean += [0.0] * len(of_step)
        components[name] = ComponentFigures(
            weights.get(name, 0.0),
            fmean(values) if values else None,
            stdev(values) if len(values) > 1 else None,
            differing / compared if compared else 0.0,
        )
        if differing:
            deviations[name] = from_mean
    return ComponentsReport(
        steps=len(scored.steps),
        candidates=sum(len(step.sampled) for step in scored.steps),
        components=components,
        constant=[name for name in components if name not in deviations],
        together=_together(deviations),
        abstaining=_abstaining(scored, scored.totals(weights), expected),
    )


def _together(deviations: Mapping[str, Sequence[float]]) -> list[Correlated]:
    lengths = {name: sqrt(sum(map(mul, values, values))) for name, values in deviations.items()}
    together = []
    for one, other in combinations(deviations, 2):
        r = sum(map(mul, deviations[one], deviations[other])) / (lengths[one] * lengths[other])
        if abs(r) >= TOGETHER:
            together.append(Correlated((one, other), r))
    return together


def _abstaining(
    scored: ScoredSteps, totals: Sequence[int], expected: Mapping[Step, bool]
) -> dict[str, TotalsByDecision]:
    totals_of: dict[str, dict[str, list[float]]] = {
        situation: {"calling": [], "abstaining": []} for situation in SITUATIONS
    }
    for entry in (entry for step in scored.steps for entry in step.sampled):
        if (is_expected := expected.get(entry.candidate.step)) is None:
            continue
        score = scored.scores[entry.scores]
        called = not score["missed_call"] if is_expected else score["wrong_tool"] > 0
        by_decision = totals_of["expected" if is_expected else "not_expected"]
        by_decision["calling" if called else "abstaining"].append(totals[entry.scores] / UNIT)
    return {
        situation: {
            decision: MeanTotal(fmean(values), len(values)) if values else None
            for decision, values in by_decision.items()
        }
        for situation, by_decision in totals_of.items()
    }


def sentences(report: ComponentsReport) -> list[str]:
    """A report for a terminal, in at most three sentences: components that say the same, those that
    decide nothing, and what calling earns. Components without a weight are left to the JSON.
    """
    weighed = [name for name, component in report.components.items() if component.weight]
    said = []
    if report.candidates >= FEW and (same := _moving_together(report, weighed)):
        first, *others = map(_listed, same)
        text = f"{first} move with or against each other (|r| >= {TOGETHER} among "
        text += f"{report.candidates} candidates)"
        text += "".join(f", and so do {names}" for names in others)
        said.append(f"{text}: the weight of one of them is enough.")
    constant = [name for name in report.constant if name in weighed]
    everywhere = [name for name in constant if not report.components[name].std]
    within = [name for name in constant if report.components[name].std]
    parts = [
        f"{_listed(names)} {'is' if len(names) == 1 else 'are'} the same for {where}"
        for names, where in ((everywhere, "every candidate"), (within, "all candidates of a step"))
        if names
    ]
    if parts:
        weights = "its weight decides" if len(constant) == 1 else "their weights decide"
        said.append(f"{', and '.join(parts)}: {weights} nothing.")
    calling = [_calling(*situation) for situation in report.abstaining.items()]
    if text := "; ".join(filter(None, calling)):
        said.append(f"{text[0].upper()}{text[1:]}.")
    return said


def _moving_together(report: ComponentsReport, weighed: Sequence[str]) -> list[list[str]]:
    """The sets of components that say the same."""
    sets = [{name} for name in weighed]
    for pair in report.together:
        if {*pair.components} <= {*weighed}:
            joined = [names for names in sets if names & {*pair.components}]
            sets = [names for names in sets if names not in joined] + [set().union(*joined)]
    return [[name for name in weighed if name in names] for names in sets if len(names) > 1]


def _listed(names: Sequence[str]) -> str:
    """`a`, `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _calling(situation: str, totals: TotalsByDecision) -> str:
    """What calling earns against abstaining, the right one first; "" without such steps."""
    order = ["calling", "abstaining"] if situation == "expected" else ["abstaining", "calling"]
    measured = [(decision, total) for decision in order if (total := totals[decision])]
    if not measured:
        return ""
    (decision, first), *second = measured
    text = f"{SITUATIONS[situation]}, {decision} earns {first.mean:.2f} on average"
    text += f" (n = {first.count})"
    for other, total in second:
        return f"{text} and {other} {total.mean:.2f} (n = {total.count})"
    return f"{text}, and {WITHOUT_THE_OTHER[decision]}"
