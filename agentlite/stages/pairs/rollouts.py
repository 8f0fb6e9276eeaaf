"""Rollouts of a task -> a pair: the turn at which the best one and the worst one part."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from agentlite.config.settings import PairsSettings
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Candidate, PreferencePair, Record, Score, Side
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
from agentlite.rendering import Protocol, encode_answer, mixture_of, prompt_at, render
from agentlite.rendering.template import Template
from agentlite.scoring.rewards import Component
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages.agent import acted_by, written_for
from agentlite.stages.frame import Figures
from agentlite.stages.pairs.score import (
    CandidateSource,
    ScoredCandidates,
    ranking_plan,
    score_candidates,
)
from agentlite.stages.pairs.stored import rescore_hint
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import find_model, is_served, load_template
from agentlite.workspace.run_folder import RunTarget, StageFolder

UNUSABLE = (*LOST, "unwritten")
# why the best and the worst rollout of a task make no pair
SAME_TURNS, OTHER_PROMPTS = "same turns", "other results"
TAKEN_OVER = ("model", "protocol", "split")


class Rollouts(CandidateSource):
    """The rollouts of a stage as candidates, one step per task: each is its turns, one after the
    other. The scores of the environment, and what the user's functions give, weigh 1.
    """

    what = "rollouts"
    advice = "take other --weights, lower --margin, or run `agentlite rollout` with a larger -n"

    def __init__(
        self, settings: PairsSettings, target: RunTarget, user_functions: Mapping[str, Component]
    ):
        self.settings = settings
        self.folder = run_folder.find_stage(settings.candidates, target.run)
        finished_rollout(self.folder)
        self.stored = run_folder.read_plan(self.folder)
        usable = usable_rollouts(self.folder, user_functions)
        self.by_key = {(rollout.task, rollout.sample): rollout for rollout in usable}
        tasks = read_task_rows(self.folder)
        self.scorer = RolloutScorer(
            (tasks.get(rollout.task, TaskRow(rollout.task)) for rollout in usable), user_functions
        )
        if settings.grid:
            return
        self.settle(settings.weights)
        files = [self.folder / TRAJECTORIES, self.folder / TASKS]
        self.plan = ranking_plan(settings, self.stored, TAKEN_OVER, files)

    def settle(self, changed: Mapping[str, float]) -> dict[str, float]:
        first = next(iter(self.by_key.values()))
        return self.scorer.weights([*first.scores, *first.rewards], changed)

    def dry_run(self) -> Figures:
        return {"rollouts": len(self.by_key)}

    def scored(self, stage: StageFolder | None) -> ScoredCandidates:
        settings, plan = self.settings, self.stored
        protocol, model = str(plan.settings["protocol"]), str(plan.settings["model"])
        candidates = []
        for (task, sample), rollout in self.by_key.items():
            text = "\n".join(turn.text for turn in rollout.turns)
            new_tokens = sum(turn.new_tokens for turn in rollout.turns)
            candidates.append(Candidate(task, 0, protocol, model, sample, text, "turn", new_tokens))
        folder = stage.folder if stage else None
        hint = rescore_hint(settings.candidates)
        tally = Tally(settings.max_failures, folder or self.folder, hint, self.what)
        scores = score_candidates(folder, candidates, self._scores, tally)
        figures = {
            "failed_rewards": tally.failed,
            "lineage": acted_by(model, self.folder.parent),
        }
        scored = ScoredCandidates(candidates, scores, self.settle, {}, figures)
        if not stage:
            return scored
        # the dialogs of the gold, or of servers, are written in the template of another model
        behind_servers = is_served(plan.inputs.get("model", ""))
        name = written_for(model, behind_servers=behind_servers)
        template = load_template(find_model(name, self.folder.parent, self.folder).base)
        [[_, only]] = mixture_of(protocol, template).protocols.items()

        def part(pair: PreferencePair) -> tuple[Record, PreferencePair]:
            best, worst = (
                self.by_key[pair.record_id, side.sample] for side in (pair.chosen, pair.rejected)
            )
            return _part(pair, best, worst, only, template, settings.max_length)

        return scored._replace(part=part)

    def _scores(self, candidates: Iterable[Candidate]) -> Iterator[Score]:
        for candidate in candidates:
            rollout = self.by_key[candidate.record_id, candidate.sample]
            yield Score(*candidate.key, *self.scorer(rollout))


def usable_rollouts(folder: Path, user_functions: Collection[str]) -> list[Trajectory]:
    """Those whose dialog is whole. With functions of the user's, what others gave before does not
    count. Raises UserError 2 where none has a score.
    """
    usable = [
        replace(rollout, rewards={}, reward_problem="") if user_functions else rollout
        for rollout in read_trajectories(folder / TRAJECTORIES)
        if (rollout.scores or rollout.rewards or user_functions) and rollout.turns
        if rollout.ended not in UNUSABLE
    ]
    if not usable:
        raise UserError(
            "holds no rollout with a score.",
            "Give the class a get_reward() or get_scores(), and run `agentlite rollout` again; or "
            "add --rewards file.py:function.",
            location=str(folder / TRAJECTORIES),
        )
    return usable


def _part(
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
    return record, PreferencePair(record.id, place, protocol.name, *ends)
