"""The candidates and scores that an earlier pairs or grpo left, and pairs from them."""

import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from agentlite.config.pipeline import STAGES, TRAINERS
from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, CandidateKey, Score, TrainedAnswer, from_row
from agentlite.core.row_files import read_rows, read_structs
from agentlite.scoring.rewards import COMPONENTS, PENALTIES, Component, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, protocols_by_name
from agentlite.scoring.rewards.user_functions import function_files
from agentlite.stages.frame import Work, plan_of
from agentlite.stages.pairs.score import CANDIDATES, RULE, SCORES, make_pairs
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest
from agentlite.workspace.lookup import Plan, Source, StoredStage

SAMPLED_BY = {name: stage.candidates for name, stage in STAGES.items() if stage.candidates}
TAKEN_OVER = ("model", "protocol", "data", "split", "max_length")
# they change how candidates are scored and paired, not the candidates
RANKING = ("weights", "rewards", "judge", "judge_model", *RULE)


class Stored(NamedTuple):
    """What the stage that sampled left."""

    stage: StoredStage
    candidates: list[Candidate]
    scores: dict[CandidateKey, Score]

    @property
    def user_components(self) -> set[str]:
        """The components of the scores that are not built in."""
        names = {name for score in self.scores.values() for name in score.components}
        return names - {*COMPONENTS, *PENALTIES}

    @property
    def written_for(self) -> Source:
        """The model that gave the candidates; behind a server, that of the prep, whose template
        they are written in.
        """
        stage, run = self.stage, self.stage.folder.parent
        if lookup.is_served(stage.inputs.get("model", "")):
            return lookup.model_of_prep(str(stage.settings["data"]), run)
        return lookup.find_model(str(stage.settings["model"]), run, stage.plan)


def from_stored(
    settings: PairsSettings, folder: Path, user_functions: Mapping[str, Component]
) -> tuple[Plan, Work]:
    """What an earlier stage sampled is ranked again, without a model. Scores are made only where
    there are none, or functions of the user are asked for.
    """
    stored = find_stored(folder)
    # what is asked for is scored anew, in the place of what is stored
    weights = settle_weights(settings.weights, {*user_functions} or stored.user_components)
    files = [folder / name for name in (CANDIDATES, SCORES, "rollouts.jsonl")]
    plan = ranking_plan(settings, stored.stage, TAKEN_OVER, files)

    def work() -> Work:
        stage = yield {"candidates": len(stored.candidates)}
        shutil.copyfile(folder / "records.jsonl", stage.folder / "records.jsonl")
        planned, scorer = stored.stage.settings, None
        if user_functions or not stored.scores:
            rows = read_rows(folder / "records.jsonl")
            records = {record.id: record for record in map(from_row, rows)}
            protocols = protocols_by_name(planned["protocol"], stored.written_for.base)
            scorer = Scorer(records, protocols, user_functions)
        lineage = lookup.lineage(str(planned["model"]), folder.parent)
        found, figures = stored.candidates, {"lineage": lineage}
        return make_pairs(stage, settings, weights, found, scorer, figures, scores=stored.scores)

    return plan, work()


def ranking_plan(
    settings: PairsSettings, stored: StoredStage, taken_over: Iterable[str], files: Iterable[Path]
) -> Plan:
    """Of pairs from the candidates in `files`: how they are ranked, and what of the stage that gave
    them is `taken_over`.
    """
    inputs = {path.stem: file_digest(path) for path in files if path.exists()}
    return plan_of(
        "pairs",
        settings,
        inputs | function_files(settings.rewards),
        (*RANKING, "candidates", "max_length"),
        **{key: stored.settings[key] for key in taken_over},
    )


def find_stored(folder: Path) -> Stored:
    """Raises UserError where there are no candidates, or not the ones that were written."""
    stage = lookup.read(folder)
    half = stage.plan and not stage.given_up and not lookup.is_finished(folder)
    if half and (folder / CANDIDATES).exists() and not lookup.holder(folder):
        candidates = list(read_structs(folder / CANDIDATES, Candidate))
        console.notice(f"{folder} is not finished: its {len(candidates)} candidates are taken")
        return Stored(stage, candidates, {})
    file = candidates_file(folder)
    if stage.command in TRAINERS:  # candidates and their scores are in the same rows
        rollouts = list(read_structs(file, TrainedAnswer))
        scores = {row.candidate.key: row.score for row in rollouts}
        return Stored(stage, [row.candidate for row in rollouts], scores)
    scores = {score.key: score for score in read_structs(folder / SCORES, Score)}
    return Stored(stage, list(read_structs(file, Candidate)), scores)


def candidates_file(folder: Path) -> Path:
    """Where a finished stage has its candidates."""
    command = lookup.read(folder).command or "pairs"
    if command not in SAMPLED_BY:
        raise UserError(
            f"is a stage of `agentlite {command}`, which samples nothing.",
            f"Name a {' or a '.join(SAMPLED_BY)}.",
            location=str(folder),
        )
    settings = lookup.finished(folder, command).settings
    if settings.get("preferences") or settings.get("candidates"):
        ranked = settings.get("candidates")
        raise UserError(
            "holds pairs, and no candidates.",
            f"They were ranked from {ranked}: add --from {shlex.quote(ranked)}."
            if ranked
            else "There is nothing to rank: `agentlite dpo` trains on them as they are.",
            location=str(folder),
        )
    return folder / SAMPLED_BY[command]
