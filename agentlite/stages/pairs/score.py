"""Candidates -> their scores, appended to scores.jsonl; or the scores of an earlier stage."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.records import (
    Candidate,
    CandidateKey,
    Record,
    Score,
    Step,
    from_row,
)
from agentlite.core.row_files import Appender, read_rows, write_rows
from agentlite.scoring.preference_pairs import read_scores
from agentlite.scoring.rewards import COMPONENTS, PENALTIES, have_gold
from agentlite.scoring.rewards.scorer import Scorer, Tally, reading
from agentlite.scoring.rewards.user_functions import UserFunctions
from agentlite.stages.pairs.earlier_candidates import Stored
from agentlite.workspace.lineage import model_of_prep
from agentlite.workspace.model_source import Source, find_model, is_served


class ScoredCandidates(NamedTuple):
    """Candidates, their scores, and for each step whether a call is expected."""

    candidates: Sequence[Candidate]
    scores: dict[CandidateKey, Score]
    expected: dict[Step, bool]

    @property
    def user_components(self) -> set[str]:
        names = {name for score in self.scores.values() for name in score.components}
        return names - {*COMPONENTS, *PENALTIES}


def score_candidates(
    folder: Path,
    candidates: Sequence[Candidate],
    scorer: Scorer | Callable[[Iterable[Candidate]], Iterator[Score]],
    tally: Tally,
) -> dict[CandidateKey, Score]:
    """Appends the scores that are missing; scores with an error are made again. Raises
    UserError 4.
    """
    path = folder / "scores.jsonl"
    if path.exists():
        with Appender(path):  # cuts a torn line
            pass
        write_rows(
            path, [msgspec.structs.asdict(score) for score in read_scores(path) if not score.error]
        )
    with Appender(path) as file:
        known = {score.key: score for score in read_scores(path)}
        left = [candidate for candidate in candidates if candidate.key not in known]
        with console.progress("pairs: scoring", len(candidates)) as advance:
            for score in scorer(left):
                known[score.key] = score
                file.append(msgspec.structs.asdict(score))
                tally.count(score.error)
                tally.refuse(len(candidates))
                advance(len(known))
    return known


def stored_scores(
    settings: PairsSettings, stored: Stored, folder: Path | None, tally: Tally
) -> ScoredCandidates:
    """The stored scores; new ones, written to `folder` if there is one, where user functions are
    asked for.
    """
    records = [from_row(row) for row in read_rows(stored.folder / "records.jsonl")]
    if not settings.rewards and stored.scores:
        return ScoredCandidates(stored.candidates, stored.scores, expected_calls(records))
    base = template_source(stored).base
    with UserFunctions(
        settings.rewards, settings.reward_seconds, settings.reward_memory
    ) as user_functions:
        scorer = Scorer(
            {record.id: record for record in records},
            reading(stored.plan.settings["protocol"], base),
            user_functions,
        )
        if folder is not None:
            return ScoredCandidates(
                stored.candidates,
                score_candidates(folder, stored.candidates, scorer, tally),
                expected_calls(records),
            )
        scores: dict[CandidateKey, Score] = {}
        for score in scorer(stored.candidates):
            scores[score.key] = score
            tally.count(score.error)
            tally.refuse(len(stored.candidates))
    return ScoredCandidates(stored.candidates, scores, expected_calls(records))


def template_source(stored: Stored) -> Source:
    """The model that gave the candidates; behind a server, that of the prep, whose template they
    are written in.
    """
    run, model = stored.folder.parent, str(stored.plan.settings["model"])
    if is_served(stored.plan.inputs.get("model", "")):
        return model_of_prep(str(stored.plan.settings["data"]), run)
    return find_model(model, run, stored.folder)


def rescore_hint(name: str) -> str:
    return (
        f"Every candidate is kept. Fix the function; `agentlite pairs --from {shlex.quote(name)} "
        "--out NAME` scores them again."
    )


def expected_calls(records: Iterable[Record]) -> dict[Step, bool]:
    """For every step, whether a call is expected; empty where a prompt has no gold."""
    records = list(records)
    if not have_gold(records):
        return {}
    return {
        Step(record.id, turn): bool(record.expected(turn).calls)
        for record in records
        for turn in record.prompted_turns
    }
