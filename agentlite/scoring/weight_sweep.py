"""Many weightings of the same candidates side by side, and what their components tell."""

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import fmean, stdev

from msgspec import Struct

from agentlite.scoring.preference_pairs import (
    PairChoice,
    PairRule,
    Reason,
    ScoredSteps,
    choices,
    count_reasons,
)


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


class ComponentsReport(Struct, frozen=True, kw_only=True):
    """What the components of the sampled candidates tell; the gold is left out.

    `constant`: the components that never differ within a step: their weights have no effect.
    """

    steps: int
    candidates: int
    components: dict[str, ComponentFigures]
    constant: list[str]


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


def report_components(scored: ScoredSteps, weights: Mapping[str, float]) -> ComponentsReport:
    components: dict[str, ComponentFigures] = {}
    compared = sum(len(step.sampled) > 1 for step in scored.steps)
    for name in scored.scores[0] if scored.scores else ():
        by_step = [
            [scored.scores[one.scores][name] for one in step.sampled] for step in scored.steps
        ]
        values = [*chain.from_iterable(by_step)]
        differing = sum(len({*of_step}) > 1 for of_step in by_step)
        components[name] = ComponentFigures(
            weights.get(name, 0.0),
            fmean(values) if values else None,
            stdev(values) if len(values) > 1 else None,
            differing / compared if compared else 0.0,
        )
    return ComponentsReport(
        steps=len(scored.steps),
        candidates=sum(len(step.sampled) for step in scored.steps),
        components=components,
        constant=[name for name, component in components.items() if not component.differs],
    )


def sentences(report: ComponentsReport) -> list[str]:
    """Which components with a weight decide nothing, for a terminal."""
    constant = [name for name in report.constant if report.components[name].weight]
    if not constant:
        return []
    *others, last = constant
    names = f"{', '.join(others)} and {last}" if others else last
    verb, weights = ("are", "their weights decide") if others else ("is", "its weight decides")
    return [f"{names} {verb} the same for all candidates of a step: {weights} nothing."]
