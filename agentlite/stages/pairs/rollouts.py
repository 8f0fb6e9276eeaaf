"""Rollouts of a task -> a pair: the turn at which the best one and the worst one part."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentlite.config import resolve
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
    to_row,
)
from agentlite.core.row_files import write_json, write_rows
from agentlite.data.formats import to_record
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import TASKS, TaskRow, read_task_rows
from agentlite.environments.trajectories import (
    LOST,
    TRAJECTORIES,
    Trajectory,
    finished_rollout,
    read_trajectories,
)
from agentlite.rendering import Protocol, encode_answer, prompt_at, render, settled
from agentlite.rendering.template import Template
from agentlite.scoring.grid_file import read_weightings
from agentlite.scoring.preference_pairs import build_pairs, group, write_pairs
from agentlite.scoring.rewards import Component
from agentlite.scoring.rewards.scorer import Tally
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.scoring.weight_sweep import compare_weightings, report_components, sentences
from agentlite.stages.acting import acted_by, written_for
from agentlite.stages.pairs.next_command import ROLLOUTS, with_next
from agentlite.stages.pairs.rank import RULE, pair_rule
from agentlite.stages.pairs.score import rescore_hint, score_candidates
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import find_model, is_served, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

UNUSABLE = (*LOST, "unwritten")
# why the best and the worst rollout of a task make no pair
SAME_TURNS, OTHER_PROMPTS, UNREADABLE = "same turns", "other results", "not written"


class StoredRollouts(NamedTuple):
    """The rollouts of a stage as candidates, one step per task; and what gives their scores."""

    folder: Path
    plan: Plan
    by_key: dict[tuple[str, int], Trajectory]
    candidates: list[Candidate]
    scorer: RolloutScorer

    @property
    def names(self) -> list[str]:
        """The scores that weigh 1: those of the environment, and those of the user's functions."""
        first = next(iter(self.by_key.values()))
        return [*first.scores, *first.rewards]

    def settle(self, changed: Mapping[str, float], _: object = ()) -> dict[str, float]:
        """Raises UserError 2."""
        return self.scorer.weights(self.names, changed)

    def scores(self, candidates: Iterable[Candidate]) -> Iterator[Score]:
        for candidate in candidates:
            components, feedback, error = self.scorer(
                self.by_key[candidate.record_id, candidate.sample]
            )
            yield Score(*candidate.key, components, feedback, error)


class PartedPair(NamedTuple):
    """The dialog up to the turn at which two rollouts part, which is the chosen one's."""

    record: Record
    pair: PreferencePair


def pair_rollouts(settings: PairsSettings, target: RunTarget) -> Result:
    """Ranks the rollouts of each task by the weighted sum of their components. Raises UserError 2,
    3 or 4.
    """
    folder = run_folder.find_stage(settings.candidates, target.run)
    finished_rollout(folder)
    with UserFunctions(
        settings.rewards, settings.reward_seconds, settings.reward_memory
    ) as user_functions:
        rollouts = _read(folder, user_functions)
        if settings.grid:
            return _compare_grid(settings, rollouts)
        weights = rollouts.settle(settings.weights)
        kept = resolve.plain_settings(settings)
        ranking = {
            key: kept[key] for key in ("weights", "rewards", *RULE, "candidates", "max_length")
        }
        of_rollout = {key: rollouts.plan.settings[key] for key in ("model", "protocol", "split")}
        files = [folder / TRAJECTORIES, folder / TASKS]
        inputs = {path.stem: file_digest(path) for path in files if path.exists()}
        plan = Plan(
            "pairs",
            {**ranking, **of_rollout},
            {**inputs, **function_files(settings.rewards)},
            run_folder.versions(),
        )
        if target.dry_run:
            status = "new" if target.force else run_folder.compare(target.folder, plan)
            figures = {"folder": status, "rollouts": len(rollouts.candidates)}
            return Result("pairs", "dry run", str(target.folder), figures, [], 0.0)
        with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
            if stage.status != "done":
                outputs = ["records.jsonl", "scores.jsonl", "pairs.jsonl", "stats.json"]
                stage.finish(outputs, _rank(settings, target, stage.folder, rollouts, weights))
            return with_next(stage, target, ROLLOUTS)


def _read(folder: Path, user_functions: Mapping[str, Component]) -> StoredRollouts:
    """Rollouts whose dialog is not whole are left out. With functions of the user's, what others
    gave before does not count. Raises UserError 2 where no rollout with a score is left.
    """
    plan = run_folder.read_plan(folder)
    protocol, model = str(plan.settings["protocol"]), str(plan.settings["model"])
    usable = [
        replace(one, rewards={}, reward_problem="") if user_functions else one
        for one in read_trajectories(folder / TRAJECTORIES)
        if (one.scores or one.rewards or user_functions) and one.turns
        if one.ended not in UNUSABLE
    ]
    if not usable:
        raise UserError(
            "holds no rollout with a score.",
            "Give the class a get_reward() or get_scores(), and run `agentlite rollout` again; or "
            "add --rewards file.py:function.",
            location=str(folder / TRAJECTORIES),
        )
    candidates = []
    for one in usable:
        text = "\n".join(turn.text for turn in one.turns)
        new = sum(turn.new_tokens for turn in one.turns)
        candidates.append(Candidate(one.task, 0, protocol, model, one.sample, text, "turn", new))
    tasks = read_task_rows(folder)
    scorer = RolloutScorer(
        (tasks.get(one.task, TaskRow(one.task)) for one in usable), user_functions
    )
    by_key = {(one.task, one.sample): one for one in usable}
    return StoredRollouts(folder, plan, by_key, candidates, scorer)


