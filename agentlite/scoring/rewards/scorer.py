"""Candidates and the gold of their steps -> scores."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import REJECTS, UserError
from agentlite.core.records import Candidate, Parsed, Record, Score, Step
from agentlite.rendering import Protocol, protocols_of
from agentlite.rendering.protocol import thought_and_words
from agentlite.scoring import rewards
from agentlite.scoring.read_turn import read_turn, reference_of
from agentlite.scoring.rewards.attempt import recorded_steps
from agentlite.workspace.input_files import load_template


class Scorer(NamedTuple):
    """Scores candidates: with the records by id, the protocols by name, and user functions.

    All scores have the same components: where one prompt has no gold, those that need it are left
    out of every score.
    """

    records: Mapping[str, Record]
    protocols: Mapping[str, Protocol]
    user_functions: Mapping[str, rewards.Component]

    @property
    def has_gold(self) -> bool:
        return rewards.have_gold(self.records.values())

    def __call__(self, candidates: Iterable[Candidate]) -> Iterator[Score]:
        has_gold = self.has_gold
        unanswered: dict[tuple[Step, str], rewards.Attempt] = {}
        for candidate in candidates:
            record = self.records.get(candidate.record_id)
            if record is None or candidate.turn not in record.turns:
                raise UserError(
                    f"a candidate answers record {candidate.record_id}, turn {candidate.turn}, "
                    "which does not exist.",
                    "Its records.jsonl is of other candidates: name the folder that pairs or grpo "
                    "wrote.",
                )
            protocol = self.protocols[candidate.protocol]
            if (key := (candidate.step, protocol.name)) not in unanswered:
                before, failed = record.messages[: candidate.turn], record.meta.get("is_error", ())
                unanswered[key] = rewards.Attempt(
                    Parsed(""),
                    record.expected(candidate.turn),
                    record.tools,
                    messages=before,
                    reference=reference_of(protocol, record, candidate.turn),
                    meta=record.meta,
                    history=recorded_steps(before, failed),
                )
            attempt = replace(
                unanswered[key],
                parsed=read_turn(candidate.text, protocol, record, candidate.turn),
                finished=candidate.ended != "cut",
                text=candidate.text,
                candidate=candidate.key,
                thought=thought_and_words(protocol.in_tags(candidate.text))[0],
                recorded_thought=thought_and_words(record.messages[candidate.turn].content)[0],
            )
            components, feedback, error = rewards.score_attempt(attempt, self.user_functions)
            if not has_gold:
                components = rewards.without_comparisons(components)
            yield Score(*candidate.key, components, feedback, error)


def protocols_by_name(setting: str, base: str) -> Mapping[str, Protocol]:
    """The protocols of a setting, by name; only the model's native one needs the template of the
    base model.
    """
    mixture = protocols_of(setting)
    if any(protocol.native for protocol in mixture.protocols.values()):
        mixture = mixture.read_from(load_template(base))
    return mixture.protocols


class Tally:
    """Counts the candidates, or rollouts, that a user function or a judge gave no value for."""

    def __init__(self, limit: float, folder: Path, fix: str, scored: str = "candidates"):
        self.limit, self.folder, self.fix, self.what = limit, folder, fix, scored
        self.scored = self.failed = 0
        self.first = ""

    def count(self, error: str) -> None:
        """`error`: of one candidate's score; "" if it has none."""
        self.scored += 1
        self.failed += bool(error)
        self.first = self.first or error

    def refuse(self, expected: int = 0) -> None:
        """Raises UserError 4 if more failed than the share `limit` of those `expected`, or of those
        scored so far.
        """
        count = expected or self.scored
        if self.failed > max(1, self.limit * count):
            raise UserError(
                f"a reward failed for {self.failed} {self.what}; {self.limit:.0%} of {count} may: "
                f"{self.first}.",
                self.fix,
                location=str(self.folder),
                exit_code=REJECTS,
            )
