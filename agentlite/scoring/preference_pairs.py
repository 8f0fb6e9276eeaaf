"""Scores under weights -> pairs, with a reason for every step that gives none."""

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
    Rollout,
    Score,
    Side,
    Step,
)
from agentlite.core.row_files import encode, replacing
from agentlite.scoring.rewards import total

T = TypeVar("T")
Reason = Literal["failed", "same text", "same score", "small margin", "empty text"]
REASONS: dict[Reason, str] = {
    "failed": "fewer than two scored candidates are left",
    "same text": "all candidates say the same",
    "same score": "no two candidates that say different things differ in their totals",
    "small margin": "those that say different things differ by less than the least margin",
    "empty text": "every candidate that is better by the margin says nothing",
}
UNIT = (
    10**9
    # totals are compared as whole billionths: what differs beyond is the order of a sum, and no
    # difference
)


class PairRule(NamedTuple):
    """Which pairs are made. `gold`: it is chosen where every sampled candidate fails, or takes no
    part at all.
    """

    margin: float = 0.05
    balance: bool = False
    gold: Literal["never", "failed"] = "never"


class ScoredCandidate(msgspec.Struct, frozen=True, gc=False):
    candidate: Candidate
    parts: Mapping[str, float]


class Pairing(NamedTuple):
    """The pairs, and how many steps gave none for each reason: together, all the steps."""

    pairs: list[PreferencePair]
    reasons: dict[str, int]


class WeighedCandidate(msgspec.Struct, frozen=True, gc=False):
    """A candidate as it is weighed: its text without the blanks around it, and which of the
    distinct parts it has.
    """

    candidate: Candidate
    text: str
    parts: int

    @property
    def length(self) -> int:
        return len(self.candidate.text)


class Rivals(NamedTuple):
    """The candidates of a step, by sample: the sampled ones, those of them that say something, and
    the gold.

    The gold is there only where it may be chosen.
    """

    sampled: list[WeighedCandidate]
    speaking: list[WeighedCandidate]
    gold: list[WeighedCandidate]


class PreparedStep(NamedTuple):
    """Steps as many weightings weigh them: candidates with equal parts share them, and so their
    total.
    """

    steps: list[Rivals]
    parts: list[Mapping[str, float]]

    def totals(self, weights: Mapping[str, float]) -> list[int]:
        """What all distinct parts earn, in billionths. Raises UserError for a weighted part that
        nobody scored.
        """
        counted = {name: weight for name, weight in weights.items() if weight}
        for name in counted if self.parts else ():
            if name not in self.parts[0]:
                raise UserError(
                    f"the candidates have no score for '{name}'.",
                    "Leave its weight out, or name its function: --rewards FILE.py:FUNCTION.",
                )
        return [round(total(parts, counted) * UNIT) for parts in self.parts]


class PairScales(NamedTuple):
    """How a step is weighed: totals and the least margin in billionths, and whether lengths are
    balanced.
    """

    totals: Sequence[int]
    least: float
    balance: bool


class PairChoice(NamedTuple):
    """The two candidates that a step's pair is made of, and what they earn, in billionths."""

    chosen: WeighedCandidate
    rejected: WeighedCandidate
    high: int
    low: int

    @property
    def margin(self) -> float:
        return (self.high - self.low) / UNIT


def group(
    candidates: Iterable[Candidate], scores: Mapping[CandidateKey, Score]
) -> dict[Step, list[ScoredCandidate]]:
    """The scored candidates of every step; a step stays, though none of its candidates was scored.

    Raises UserError for a candidate that was scored on other parts than the first one.
    """
    groups: dict[Step, list[ScoredCandidate]] = {}
    first: Mapping[str, float] | None = None
    for candidate in candidates:
        scored = groups.setdefault(candidate.step, [])
        score = scores.get(candidate.key)
        if score is not None and not score.error:
            first = score.parts if first is None else first
            if score.parts.keys() != first.keys():
                raise _other_parts(candidate, first.keys() ^ score.parts.keys())
            scored.append(ScoredCandidate(candidate, score.parts))
    return groups


def build_pairs(
    groups: Mapping[Step, Sequence[ScoredCandidate]], weights: Mapping[str, float], rule: PairRule
) -> Pairing:
    """A pair a step, or the reason why there is none."""
    found = list(choices(prepare(groups, rule), weights, rule))
    return Pairing(
        [_pair(choice) for choice in found if isinstance(choice, PairChoice)], count_reasons(found)
    )


def count_reasons(found: Iterable[PairChoice | Reason]) -> dict[str, int]:
    """Every reason, and how many steps gave no pair for it."""
    counts: dict[str, int] = dict.fromkeys(REASONS, 0)
    for choice in found:
        if not isinstance(choice, PairChoice):
            counts[choice] += 1
    return counts


def prepare(groups: Mapping[Step, Sequence[ScoredCandidate]], rule: PairRule) -> PreparedStep:
    """Does once what no weighting changes."""
    names = next((list(one.parts) for scored in groups.values() for one in scored), [])
    numbers: dict[tuple[float, ...], int] = {}
    distinct: list[Mapping[str, float]] = []
    steps = []
    for scored in groups.values():
        sampled: list[WeighedCandidate] = []
        gold: list[WeighedCandidate] = []
        for one in sorted(scored, key=_place):
            candidate, parts = one.candidate, one.parts
            number = numbers.setdefault(tuple(map(parts.__getitem__, names)), len(distinct))
            if number == len(distinct):
                distinct.append(parts)
            entry = WeighedCandidate(candidate, candidate.text.strip(), number)
            (gold if candidate.model == GOLD else sampled).append(entry)
        failed = rule.gold == "failed" and all(distinct[one.parts]["exact"] < 1 for one in sampled)
        steps.append(Rivals(sampled, _speaking(sampled), _speaking(gold) if failed else []))
    return PreparedStep(steps, distinct)


