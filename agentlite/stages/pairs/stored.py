"""What an earlier stage left, single answers or whole rollouts, as candidates again."""

import shlex
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from agentlite.config.pipeline import STAGES, TRAINERS
from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import (
    Candidate,
    CandidateKey,
    PreferencePair,
    Record,
    Score,
    Side,
    TrainedAnswer,
    from_row,
)
from agentlite.core.row_files import read_rows, read_structs
from agentlite.data.formats import to_record
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import TASKS, EnvironmentTask, stored_tasks
from agentlite.environments.trajectories import (
    LOST,
    TRAJECTORIES,
    Trajectory,
    finished_trajectories,
    read_trajectories,
)
from agentlite.rendering import Protocol, mixture_of, prompt_at, render
from agentlite.rendering.template import Template
from agentlite.scoring.rewards import COMPONENTS, PENALTIES, Component, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, function_files
from agentlite.stages.frame import Work, plan_of
from agentlite.stages.pairs.score import CANDIDATES, RULE, SCORES, make_pairs, refuse_long
from agentlite.stages.rollout import actor_lineage, protocol_model
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest, load_template
from agentlite.workspace.lookup import Plan, StoredStage

CANDIDATE_FILES = {name: stage.candidates for name, stage in STAGES.items() if stage.candidates}
SAMPLING = ("model", "protocol", "data", "split", "max_length")  # of the stage that sampled
# they change how candidates are scored and paired, not the candidates
RANKING = ("weights", "rewards", "judge", "judge_model", *RULE)


class StoredCandidates(NamedTuple):
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
    def protocols(self) -> Mapping[str, Protocol]:
        """The protocols of the candidates, as the template of their model has them; behind a
        server, as that of the prep, in which they are written.
        """
        stage, run = self.stage, self.stage.folder.parent
        if lookup.is_served(stage.inputs.get("model", "")):
            model = lookup.model_of_prep(str(stage.settings["data"]), run)
        else:
            model = lookup.find_model(str(stage.settings["model"]), run, stage.plan)
        return mixture_of(str(stage.settings["protocol"]), load_template(model.base)).protocols


def from_stored(
    settings: PairsSettings, folder: Path, user_functions: Mapping[str, Component]
) -> tuple[Plan, Work]:
    """What an earlier stage sampled is ranked again, without a model. Scores are made only where
    there are none, or functions of the user are asked for.
    """
    stored = read_stored(folder)
    # what is asked for is scored anew, in the place of what is stored
    weights = settle_weights(settings.weights, {*user_functions} or stored.user_components)
    files = [folder / name for name in (CANDIDATES, SCORES, "rollouts.jsonl")]
    plan = ranking_plan(settings, stored.stage, SAMPLING, files)

    def work() -> Work:
        stage = yield {"candidates": len(stored.candidates)}
        shutil.copyfile(folder / "records.jsonl", stage.folder / "records.jsonl")
        scorer = None
        if user_functions or not stored.scores:
            rows = read_rows(folder / "records.jsonl")
            records = {record.id: record for record in map(from_row, rows)}
            scorer = Scorer(records, stored.protocols, user_functions)
        figures = {"lineage": lookup.lineage(str(stored.stage.settings["model"]), folder.parent)}
        return make_pairs(
            stage, settings, weights, stored.candidates, scorer, figures, scores=stored.scores
        )

    return plan, work()


def ranking_plan(
    settings: PairsSettings, stage: StoredStage, sampling: Iterable[str], files: Iterable[Path]
) -> Plan:
    """The plan of pairs from the candidates in `files`: how they are ranked, and how they were
    sampled. `stage`: the one that gave them; `sampling`: the keys of its settings that stay.
    """
    inputs = {path.stem: file_digest(path) for path in files if path.exists()}
    return plan_of(
        "pairs",
        settings,
        inputs | function_files(settings.rewards),
        (*RANKING, "candidates", "max_length"),
        **{key: stage.settings[key] for key in sampling},
    )


