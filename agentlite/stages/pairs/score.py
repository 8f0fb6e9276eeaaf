"""Where candidates come from, and their scores, appended to scores.jsonl as they come."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.config.settings import CPU_MODEL, PairsSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Candidate, CandidateKey, PreferencePair, Record, Score, Side
from agentlite.core.row_files import Appender, read_structs, write_rows
from agentlite.data.formats import to_record
from agentlite.rendering import Prompt, encode_answer
from agentlite.rendering.template import Template
from agentlite.scoring.judge.llm_judge import GroupJudge
from agentlite.scoring.rewards import JUDGE, settle_weights, total
from agentlite.scoring.rewards.scorer import Scorer, Tally, protocols_by_name
from agentlite.scoring.rewards.user_functions import function_files
from agentlite.stages.frame import Figures, plan_of
from agentlite.workspace.digests import file_digest
from agentlite.workspace.stage_folder import Plan, StageFolder, StoredStage

SCORES = "scores.jsonl"
RULE = ("margin", "gold")  # the rule by which pairs are made
# they change how candidates are scored and paired, not the candidates
RANKING = ("weights", "rewards", "judge", "judge_model", *RULE)


AnyScorer = Scorer | Callable[[Iterable[Candidate]], Iterator[Score]]


class FoundCandidates(NamedTuple):
    """Candidates, with the scores that there are; what makes the others, None where all are to be
    as they are; and what else done.json says.
    """

    candidates: Sequence[Candidate]
    scorer: AnyScorer | None
    figures: Figures
    scores: Mapping[CandidateKey, Score] = {}


# Yields what a dry run says; gets the folder, and fills it but for scores and pairs.
Finding = Generator[Figures, StageFolder, FoundCandidates]
# pairs of turns with their records, and for other pairs why there is none -> how many
Parted = tuple[list[tuple[Record, PreferencePair]], Mapping[str, int]]


class CandidateSource(NamedTuple):
    """Gives candidates: a model that is sampled, or an earlier stage. `weights`: every one; `part`:
    makes pairs of whole dialogs pairs of the turns at which the two part.
    """

    plan: Plan
    weights: Mapping[str, float]
    finding: Finding
    part: Callable[[Sequence[PreferencePair]], Parted] | None = None


def ranking_plan(
    settings: PairsSettings, stored: StoredStage, taken_over: Iterable[str], files: Iterable[Path]
) -> Plan:
    """Of pairs from the candidates in `files`: how they are ranked, and what of the stage that gave
    them is `taken_over`.
    """
    taken = {key: stored.settings[key] for key in taken_over}
    inputs = {path.stem: file_digest(path) for path in files if path.exists()}
    inputs |= function_files(settings.rewards)
    own = (*RANKING, "candidates", "max_length")
    return plan_of("pairs", settings, inputs, own, **taken)


def score_candidates(
    folder: Path,
    candidates: Sequence[Candidate],
    scorer: AnyScorer,
    tally: Tally,
) -> dict[CandidateKey, Score]:
    """All scores: those in the folder, and the missing ones, which are appended to them. Scores
    with an error are made again. A judge is asked first. Raises UserError 4 where too many fail.
    """
    path = folder / SCORES
    judge = scorer.user_functions.get(JUDGE) if isinstance(scorer, Scorer) else None
    if isinstance(scorer, Scorer) and isinstance(judge, GroupJudge):
        with console.progress("pairs: judging", len({one.step for one in candidates})) as advance:
            judge.rank(candidates, scorer.records, advance)
    with Appender(path):  # makes it, or cuts a torn line
        pass
    known = {score.key: score for score in read_structs(path, Score) if not score.error}
    write_rows(path, map(msgspec.structs.asdict, known.values()))
    left = [candidate for candidate in candidates if candidate.key not in known]
    with Appender(path) as file, console.progress("pairs: scoring", len(candidates)) as advance:
        for score in scorer(left):
            known[score.key] = score
            file.append(msgspec.structs.asdict(score))
            tally.count(score.error)
            tally.refuse(len(candidates))
            advance(len(known))
    return known


def refuse_long(prompt: Prompt, sides: Iterable[Side], template: Template, max_length: int) -> None:
    """Raises RowError E217 for a pair of which prompt and an answer are longer."""
    answers = [encode_answer(side.text, side.ended, template, prompt.ids) for side in sides]
    longest = len(prompt.ids) + max(map(len, answers))
    if longest > max_length:
        raise RowError("E217", f"{longest} tokens, max_length is {max_length}")


class ResponseScore(NamedTuple):
    """The weighted total, every component and penalty without its weight, and the first fault."""

    total: float
    components: dict[str, float]
    feedback: str


def score_response(
    response: str, row: Mapping[str, Any], protocol: str, weights: Mapping[str, float]
) -> ResponseScore:
    """Raises UserError for a row that cannot be read or has no step, and for wrong names."""
    try:
        record = to_record(dict(row))
    except RowError as error:
        fix = error.hint or "`agentlite prep --formats` shows a row of each format."
        raise UserError(f"{error.code} {error.reason}.", fix, location="row") from error
    if not record.turns:
        fix = "End the dialog with the right answer, or give the expected calls as `gold`."
        raise UserError("has no step to answer at.", fix, location="row")
    protocols = protocols_by_name(protocol, CPU_MODEL)
    name = next(iter(protocols))
    candidate = Candidate(record.id, record.turns[-1], name, "", 0, response, "turn", 0)
    scored = next(Scorer({record.id: record}, protocols, {})([candidate]))
    settled = settle_weights(weights)
    known = {name: settled[name] for name in scored.components}
    return ResponseScore(total(scored.components, known), scored.components, scored.feedback)
