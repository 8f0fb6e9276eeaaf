"""Rollouts of a task -> a pair: the turn at which the best one and the worst one part."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from agentlite.config.settings import PairsSettings
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Candidate, PreferencePair, Record, Score, Side
from agentlite.data.formats import to_record
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import TASKS, EnvironmentTask, stored_tasks
from agentlite.environments.trajectories import (
    LOST,
    TRAJECTORIES,
    Trajectory,
    finished_rollout,
    read_trajectories,
)
from agentlite.rendering import Protocol, mixture_of, prompt_at, render
from agentlite.rendering.template import Template
from agentlite.scoring.rewards import Component
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages.agent import actor_lineage, protocol_model
from agentlite.stages.frame import Figures
from agentlite.stages.pairs.score import (
    CandidateSource,
    ranking_plan,
    refuse_long,
    score_candidates,
)
from agentlite.stages.pairs.stored import rescore_hint
from agentlite.workspace import stage_folder
from agentlite.workspace.model_source import find_model, is_served, load_template
from agentlite.workspace.stage_folder import StageFolder

UNUSABLE = (*LOST, "unwritten")
# why the best and the worst rollout of a task make no pair
SAME_TURNS, OTHER_PROMPTS = "same turns", "other results"


class Rollouts(CandidateSource):
    """The rollouts of a finished stage as candidates, one step per task: each is its turns, one
    after the other. Their weights are those of RolloutScorer.
    """

    what = "rollouts"

    def __init__(
        self, settings: PairsSettings, folder: Path, user_functions: Mapping[str, Component]
    ):
        if settings.judge:
            problem = "ranks answers to the same prompt, and these are whole rollouts."
            fix = "Leave it out; --rewards file.py:function can score them."
            raise UserError(problem, fix, location="--judge")
        self.folder, self.max_length = folder, settings.max_length
        files = [finished_rollout(folder), folder / TASKS]
        self.stored = stage_folder.read(folder)
        planned = self.stored.settings
        self.model, self.protocol = str(planned["model"]), str(planned["protocol"])
        usable = usable_rollouts(folder, user_functions)
        self.by_key = {(rollout.task, rollout.sample): rollout for rollout in usable}
        tasks = stored_tasks(folder)
        self.scorer = RolloutScorer(
            (tasks.get(rollout.task, EnvironmentTask(rollout.task)) for rollout in usable),
            user_functions,
        )
        self.tally = Tally(
            settings.max_failures, folder, rescore_hint(settings.candidates), self.what
        )
        self.settle(settings.weights)
        self.plan = ranking_plan(settings, self.stored, ("model", "protocol", "split"), files)

    def settle(self, changed: Mapping[str, float]) -> dict[str, float]:
        first = next(iter(self.by_key.values()))
        return self.scorer.weights([*first.scores, *first.rewards], changed)

    def read(self) -> Figures:
        return {"rollouts": len(self.by_key)}

    def fill(self, stage: StageFolder) -> None:
        """What the dialogs are written in: those of the gold, or of servers, in the template of
        another model.
        """
        model, behind_servers = self.model, is_served(self.stored.inputs.get("model", ""))
        name = protocol_model(model, behind_servers=behind_servers)
        self.template = load_template(find_model(name, self.folder.parent, self.stored.plan).base)
        [self.only] = mixture_of(self.protocol, self.template).protocols.values()

    def score(self, folder: Path) -> Figures:
        self.candidates = [
            Candidate(
                *(task, 0, self.protocol, self.model, sample),
                text="\n".join(turn.text for turn in rollout.turns),
                ended="turn",
                new_tokens=sum(turn.new_tokens for turn in rollout.turns),
            )
            for (task, sample), rollout in self.by_key.items()
        ]
        self.scores = score_candidates(folder, self.candidates, self._scores, self.tally)
        models = actor_lineage(self.model, self.folder.parent)
        return {"failed_rewards": self.tally.failed, "lineage": models}

    def turn_pairs(
        self, pairs: Iterable[PreferencePair], reasons: Mapping[str, int]
    ) -> tuple[list[tuple[Record, PreferencePair]], dict[str, int]]:
        """Each pair of whole dialogs as the turn at which the two part, with its record; and why
        there is no pair.
        """
        parted, no_pair = [], Counter({name: n for name, n in reasons.items() if n})
        for pair in pairs:
            best, worst = (
                self.by_key[pair.record_id, side.sample] for side in (pair.chosen, pair.rejected)
            )
            try:
                parted.append(_part(pair, best, worst, self.only, self.template, self.max_length))
            except RowError as error:
                is_alike = error.code == "E219"
                no_pair[error.reason if is_alike else f"not written ({error.code})"] += 1
        return parted, dict(no_pair)

    def _scores(self, candidates: Iterable[Candidate]) -> Iterator[Score]:
        for candidate in candidates:
            rollout = self.by_key[candidate.record_id, candidate.sample]
            yield Score(*candidate.key, *self.scorer(rollout))


def usable_rollouts(folder: Path, user_functions: Collection[str]) -> list[Trajectory]:
    """Those whose dialog is whole. With functions of the user's, what others gave before does not
    count.
    """
    tasks = stored_tasks(folder)
    golden = {name for name, task in tasks.items() if task.gold is not None}
    usable = [
        replace(rollout, rewards={}, reward_problem="") if user_functions else rollout
        for rollout in read_trajectories(folder / TRAJECTORIES)
        if rollout.scores or rollout.rewards or user_functions or rollout.task in golden
        if rollout.turns
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
    for chosen, rejected in zip(best.turns, worst.turns, strict=False):
        if chosen.text.strip() != rejected.text.strip():
            break
    else:
        raise RowError("E219", SAME_TURNS)
    answers = [at for at, message in enumerate(best.messages) if message["role"] == "assistant"]
    end = answers[chosen.turn - len(best.turns)]
    tools = best.tools_at(chosen)
    if best.messages[:end] != worst.messages[:end] or tools != worst.tools_at(rejected):
        raise RowError("E219", OTHER_PROMPTS)
    dialog = {"messages": best.messages[: end + 1], "tools": tools}
    record = replace(to_record(dialog, "openai", split=False), split=best.split)
    place = len(record.messages) - 1
    prompt = prompt_at(record, place, render(record, protocol, template), protocol, template)
    sides = [
        Side(turn.text, turn.ended, side.model, side.sample, side.total)
        for turn, side in ((chosen, pair.chosen), (rejected, pair.rejected))
    ]
    refuse_long(prompt, sides, template, max_length)
    return record, PreferencePair(record.id, place, protocol.name, *sides)
