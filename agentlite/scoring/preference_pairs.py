"""Scored candidates and weights -> preference pairs, with a reason for each step without one."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, CandidateKey, PreferencePair, Score, Side, Step
from agentlite.core.row_files import json_line, replacing
from agentlite.rendering import Prompt
from agentlite.scoring.rewards import WEIGHTS, total

# a step has no pair: fewer than two scored candidates; all have one text; all have one total; texts
# differ by less than the least margin; or every candidate that is better by it has an empty text
Reason = Literal["fewer than two scored", "same text", "same score", "small margin", "empty text"]
UNIT = 10**9  # in 1 of a total


class PairRule(NamedTuple):
    """Which pairs are made. `gold`: it is chosen where every sampled candidate fails."""

    margin: float = 0.05
    gold: bool = False


class ScoredCandidate(NamedTuple):
    """A candidate with its stripped text, its components and, once there are weights, their total
    in whole billionths: a smaller difference only comes from the order of a sum.
    """

    candidate: Candidate
    text: str
    components: Mapping[str, float]
    total: int = 0

    @property
    def is_gold(self) -> bool:
        return self.candidate.model == GOLD


def gold_candidates(prompts: Iterable[Prompt]) -> Iterator[Candidate]:
    """The gold answer of every step that has one. A step whose calls have unknown arguments has
    none: its text would teach the empty ones that stand in for them. A step without an answer has
    none either.
    """
    for prompt in prompts:
        record, turn = prompt.record, prompt.turn
        if record.has_gold(turn) and not record.unknown_arguments(turn):
            answer, ended = prompt.answer, prompt.ended
            yield Candidate(*prompt.step, prompt.protocol, GOLD, 0, answer, ended, 0)


def group_by_step(
    candidates: Iterable[Candidate], scores: Mapping[CandidateKey, Score]
) -> list[list[ScoredCandidate]]:
    """The scored candidates of every step, by sample; a step without one stays. All are scored by
    the same components.
    """
    by_step: dict[Step, list[ScoredCandidate]] = {}
    for candidate in candidates:
        group = by_step.setdefault(candidate.step, [])
        score = scores.get(candidate.key)
        if score and not score.error:
            group.append(ScoredCandidate(candidate, candidate.text.strip(), score.components))
    for group in by_step.values():
        # ties go to the lowest sample, in whatever order the candidates were read
        group.sort(key=lambda c: (c.candidate.sample, c.candidate.model, c.candidate.protocol))
    return list(by_step.values())


def build_pairs(
    steps: Sequence[Sequence[ScoredCandidate]], weights: Mapping[str, float], rule: PairRule
) -> tuple[list[PreferencePair], dict[str, int]]:
    """One pair per step, or the reason why there is none: how many steps have each."""
    used_weights = {name: weight for name, weight in weights.items() if weight}
    # answers to prompts without gold have fewer components
    components = [{*step[0].components} for step in steps if step]
    _refuse_missing(set.intersection(*components) if components else {*weights}, used_weights, rule)
    # at least 1: equal totals are never a pair; half a unit less: the margin itself is enough,
    # however it was rounded
    margin = max(1, rule.margin * UNIT - 0.5)
    pairs: list[PreferencePair] = []
    reasons: dict[str, int] = dict.fromkeys(get_args(Reason), 0)
    for step in steps:
        group = [c._replace(total=round(total(c.components, used_weights) * UNIT)) for c in step]
        sampled = [candidate for candidate in group if not candidate.is_gold]
        nonempty, gold = [candidate for candidate in sampled if candidate.text], []
        if rule.gold and all(candidate.components["exact"] < 1 for candidate in sampled):
            gold = [candidate for candidate in group if candidate.is_gold and candidate.text]
        if pair := _best_pair(gold, sampled, margin) or _best_pair(nonempty, sampled, margin):
            pairs.append(pair)
        else:
            reasons[_no_pair_reason(sampled, margin)] += 1
    return pairs, reasons


def _refuse_missing(names: Collection[str], weights: Mapping[str, float], rule: PairRule) -> None:
    """Raises UserError 2 where a weight, or the gold, needs what some candidates have no score for.
    `names`: of the components that all of them have.
    """
    if rule.gold and "exact" not in names:
        raise UserError(
            "prompts have no gold that could be chosen.", "Leave --gold out.", location="--gold"
        )
    for name in (name for name in weights if name not in names):
        raise UserError(
            f"the candidates have no score for '{name}'.",
            "It compares answers with gold, and their prompts have none: set its weight to 0, as "
            "--config recipes/no-gold.yaml does."
            if name in WEIGHTS
            else "Leave its weight out, or name its function: --rewards FILE.py:FUNCTION.",
        )


def _best_pair(
    better: Sequence[ScoredCandidate], worse: Sequence[ScoredCandidate], margin: float
) -> PreferencePair | None:
    """The pair with the widest margin, then of the first samples; None below the least `margin`."""
    pairs = [
        (chosen, rejected)
        for chosen in better
        for rejected in worse
        if chosen.total - rejected.total >= margin and chosen.text != rejected.text
    ]
    if not pairs:
        return None
    chosen, rejected = max(pairs, key=lambda pair: pair[0].total - pair[1].total)  # the first such
    winner, loser = chosen.candidate, rejected.candidate
    return PreferencePair(
        winner.record_id,
        winner.turn,
        winner.protocol,
        Side(winner.text, winner.ended, winner.model, winner.sample, chosen.total / UNIT),
        Side(loser.text, loser.ended, loser.model, loser.sample, rejected.total / UNIT),
    )


def _no_pair_reason(sampled: Sequence[ScoredCandidate], margin: float) -> Reason:
    texts, totals = {c.text for c in sampled}, {c.total for c in sampled}
    if len(sampled) < 2:
        return "fewer than two scored"
    if len(texts) == 1:
        return "same text"
    if len(totals) == 1:
        return "same score"
    is_wide = any(
        better.total - worse.total >= margin and better.text != worse.text
        for better, worse in permutations(sampled, 2)
    )
    return "empty text" if is_wide else "small margin"


def constant_components(
    steps: Sequence[Sequence[ScoredCandidate]], weights: Mapping[str, float]
) -> list[str]:
    """The components with a weight that are the same for all candidates of a step."""
    sampled = [[candidate for candidate in step if not candidate.is_gold] for step in steps]
    return [
        name
        for name in weights
        if steps
        and weights[name]
        and all(len({candidate.components[name] for candidate in step}) < 2 for step in sampled)
    ]


def write_pairs(path: Path, pairs: Iterable[PreferencePair]) -> None:
    with replacing(path) as file:
        for pair in pairs:
            try:
                file.write(msgspec.json.encode(pair) + b"\n")
            except UnicodeEncodeError:  # half a surrogate pair, which a model's text may hold
                file.write(json_line(msgspec.to_builtins(pair)))