def _rank(
    settings: PairsSettings,
    target: RunTarget,
    folder: Path,
    rollouts: StoredRollouts,
    weights: Mapping[str, float],
) -> dict[str, Any]:
    """Writes the files. Returns the key figures."""
    tally = Tally(settings.max_failures, folder, rescore_hint(settings.candidates), "rollouts")
    scores = score_candidates(folder, rollouts.candidates, rollouts.scores, tally)
    groups = group(rollouts.candidates, scores)
    pairing = build_pairs(groups, weights, pair_rule(settings))
    template = _template(rollouts)
    protocol = settled(str(rollouts.plan.settings["protocol"]), template)
    part = partial(_parted, template=template, max_length=settings.max_length)
    parted, reasons = [], Counter({name: n for name, n in pairing.reasons.items() if n})
    for pair in pairing.pairs:
        best, worst = (
            rollouts.by_key[pair.record_id, side.sample] for side in (pair.chosen, pair.rejected)
        )
        try:
            [[_, only]] = protocol.protocols.items()
            parted.append(part(pair, best, worst, protocol=only))
        except RowError as error:
            reasons[error.reason if error.code == "E219" else f"{UNREADABLE} ({error.code})"] += 1
    report = report_components(groups, weights, {})
    write_rows(
        folder / "records.jsonl",
        map(to_row, {one.record.id: one.record for one in parted}.values()),
    )
    write_pairs(folder / "pairs.jsonl", [one.pair for one in parted])
    write_json(
        folder / "stats.json",
        {"weights": weights, "no_pair": dict(reasons), "components": report},
    )
    for sentence in sentences(report):
        console.notice(f"pairs: {sentence}")
    margins = [one.pair.margin for one in parted]
    return {
        "tasks": len(groups),
        "rollouts": len(rollouts.candidates),
        "steps": len(groups),
        "pairs": len(parted),
        "no_pair": dict(reasons),
        "mean_margin": round(sum(margins) / len(margins), 4) if margins else 0.0,
        "failed_rewards": tally.failed,
        "lineage": acted_by(str(rollouts.plan.settings["model"]), rollouts.folder.parent),
    }


def _template(rollouts: StoredRollouts) -> Template:
    """That of the model, or that in which the dialogs of the gold, or of servers, were written."""
    plan, folder = rollouts.plan, rollouts.folder
    behind_servers = is_served(plan.inputs.get("model", ""))
    name = written_for(str(plan.settings["model"]), behind_servers=behind_servers)
    return load_template(find_model(name, folder.parent, folder).base)


def _parted(
    pair: PreferencePair,
    best: Trajectory,
    worst: Trajectory,
    *,
    protocol: Protocol,
    template: Template,
    max_length: int,
) -> PartedPair:
    """What the model said at the first turn that differs, the totals being those of the whole
    rollouts. Raises RowError: E219 where no turn differs or the dialogs before it do, E217 for a
    pair that is too long, and those of rendering.
    """
    both = zip(best.turns, worst.turns, strict=False)
    turns = next(
        ((one, other) for one, other in both if one.text.strip() != other.text.strip()), None
    )
    if turns is None:
        raise RowError("E219", SAME_TURNS)
    chosen, rejected = turns
    places = [at for at, one in enumerate(best.messages) if one["role"] == "assistant"]
    end = places[chosen.turn - len(best.turns)]
    same_tools = best.tools_at(chosen) == worst.tools_at(rejected)
    if best.messages[:end] != worst.messages[:end] or not same_tools:
        raise RowError("E219", OTHER_PROMPTS)
    dialog = {"messages": best.messages[: end + 1], "tools": best.tools_at(chosen)}
    record = to_record(dialog, "openai", split=False)
    record = replace(record, split=best.split)
    place = len(record.messages) - 1
    prompt = prompt_at(record, place, render(record, protocol, template), protocol, template)
    longest = len(prompt.ids) + max(
        len(encode_answer(turn.text, turn.ended, template, prompt.ids))
        for turn in (chosen, rejected)
    )
    if longest > max_length:
        raise RowError("E217", f"{longest} tokens, max_length is {max_length}")
    ends = [
        Side(turn.text, turn.ended, side.model, side.sample, side.total)
        for turn, side in ((chosen, pair.chosen), (rejected, pair.rejected))
    ]
    return PartedPair(record, PreferencePair(record.id, place, protocol.name, *ends))


def _compare_grid(settings: PairsSettings, rollouts: StoredRollouts) -> Result:
    """Many weightings side by side; nothing is written."""
    weightings = read_weightings(settings.grid, set(), rollouts.settle)
    tally = Tally(
        settings.max_failures, rollouts.folder, rescore_hint(settings.candidates), "rollouts"
    )
    scores: dict[CandidateKey, Score] = {}
    for score in rollouts.scores(rollouts.candidates):
        scores[score.key] = score
        tally.count(score.error)
        tally.refuse(len(rollouts.candidates))
    groups = group(rollouts.candidates, scores)
    rows = compare_weightings(groups, weightings, pair_rule(settings))
    report = report_components(groups, next(iter(weightings.values())), {})
    figures = {
        "weightings": msgspec.to_builtins(rows),
        "components": msgspec.to_builtins(report),
        "sentences": sentences(report),
        "failed_rewards": tally.failed,
    }
    return Result("pairs", "compared", str(rollouts.folder), figures, [], 0.0)
