"""Scored candidates and weights -> preference pairs, with a reason for each step without one."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from agentlite.core.errors import UserError
from agentlite.core.records import (
    GOLD,
    Candidate,
    CandidateKey,
    PreferencePair,
    Score,
    Side,
    Step,
    TrainedAnswer,
)
from agentlite.core.row_files import encode, replacing
from agentlite.rendering import Prompt
from agentlite.scoring.rewards import WEIGHTS, total

T = TypeVar("T")
Reason = Literal["failed", "same text", "same score", "small margin", "empty text"]
REASONS: dict[Reason, str] = {
    "failed": "fewer than two scored candidates are left",
    "same text": "all candidates have the same text",
    "same score": "no two candidates with different texts differ in their totals",
    "small margin": "candidates with different texts differ by less than the least margin",
    "empty text": "every candidate that is better by the margin has an empty text",
}
# Totals are compared as whole billionths: a smaller difference only comes from the order of a sum.
UNIT = 10**9


class PairRule(NamedTuple):
    """Which pairs are made. `gold`: it is chosen where every sampled candidate fails."""

    margin: float = 0.05
    balance: bool = False
    gold: bool = False


class ScoredCandidate(msgspec.Struct, frozen=True, gc=False):
    """A candidate with its stripped text; `scores`: an index into the distinct scores of all
    candidates.
    """

    candidate: Candidate
    text: str
    scores: int

    @property
    def length(self) -> int:
        return len(self.candidate.text)


class Rivals(NamedTuple):
    """The candidates of a step, by sample: the sampled ones, those of them with a text, and the
    gold where it may be chosen.
    """

    sampled: list[ScoredCandidate]
    not_empty: list[ScoredCandidate]
    gold: list[ScoredCandidate]


class ScoredSteps(NamedTuple):
    """Steps for any number of weightings: candidates with equal components share one entry of
    `scores`, so that each distinct one is summed once per weighting.
    """

    steps: list[Rivals]
    scores: list[Mapping[str, float]]

    def totals(self, weights: Mapping[str, float]) -> list[int]:
        """The total of each distinct score, in billionths."""
        counted = {name: weight for name, weight in weights.items() if weight}
        for name in counted if self.scores else ():
            if name not in self.scores[0]:
                raise UserError(
                    f"the candidates have no score for '{name}'.",
                    "It compares answers with gold, and their prompts have none: set its weight to "
                    "0, as --config recipes/no-gold.yaml does."
                    if name in WEIGHTS
                    else "Leave its weight out, or name its function: --rewards FILE.py:FUNCTION.",
                )
        return [round(total(score, counted) * UNIT) for score in self.scores]


class PairChoice(NamedTuple):
    """The two candidates of a step's pair, and their totals in billionths."""

    chosen: ScoredCandidate
    rejected: ScoredCandidate
    high: int
    low: int

    @property
    def margin(self) -> float:
        return (self.high - self.low) / UNIT

    @property
    def pair(self) -> PreferencePair:
        chosen, rejected = (
            Side(side.text, side.ended, side.model, side.sample, total / UNIT)
            for side, total in (
                (self.chosen.candidate, self.high),
                (self.rejected.candidate, self.low),
            )
        )
        step = self.chosen.candidate
        return PreferencePair(step.record_id, step.turn, step.protocol, chosen, rejected)


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
    candidates: Iterable[Candidate], scores: Mapping[CandidateKey, Score], rule: PairRule
) -> ScoredSteps:
    """The scored candidates of every step, with what is the same for every weighting; a step
    without a scored candidate stays. All are scored by the same components.
    """
    by_step: dict[Step, list[ScoredCandidate]] = {}
    distinct: list[Mapping[str, float]] = []
    indices: dict[tuple[float, ...], int] = {}
    for candidate in candidates:
        of_step = by_step.setdefault(candidate.step, [])
        score = scores.get(candidate.key)
        if score is None or score.error:
            continue
        components = score.components
        first = distinct[0] if distinct else components
        if other := components.keys() ^ first.keys():
            raise UserError(
                f"scored by other components than the candidates before: "
                f"{', '.join(sorted(other))}.",
                "Score all of them with the same --rewards.",
                location=f"record {candidate.record_id}, turn {candidate.turn}, "
                f"{candidate.model}, sample {candidate.sample}",
            )
        index = indices.setdefault(tuple(map(components.__getitem__, first)), len(distinct))
        if index == len(distinct):
            distinct.append(components)
        of_step.append(ScoredCandidate(candidate, candidate.text.strip(), index))
    if rule.gold and distinct and "exact" not in distinct[0]:
        raise UserError(
            "prompts have no gold that could be chosen.", "Leave --gold out.", location="--gold"
        )
    steps = []
    for of_step in by_step.values():
        of_step.sort(key=_sample_order)
        sampled = [one for one in of_step if one.candidate.model != GOLD]
        failed = rule.gold and all(distinct[one.scores]["exact"] < 1 for one in sampled)
        gold = [one for one in of_step if failed and one.candidate.model == GOLD and one.text]
        # the very same list if no text is empty, as usual: its totals are then looked up once
        all_speak = all(one.text for one in sampled)
        not_empty = sampled if all_speak else [one for one in sampled if one.text]
        steps.append(Rivals(sampled, not_empty, gold))
    return ScoredSteps(steps, distinct)