def choices(
    prepared: PreparedStep, weights: Mapping[str, float], rule: PairRule
) -> Iterator[PairChoice | Reason]:
    """What each step gives, in order."""
    scales = PairScales(prepared.totals(weights), max(1, rule.margin * UNIT - 0.5), rule.balance)
    lean = 0  # by how many characters the chosen texts so far are longer than the rejected ones
    for step in prepared.steps:
        choice = (
            _best(step.gold, step.sampled, scales, lean)
            or _best(step.speaking, step.sampled, scales, lean)
            or _reason(step.sampled, scales)
        )
        if isinstance(choice, PairChoice):
            lean += choice.chosen.length - choice.rejected.length
        yield choice


def read_candidates(path: Path) -> Iterator[Candidate]:
    return _read(path, Candidate)


def read_scores(path: Path) -> Iterator[Score]:
    return _read(path, Score)


def read_pairs(path: Path) -> Iterator[PreferencePair]:
    return _read(path, PreferencePair)


def read_rollouts(path: Path) -> Iterator[Rollout]:
    return _read(path, Rollout)


def write_pairs(path: Path, pairs: Iterable[PreferencePair]) -> None:
    with replacing(path) as file:
        file.writelines(map(_line, pairs))


def _speaking(entries: list[WeighedCandidate]) -> list[WeighedCandidate]:
    """The very same list if all say something, as most do: its totals are then looked up once."""
    return entries if all(one.text for one in entries) else [one for one in entries if one.text]


def _best(
    better: Sequence[WeighedCandidate],
    worse: Sequence[WeighedCandidate],
    scales: PairScales,
    lean: int,
) -> PairChoice | None:
    """The widest admissible pair, or the one that keeps lengths in balance; None if there is
    none.
    """
    if not better or not worse:
        return None
    totals = scales.totals
    highs = [totals[one.parts] for one in better]
    lows = highs if worse is better else [totals[one.parts] for one in worse]
    high, low = max(highs), min(lows)
    if high - low < scales.least:
        return None
    chosen, rejected = better[highs.index(high)], worse[lows.index(low)]
    if chosen.text != rejected.text and not scales.balance:
        return PairChoice(chosen, rejected, high, low)
    admissible = [
        (abs(lean + one.length - other.length) if scales.balance else 0, low - high, i, j)
        for i, (one, high) in enumerate(zip(better, highs, strict=True))
        for j, (other, low) in enumerate(zip(worse, lows, strict=True))
        if high - low >= scales.least and one.text != other.text
    ]
    if not admissible:
        return None
    *_, i, j = min(admissible)
    return PairChoice(better[i], worse[j], highs[i], lows[j])


def _reason(sampled: Sequence[WeighedCandidate], scales: PairScales) -> Reason:
    """Why no pair can be made of these."""
    if len(sampled) < 2:
        return "failed"
    if len({one.text for one in sampled}) == 1:
        return "same text"
    earned = [(scales.totals[one.parts], one.text) for one in sampled]
    spread = max(earned)[0] - min(earned)[0]
    if spread == 0:
        return "same score"
    wide = spread >= scales.least and any(
        high - low >= scales.least and one != other for high, one in earned for low, other in earned
    )
    return "empty text" if wide else "small margin"


def _place(scored: ScoredCandidate) -> tuple[int, str, str]:
    """The first among equals is the first by sample, in whatever order they were read."""
    candidate = scored.candidate
    return candidate.sample, candidate.model, candidate.protocol


def _pair(choice: PairChoice) -> PreferencePair:
    candidate = choice.chosen.candidate
    chosen, rejected = _side(choice.chosen, choice.high), _side(choice.rejected, choice.low)
    return PreferencePair(candidate.record_id, candidate.turn, candidate.protocol, chosen, rejected)


def _side(entry: WeighedCandidate, earned: int) -> Side:
    candidate = entry.candidate
    return Side(candidate.text, candidate.ended, candidate.model, candidate.sample, earned / UNIT)


def _other_parts(candidate: Candidate, names: Iterable[str]) -> UserError:
    place = (
        f"record {candidate.record_id}, turn {candidate.turn}, {candidate.model}, sample "
        f"{candidate.sample}"
    )
    return UserError(
        f"scored on other parts than the candidates before: {', '.join(sorted(names))}.",
        "Score all of them with the same --rewards.",
        location=place,
    )


def _line(pair: PreferencePair) -> bytes:
    try:
        return msgspec.json.encode(pair) + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which a model's text may hold
        return encode(msgspec.to_builtins(pair))


def _read(path: Path, kind: type[T]) -> Iterator[T]:
    """Typed rows. A line that does not fit is an error with its place."""
    decode = msgspec.json.Decoder(kind).decode
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield decode(line)
            except ValueError:
                yield _decode_slowly(line, kind, f"{path}:{number}")


def _decode_slowly(line: bytes, kind: type[T], place: str) -> T:
    """Takes half a surrogate pair as well, as it is written."""
    try:
        return msgspec.convert(json.loads(line), kind)
    except ValueError as error:
        raise UserError(
            f"not a row of a {kind.__name__.lower()} ({error}).",
            "The file was changed after the stage wrote it: run that stage again with --force.",
            location=place,
        ) from error
