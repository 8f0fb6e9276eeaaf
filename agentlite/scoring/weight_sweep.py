"""Many weightings of the same candidates side by side."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from agentlite.scoring.preference_pairs import (
    PairChoice,
    PairRule,
    Reason,
    ScoredStep,
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


def compare_weightings(
    steps: Sequence[ScoredStep],
    weightings: Mapping[str, Mapping[str, float]],
    rule: PairRule,
) -> list[WeightingRow]:
    """One row per weighting, in order."""
    first: list[PairChoice | Reason] = []
    rows = []
    for name, weights in weightings.items():
        made = list(choices(steps, weights, rule))
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
            chosen=_mean_components([pair.chosen.components for pair in pairs]),
            rejected=_mean_components([pair.rejected.components for pair in pairs]),
            no_pair=count_reasons(made),
        )
        rows.append(row)
    return rows


def _mean_components(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: fmean([score[name] for score in scores]) for name in (scores[0] if scores else ())
    }


def constant(steps: Sequence[ScoredStep], weights: Mapping[str, float]) -> list[str]:
    """A sentence on the components that are the same for all candidates of a step."""
    names = [
        name
        for name in weights
        if weights[name]
        and all(len({one.components[name] for one in step.sampled}) < 2 for step in steps)
    ]
    if not steps or not names:
        return []
    same = ", ".join(names)
    return [f"the same for all candidates of a step, so that their weights decide nothing: {same}"]
