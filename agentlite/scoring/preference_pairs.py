"""Scored candidates and weights -> preference pairs, with a reason for each step without one."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
Reason = Literal["failed", "same text", "same score", "small margin", "empty text"]
# Totals are compared as whole billionths: a smaller difference only comes from the order of a sum.
UNIT = 10**9


class PairRule(NamedTuple):
    """Which pairs are made. `gold`: it is chosen where every sampled candidate fails."""

    margin: float = 0.05
    gold: bool = False


class ScoredCandidate(NamedTuple):
    """A candidate with its stripped text and its components."""

    candidate: Candidate
    text: str
    components: Mapping[str, float]


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


def group(
    candidates: Iterable[Candidate], scores: Mapping[CandidateKey, Score]
) -> list[list[ScoredCandidate]]:
    """The scored candidates of every step, by sample; a step without one stays. All are scored by
    the same components.
    """
    by_step: dict[Step, list[ScoredCandidate]] = {}
    for candidate in candidates:
        of_step = by_step.setdefault(candidate.step, [])
        score = scores.get(candidate.key)
        if score and not score.error:
            of_step.append(ScoredCandidate(candidate, candidate.text.strip(), score.components))
    for of_step in by_step.values():
        # ties go to the lowest sample, in whatever order the candidates were read
        of_step.sort(
            key=lambda one: (one.candidate.sample, one.candidate.model, one.candidate.protocol)
        )
    return list(by_step.values())


def build_pairs(
    steps: Sequence[Sequence[ScoredCandidate]], weights: Mapping[str, float], rule: PairRule
) -> tuple[list[PreferencePair], dict[str, int]]:
    """One pair per step, or the reason why there is none: how many steps have each."""
    counted = {name: weight for name, weight in weights.items() if weight}
    # answers to prompts without gold have fewer components
    scored = [{*step[0].components} for step in steps if step]
    _refuse_unscored(set.intersection(*scored) if scored else {*weights}, counted, rule)
    # at least 1: equal totals are never a pair; half a unit less: the margin itself is enough,
    # however it was rounded
    least = max(1, rule.margin * UNIT - 0.5)
    pairs: list[PreferencePair] = []
    reasons: dict[str, int] = dict.fromkeys(get_args(Reason), 0)
    for step in steps:
        totals = [(round(total(one.components, counted) * UNIT), one) for one in step]
        sampled = [(high, one) for high, one in totals if one.candidate.model != GOLD]
        speaking, gold = [(high, one) for high, one in sampled if one.text], []
        if rule.gold and all(one.components["exact"] < 1 for _, one in sampled):
            gold = [(high, one) for high, one in totals if one.candidate.model == GOLD and one.text]
        if pair := _best(gold, sampled, least) or _best(speaking, sampled, least):
            pairs.append(pair)
        else:
            reasons[_reason([(high, one.text) for high, one in sampled], least)] += 1
    return pairs, reasons


def _refuse_unscored(scored: Collection[str], weights: Mapping[str, float], rule: PairRule) -> None:
    """Raises UserError 2 where a weight, or the gold, needs what some candidates have no score for.
    `scored`: the components that all of them have.
    """
    if rule.gold and "exact" not in scored:
        raise UserError(
            "prompts have no gold that could be chosen.", "Leave --gold out.", location="--gold"
        )
    for name in (name for name in weights if name not in scored):
        raise UserError(
            f"the candidates have no score for '{name}'.",
            "It compares answers with gold, and their prompts have none: set its weight to 0, as "
            "--config recipes/no-gold.yaml does."
            if name in WEIGHTS
            else "Leave its weight out, or name its function: --rewards FILE.py:FUNCTION.",
        )


def _best(
    better: Sequence[tuple[int, ScoredCandidate]],
    worse: Sequence[tuple[int, ScoredCandidate]],
    least: float,
) -> PreferencePair | None:
    """The pair with the widest margin, then of the first samples; None without the least margin."""
    highest = max((high for high, _ in better), default=0)
    if not worse or highest - min(low for low, _ in worse) < least:
        return None
    admissible = [
        (low - high, i, j)
        for i, (high, one) in enumerate(better)
        for j, (low, other) in enumerate(worse)
        if high - low >= least and one.text != other.text
    ]
    if not admissible:
        return None
    _, i, j = min(admissible)  # low - high is lowest where the margin is widest
    (high, chosen), (low, rejected) = better[i], worse[j]
    step, other = chosen.candidate, rejected.candidate
    return PreferencePair(
        step.record_id,
        step.turn,
        step.protocol,
        Side(step.text, step.ended, step.model, step.sample, high / UNIT),
        Side(other.text, other.ended, other.model, other.sample, low / UNIT),
    )


def _reason(sampled: Sequence[tuple[int, str]], least: float) -> Reason:
    """Why no pair can be made of these totals and texts."""
    totals, texts = {total for total, _ in sampled}, {text for _, text in sampled}
    if len(sampled) < 2:
        return "failed"
    if len(texts) == 1:
        return "same text"
    if len(totals) == 1:
        return "same score"
    wide = any(
        high - low >= least and one != other for high, one in sampled for low, other in sampled
    )
    return "empty text" if wide else "small margin"


def constant(steps: Sequence[Sequence[ScoredCandidate]], weights: Mapping[str, float]) -> list[str]:
    """The components with a weight that are the same for all candidates of a step."""
    sampled = [[one for one in step if one.candidate.model != GOLD] for step in steps]
    return [
        name
        for name in weights
        if steps
        and weights[name]
        and all(len({one.components[name] for one in step}) < 2 for step in sampled)
    ]


def write_pairs(path: Path, pairs: Iterable[PreferencePair]) -> None:
    with replacing(path) as file:
        for pair in pairs:
            try:
                file.write(msgspec.json.encode(pair) + b"\n")
            except UnicodeEncodeError:  # half a surrogate pair, which a model's text may hold
                file.write(json_line(msgspec.to_builtins(pair)))