def _sample_order(scored: ScoredCandidate) -> tuple[int, str, str]:
    """Ties go to the lowest sample, in whatever order the candidates were read."""
    candidate = scored.candidate
    return candidate.sample, candidate.model, candidate.protocol


def build_pairs(
    scored: ScoredSteps, weights: Mapping[str, float], rule: PairRule
) -> tuple[list[PreferencePair], dict[str, int]]:
    """One pair per step, or the reason why there is none: how many steps have each."""
    made = list(choices(scored, weights, rule))
    return [choice.pair for choice in made if isinstance(choice, PairChoice)], count_reasons(made)


def count_reasons(made: Iterable[PairChoice | Reason]) -> dict[str, int]:
    """For every reason, how many steps have no pair."""
    counts: dict[str, int] = dict.fromkeys(REASONS, 0)
    for choice in made:
        if not isinstance(choice, PairChoice):
            counts[choice] += 1
    return counts


def choices(
    scored: ScoredSteps, weights: Mapping[str, float], rule: PairRule
) -> Iterator[PairChoice | Reason]:
    """The pair of each step, or why it has none; in order."""
    totals = scored.totals(weights)
    # at least 1: equal totals are never a pair; half a unit less: the margin itself is enough,
    # however it was rounded
    least = max(1, rule.margin * UNIT - 0.5)
    # By how many characters the chosen texts so far are longer than the rejected ones. With
    # `balance` each step takes the pair that brings it nearest to 0, so that length alone does not
    # tell chosen from rejected. It depends on the order of the steps.
    lean = 0

    def best(
        better: Sequence[ScoredCandidate], worse: Sequence[ScoredCandidate]
    ) -> PairChoice | None:
        """The pair with the widest margin, or with `balance` the one that brings `lean` nearest to
        0; None if no pair has the least margin.
        """
        if not better or not worse:
            return None
        highs = [totals[one.scores] for one in better]
        lows = highs if worse is better else [totals[one.scores] for one in worse]
        high, low = max(highs), min(lows)
        if high - low < least:
            return None
        # The first best and the first worst are the answer unless their texts are equal: no pair
        # of these lists has a wider margin. Only otherwise are all pairs compared.
        chosen, rejected = better[highs.index(high)], worse[lows.index(low)]
        if chosen.text != rejected.text and not rule.balance:
            return PairChoice(chosen, rejected, high, low)
        # sorted by balance, then by the widest margin, then by the first samples
        admissible = [
            (abs(lean + one.length - other.length) if rule.balance else 0, low - high, i, j)
            for i, (one, high) in enumerate(zip(better, highs, strict=True))
            for j, (other, low) in enumerate(zip(worse, lows, strict=True))
            if high - low >= least and one.text != other.text
        ]
        if not admissible:
            return None
        *_, i, j = min(admissible)
        return PairChoice(better[i], worse[j], highs[i], lows[j])

    for step in scored.steps:
        choice = best(step.gold, step.sampled) or best(step.not_empty, step.sampled)
        if choice:
            lean += choice.chosen.length - choice.rejected.length
        yield choice or _reason([(totals[one.scores], one.text) for one in step.sampled], least)


def _reason(sampled: Sequence[tuple[int, str]], least: float) -> Reason:
    """Why no pair can be made of these totals and texts."""
    if len(sampled) < 2:
        return "failed"
    if len({text for _, text in sampled}) == 1:
        return "same text"
    spread = max(sampled)[0] - min(sampled)[0]
    if spread == 0:
        return "same score"
    wide = spread >= least and any(
        high - low >= least and one != other for high, one in sampled for low, other in sampled
    )
    return "empty text" if wide else "small margin"


def read_candidates(path: Path) -> Iterator[Candidate]:
    return _read(path, Candidate)


def read_scores(path: Path) -> Iterator[Score]:
    return _read(path, Score)


def read_pairs(path: Path) -> Iterator[PreferencePair]:
    return _read(path, PreferencePair)


def read_rollouts(path: Path) -> Iterator[TrainedAnswer]:
    return _read(path, TrainedAnswer)


def write_pairs(path: Path, pairs: Iterable[PreferencePair]) -> None:
    with replacing(path) as file:
        for pair in pairs:
            try:
                file.write(msgspec.json.encode(pair) + b"\n")
            except UnicodeEncodeError:  # half a surrogate pair, which a model's text may hold
                file.write(encode(msgspec.to_builtins(pair)))


def _read(path: Path, kind: type[T]) -> Iterator[T]:
    """Typed rows. A line that does not fit is an error with its location."""
    decode = msgspec.json.Decoder(kind).decode
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield decode(line)
            except ValueError:
                try:  # half a surrogate pair is read as well, as it is written
                    yield msgspec.convert(json.loads(line), kind)
                except ValueError as error:
                    raise UserError(
                        f"not a row of a {kind.__name__.lower()} ({error}).",
                        "The file was changed after the stage wrote it: run that stage again with "
                        "--force.",
                        location=f"{path}:{number}",
                    ) from error
