"""Candidates -> their scores, appended to scores.jsonl as they come, and the pairs of them."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.config.settings import CPU_MODEL, PairsSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import (
    GOLD,
    Candidate,
    CandidateKey,
    PreferencePair,
    Record,
    Score,
    Side,
    to_row,
)
from agentlite.core.row_files import Appender, read_structs, write_json, write_rows
from agentlite.data.formats import to_record
from agentlite.rendering import Prompt, encode_answer, parse_mixture
from agentlite.rendering.template import Template
from agentlite.scoring.judge.llm_judge import GroupJudge
from agentlite.scoring.preference_pairs import (
    PairRule,
    build_pairs,
    constant_components,
    group_by_step,
    write_pairs,
)
from agentlite.scoring.rewards import JUDGE, settle_weights, total
from agentlite.scoring.rewards.scorer import Scorer, Tally
from agentlite.stages.frame import Figures, Files
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.stage_folder import StageFolder

CANDIDATES, SCORES = "candidates.jsonl", "scores.jsonl"
OUTPUTS = ("records.jsonl", CANDIDATES, SCORES, "pairs.jsonl", "stats.json")
RULE = ("margin", "gold")  # the rule by which pairs are made
CandidateScorer = Scorer | Callable[[Iterable[Candidate]], Iterator[Score]]
# pairs of turns with their records, and for other pairs why there is none -> how many
TurnPairs = tuple[list[tuple[Record, PreferencePair]], Mapping[str, int]]


def make_pairs(
    stage: StageFolder,
    settings: PairsSettings,
    weights: Mapping[str, float],
    candidates: Sequence[Candidate],
    scorer: CandidateScorer | None,
    figures: Figures,
    *,
    scores: Mapping[CandidateKey, Score] = {},
    to_turns: Callable[[Sequence[PreferencePair]], TurnPairs] | None = None,
) -> tuple[Files, Figures]:
    """Scores the candidates, unless all `scores` are to be as they are, and pairs the best of each
    step with the worst. `figures`: what done.json says besides; `to_turns`: makes pairs of whole
    dialogs pairs of the turns at which the two part.
    """
    folder, sampled_by = stage.folder, settings.candidates or stage.folder.name
    tally = Tally(
        settings.max_failures,
        lookup.find_stage(sampled_by, folder.parent),
        "Every candidate is kept. Fix the function, or name another judge; `agentlite pairs --from "
        f"{shlex.quote(sampled_by)} --out NAME` scores them again.",
        "rollouts" if to_turns else "candidates",
    )
    if scorer:
        scores = score_candidates(folder, candidates, scorer, tally)
    count = sum(candidate.model != GOLD for candidate in candidates)
    with console.waiting(f"pairs: ranking {count} candidates"):
        steps = group_by_step(candidates, scores)
        pairs, reasons = build_pairs(steps, weights, PairRule(settings.margin, settings.gold))
    counts = {"steps": len(steps), "candidates": count}
    if to_turns:
        turn_pairs, turn_reasons = to_turns(pairs)
        reasons |= turn_reasons
        records = {record.id: record for record, _ in turn_pairs}
        write_rows(folder / "records.jsonl", map(to_row, records.values()))
        pairs = [pair for _, pair in turn_pairs]
        counts = {"tasks": len(steps), "rollouts": count, "steps": len(steps)}
    write_pairs(folder / "pairs.jsonl", pairs)
    write_json(folder / "stats.json", {"weights": weights, "no_pair": reasons})
    if names := constant_components(steps, weights):
        problem = "the same for all candidates of a step, so that their weights decide nothing"
        console.notice(f"pairs: {problem}: {', '.join(names)}")
    margins = [pair.margin for pair in pairs]
    return [name for name in OUTPUTS if (folder / name).exists()], {
        **counts,
        "pairs": len(pairs),
        "no_pair": {reason: n for reason, n in reasons.items() if n},
        "mean_margin": round(sum(margins) / len(margins), 4) if margins else 0.0,
        "failed_rewards": tally.failed,
        **figures,
    }


def score_candidates(
    folder: Path, candidates: Sequence[Candidate], scorer: CandidateScorer, tally: Tally
) -> dict[CandidateKey, Score]:
    """All scores: those in the folder, and the missing ones, which are appended to them. Scores
    with an error are made again. A judge is asked first. Raises UserError 4 where too many fail.
    """
    path = folder / SCORES
    judge = scorer.user_functions.get(JUDGE) if isinstance(scorer, Scorer) else None
    if isinstance(scorer, Scorer) and isinstance(judge, GroupJudge):
        with console.progress("pairs: judging", len({c.step for c in candidates})) as advance:
            judge.rank(candidates, scorer.records, advance)
    with Appender(path):  # makes it, or cuts a torn line
        pass
    # those with an error leave the file at once: after a kill they are still to be made
    scores = {score.key: score for score in read_structs(path, Score) if not score.error}
    write_rows(path, map(msgspec.structs.asdict, scores.values()))
    missing = [candidate for candidate in candidates if candidate.key not in scores]
    with Appender(path) as file, console.progress("pairs: scoring", len(candidates)) as advance:
        for score in scorer(missing):
            scores[score.key] = score
            file.append(msgspec.structs.asdict(score))
            tally.count(score.error)
            tally.refuse(len(candidates))
            advance(len(scores))
    return scores


def refuse_long(prompt: Prompt, sides: Iterable[Side], template: Template, max_length: int) -> None:
    """Raises RowError E217 for a pair of which prompt and an answer are longer."""
    answers = [encode_answer(side.text, side.ended, template, prompt.ids) for side in sides]
    longest = len(prompt.ids) + max(map(len, answers))
    if longest > max_length:
        raise RowError("E217", f"{longest} tokens, max_length is {max_length}")


def dpo_command(out: str) -> str:
    """The command that learns from the pairs of a stage."""
    options = [] if out == "pairs" else ["--data", out, "--out", f"dpo-{out}"]
    return shlex.join(["agentlite", "dpo", *options])


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
    mixture = parse_mixture(protocol)
    # no model is asked, so that only the native protocol needs a template
    if any(p.native for p in mixture.protocols.values()):
        mixture = mixture.for_template(load_template(CPU_MODEL))
    protocols, name = mixture.protocols, next(iter(mixture.protocols))
    candidate = Candidate(record.id, record.turns[-1], name, "", 0, response, "turn", 0)
    score = next(Scorer({record.id: record}, protocols, {})([candidate]))
    all_weights = settle_weights(weights)
    score_weights = {name: all_weights[name] for name in score.components}
    return ResponseScore(total(score.components, score_weights), score.components, score.feedback)