def read_stored(folder: Path) -> StoredCandidates:
    """The candidates of a stage. Raises UserError where it has none, or they are changed."""
    stage = lookup.read_stage(folder)
    # begun and not finished, and nobody is at it now
    is_unfinished = stage.plan and not stage.given_up and not lookup.is_finished(folder)
    if is_unfinished and (folder / CANDIDATES).exists() and not lookup.holder(folder):
        candidates = list(read_structs(folder / CANDIDATES, Candidate))
        console.notice(f"{folder} is not finished: its {len(candidates)} candidates are taken")
        return StoredCandidates(stage, candidates, {})
    file = candidates_file(folder)
    if stage.command in TRAINERS:  # candidates and their scores are in the same rows
        rollouts = list(read_structs(file, TrainedAnswer))
        scores = {row.candidate.key: row.score for row in rollouts}
        return StoredCandidates(stage, [row.candidate for row in rollouts], scores)
    scores = {score.key: score for score in read_structs(folder / SCORES, Score)}
    return StoredCandidates(stage, list(read_structs(file, Candidate)), scores)


def candidates_file(folder: Path) -> Path:
    """Where a finished stage has its candidates."""
    command = lookup.read_stage(folder).command or "pairs"
    if command not in CANDIDATE_FILES:
        raise UserError(
            f"is a stage of `agentlite {command}`, which samples nothing.",
            f"Name a {' or a '.join(CANDIDATE_FILES)}.",
            location=str(folder),
        )
    settings = lookup.finished_stage(folder, command).settings
    if settings.get("preferences") or settings.get("candidates"):
        sampled_by = settings.get("candidates")
        raise UserError(
            "holds pairs, and no candidates.",
            f"They were ranked from {sampled_by}: add --from {shlex.quote(sampled_by)}."
            if sampled_by
            else "There is nothing to rank: `agentlite dpo` trains on them as they are.",
            location=str(folder),
        )
    return folder / CANDIDATE_FILES[command]


# --- Rollouts of a task: a pair is the turn at which the best one and the worst one part ---


def from_rollouts(
    settings: PairsSettings, folder: Path, user_functions: Mapping[str, Component]
) -> tuple[Plan, Work]:
    """The rollouts of a finished stage as candidates, one step per task: each is its turns, one
    after the other. Their weights are those of RolloutScorer.
    """
    if settings.judge:
        raise UserError(
            "ranks answers to the same prompt, and these are whole rollouts.",
            "Leave it out; --rewards file.py:function can score them.",
            location="--judge",
        )
    files = [finished_trajectories(folder), folder / TASKS]
    rollout_stage = lookup.read_stage(folder)
    model, protocol = (str(rollout_stage.settings[key]) for key in ("model", "protocol"))
    rollouts = {(r.task, r.sample): r for r in usable_rollouts(folder, user_functions)}
    tasks = stored_tasks(folder)
    rollout_tasks = (tasks.get(r.task, EnvironmentTask(r.task)) for r in rollouts.values())
    scorer = RolloutScorer(rollout_tasks, user_functions)
    first_rollout = next(iter(rollouts.values()))
    weights = scorer.weights([*first_rollout.scores, *first_rollout.rewards], settings.weights)

    def score(candidates: Iterable[Candidate]) -> Iterator[Score]:
        for candidate in candidates:
            yield Score(*candidate.key, *scorer(rollouts[candidate.record_id, candidate.sample]))

    def work() -> Work:
        stage = yield {"rollouts": len(rollouts)}
        candidates = [
            Candidate(
                *(rollout.task, 0, protocol, model, rollout.sample),
                text="\n".join(turn.text for turn in rollout.turns),
                ended="turn",
                new_tokens=sum(turn.new_tokens for turn in rollout.turns),
            )
            for rollout in rollouts.values()
        ]
        figures = {"lineage": actor_lineage(model, folder.parent)}
        to_turns = partial(_turn_pairs, rollouts, rollout_stage, settings.max_length)
        return make_pairs(stage, settings, weights, candidates, score, figures, to_turns=to_turns)

    return ranking_plan(settings, rollout_stage, ("model", "protocol", "split"), files), work()


