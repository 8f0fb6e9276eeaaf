"""The candidates and scores that an earlier pairs or grpo left."""

import shlex
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentlite.config.pipeline import STAGES, TRAINERS
from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, CandidateKey, Score
from agentlite.scoring.preference_pairs import read_candidates, read_rollouts, read_scores
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.run_folder import Plan

# written when every candidate is there: from then on they can be ranked, whatever happens
SAMPLED = "sampled.json"
SAMPLED_BY = {name: stage.candidates for name, stage in STAGES.items() if stage.candidates}


class Stored(NamedTuple):
    """The plan of the stage is that of the sampling."""

    folder: Path
    candidates: list[Candidate]
    scores: dict[CandidateKey, Score]
    plan: Plan


def is_sampled(folder: Path) -> bool:
    """Whether every candidate is there. A folder that was being emptied has lost its plan first."""
    return (folder / SAMPLED).exists() and run_folder.is_stage(folder)


def find_stored(name: str, run: Path) -> Stored:
    """Raises UserError where there are no candidates, or not the ones that were written."""
    folder = run_folder.find_stage(name, run)
    if is_sampled(folder) and not run_folder.is_finished(folder):
        # sampled whole, though not scored: its candidates are as good as any
        if changed := _changed(folder):
            raise UserError(
                "has changed since it was sampled.",
                "Run pairs again with --force.",
                location=str(folder / f"{changed[0]}.jsonl"),
            )
        candidates = list(read_candidates(folder / "candidates.jsonl"))
        return Stored(folder, candidates, {}, run_folder.read_plan(folder))
    file, plan = candidates_file(folder), run_folder.read_plan(folder)
    if plan.command in TRAINERS:  # candidates and their scores are in the same rows
        rollouts = list(read_rollouts(file))
        return Stored(
            folder,
            [row.candidate for row in rollouts],
            {row.candidate.key: row.score for row in rollouts},
            plan,
        )
    scores = {score.key: score for score in read_scores(folder / "scores.jsonl")}
    return Stored(folder, list(read_candidates(file)), scores, plan)


def candidates_file(folder: Path) -> Path:
    """Where a finished stage has its candidates. Raises UserError 2 or 3 where there are none, or
    not the ones that were written.
    """
    command = run_folder.read_plan(folder).command if run_folder.is_stage(folder) else "pairs"
    if command not in SAMPLED_BY:
        raise UserError(
            f"is a stage of `agentlite {command}`, which samples nothing.",
            f"Name a {' or a '.join(SAMPLED_BY)}.",
            location=str(folder),
        )
    run_folder.finished(folder, command)
    plan = run_folder.read_plan(folder)
    if plan.settings.get("preferences"):
        raise UserError(
            "holds recorded preferences, and no candidates.",
            "There is nothing to rank: `agentlite dpo` trains on them as they are.",
            location=str(folder),
        )
    if plan.settings.get("candidates"):
        raise UserError(
            "holds pairs, and no candidates.",
            f"They were ranked from {plan.settings['candidates']}: add "
            f"--from {shlex.quote(plan.settings['candidates'])}.",
            location=str(folder),
        )
    return folder / SAMPLED_BY[command]


def set_aside_changed(folder: Path) -> None:
    """Candidates that are not as they were sampled are sampled again."""
    if (folder / SAMPLED).exists() and (changed := _changed(folder)):
        (folder / SAMPLED).unlink()
        if {"candidates", SAMPLED} & {*changed}:
            run_folder.set_aside(folder / "candidates.jsonl")


def _changed(folder: Path) -> list[str]:
    try:
        digests = msgspec.json.decode((folder / SAMPLED).read_bytes(), type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return [SAMPLED]
    return [
        name
        for name, digest in digests.items()
        if not (path := folder / f"{name}.jsonl").exists() or file_digest(path) != digest
    ]