def _turn_pairs(
    rollouts: Mapping[tuple[str, int], Trajectory],
    stage: StoredStage,
    max_length: int,
    pairs: Sequence[PreferencePair],
) -> tuple[list[tuple[Record, PreferencePair]], Counter[str]]:
    """Each pair of whole dialogs as the turn at which the two part, with its record."""
    # what the dialogs are written in: those of the gold, or of servers, in the template of another
    # model
    model = str(stage.settings["model"])
    name = protocol_model(model, behind_servers=lookup.is_served(stage.inputs.get("model", "")))
    template = load_template(lookup.find_model(name, stage.folder.parent, stage.plan).base)
    [protocol] = mixture_of(str(stage.settings["protocol"]), template).protocols.values()
    turn_pairs, no_pair = list[tuple[Record, PreferencePair]](), Counter[str]()
    for pair in pairs:
        best = rollouts[pair.record_id, pair.chosen.sample]
        worst = rollouts[pair.record_id, pair.rejected.sample]
        try:
            turn_pairs.append(_turn_pair(pair, best, worst, protocol, template, max_length))
        except RowError as error:
            no_pair[error.reason if error.code == "E219" else f"not written ({error.code})"] += 1
    return turn_pairs, no_pair


def usable_rollouts(folder: Path, user_functions: Collection[str]) -> list[Trajectory]:
    """The rollouts whose dialog is whole. With functions of the user's, what others gave before
    does not count.
    """
    gold_tasks = {name for name, task in stored_tasks(folder).items() if task.gold is not None}
    usable = [
        structs.replace(rollout, rewards={}, reward_problem="") if user_functions else rollout
        for rollout in read_trajectories(folder / TRAJECTORIES)
        if rollout.scores or rollout.rewards or user_functions or rollout.task in gold_tasks
        if rollout.turns
        if rollout.ended not in (*LOST, "unwritten")
    ]
    if not usable:
        raise UserError(
            "holds no rollout with a score.",
            "Give the class a get_reward() or get_scores(), and run `agentlite rollout` again; or "
            "add --rewards file.py:function.",
            location=str(folder / TRAJECTORIES),
        )
    return usable


def _turn_pair(
    pair: PreferencePair,
    best: Trajectory,
    worst: Trajectory,
    protocol: Protocol,
    template: Template,
    max_length: int,
) -> tuple[Record, PreferencePair]:
    """The dialog up to the first turn that differs, which is the chosen one's, and what the model
    said there, the totals being those of the whole rollouts. Raises RowError: E219 where no turn
    differs or the dialogs before it do, E217 for a pair that is too long, and those of rendering.
    """
    for chosen, rejected in zip(best.turns, worst.turns, strict=False):
        if chosen.text.strip() != rejected.text.strip():
            break
    else:
        raise RowError("E219", "same turns")
    answers = [i for i, message in enumerate(best.messages) if message["role"] == "assistant"]
    # The dialog may begin with answers that nobody sampled, so turns are counted from its end: the
    # first of three is answers[-3].
    end = answers[chosen.turn - len(best.turns)]
    tools = best.tools_at(chosen)
    if best.messages[:end] != worst.messages[:end] or tools != worst.tools_at(rejected):
        raise RowError("E219", "other results")
    dialog = {"messages": best.messages[: end + 1], "tools": tools}
    record = structs.replace(to_record(dialog, "openai", split=False), split=best.split)
    index = len(record.messages) - 1
    prompt = prompt_at(record, index, render(record, protocol, template), protocol, template)
    sides = [
        Side(turn.text, turn.ended, side.model, side.sample, side.total)
        for turn, side in ((chosen, pair.chosen), (rejected, pair.rejected))
    ]
    refuse_long(prompt, sides, template, max_length)
    return record, PreferencePair(record.id, index, protocol.name, *sides)
