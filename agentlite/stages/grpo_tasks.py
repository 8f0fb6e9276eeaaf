"""GRPO on live tasks: trajectories.jsonl, with every rollout of the training as rows to learn."""

import random
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import msgspec

from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import REJECTS, UserError, exceeds_share
from agentlite.core.row_files import Appender
from agentlite.engine import grpo
from agentlite.engine.decoding import decoding_of
from agentlite.engine.sampler import rollout_answers
from agentlite.environments.rollout import GOLD, RolloutAnswer, RolloutPrompt, roll
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.tasks import TASKS, write_tasks
from agentlite.environments.trajectories import (
    LOST,
    NOT_SAMPLED,
    TRAJECTORIES,
    RolloutKey,
    Trajectory,
    read_trajectories,
)
from agentlite.environments.world import World, WorldError
from agentlite.scoring.rewards import Component, total
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages.frame import Figures
from agentlite.stages.grpo_prompts import PromptSchedule, restore_rows
from agentlite.stages.rollout import HOW_TO_GO_ON, Agent, lost_error, make_agent, rollout_settings
from agentlite.workspace.lookup import RunTarget, find_learner

TASKS_TRIED = 5  # tasks whose world is built to learn what it scores, if those before it cannot be
OTHER_REWARDS = (
    "The same command goes on from the last checkpoint; a changed file of rewards needs --force, "
    "or --out NAME."
)


class TaskSampling:
    """The tasks of an environment, in whose worlds the model acts: as PromptSampling. Entered, it
    holds trajectories.jsonl open, with every rollout of the training: `step_size` a step.
    """

    unit, sample_unit, is_live = "tasks", "rollouts", True
    outputs, keep = (TASKS, TRAJECTORIES), ("trajectories*.jsonl",)

    def __init__(self, settings: GrpoSettings, target: RunTarget):
        if settings.model == GOLD:
            fix = "Name a model: --model smollm2-135m, or an earlier stage."
            raise UserError("the gold cannot learn.", fix, location="--model gold")
        agent = make_agent(
            rollout_settings(settings), find_learner("grpo", settings, target), target.run
        )
        self.settings, self.folder, self.agent = settings, target.folder, agent
        self.step_size = settings.batch_size * settings.gradient_accumulation  # rollouts of a step
        self.source, self.protocol = agent.source, agent.setup.protocol.name
        self.inputs = {name: value for name, value in agent.inputs.items() if name != "model"}
        self.count = len(agent.tasks)
        tasks = f" --tasks {shlex.quote(settings.tasks)}" if settings.tasks else ""
        self.eval_options = f" --env {shlex.quote(settings.env)}{tasks}"
        self.halt: list[Exception] = []
        self.decoding = decoding_of(settings).under(agent.setup.template)

    def read(self, functions: Mapping[str, Component]) -> tuple[Figures, int]:
        """Raises UserError for weights that do not fit the scores, or without a world."""
        self.scorer = RolloutScorer(self.agent.tasks, functions)
        names = _score_names(self.settings, self.agent, self.scorer.has_gold)
        self.weights = self.scorer.weights(names, self.settings.weights)
        return {}, self.settings.max_length

    def __enter__(self) -> Self:
        write_tasks(self.folder, self.agent.tasks)
        path = self.folder / TRAJECTORIES
        rows = restore_rows(
            path, read_trajectories, lambda row, steps: row.sample < steps * self.step_size
        )
        self.file = Appender(path)
        self.endings: Counter[str] = Counter()
        self.tally = Tally(self.settings.max_failures, self.folder, OTHER_REWARDS, "rollouts")
        self.schedule = PromptSchedule(self.settings, [task.id for task in self.agent.tasks])
        self.lost: list[Trajectory] = []
        # what the user's functions gave stands in the log: none is asked again
        self._count(rows, [*map(self._reward, rows)])
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def figures(self) -> Figures:
        failed = {"failed_rewards": self.tally.failed} if self.settings.rewards else {}
        return {"ended": dict(self.endings), **failed}

    def sample(self, draw: grpo.Draw, indices: Sequence[int], step: int) -> list[grpo.LearnedRow]:
        """A group of rollouts for each of the step's tasks. Where too many worlds were lost, or too
        many rewards failed, the step is the last one. Raises UserError where no model has said
        anything.
        """
        # Rollouts are numbered on from step to step: with 4 a step, in groups of 2, step 3 has 12
        # and 13 of its first task and 14 and 15 of its second; `number // 4` is the step.
        setup, group_size = self.agent.setup, self.settings.group_size
        waiting = [
            (self.agent.tasks[index], step * self.step_size + group * group_size + number)
            for group, index in enumerate(self.schedule.select(indices, step))
            for number in range(group_size)
        ]
        # they are needed for this step alone: trajectories.jsonl does without them
        logprobs: dict[tuple[RolloutKey, int], Sequence[float]] = {}

        def answer_prompts(prompts: Sequence[RolloutPrompt]) -> Iterator[RolloutAnswer]:
            for answer in rollout_answers(draw, prompts, setup.protocol, self.decoding):
                prompt = prompts[answer.prompt]
                logprobs[prompt.key, prompt.turn] = answer.log_probabilities
                yield answer

        by_key = {r.key: r for r in roll(setup, waiting, answer_prompts, self.step_size)}
        rollouts = [
            self.scorer.add_rewards(by_key[RolloutKey(task.id, number)]) for task, number in waiting
        ]
        for rollout in rollouts:
            self.file.append(msgspec.to_builtins(rollout))
        rewards = [*map(self._reward, rollouts)]
        self._count(rollouts, rewards)
        rows = [
            self._row(rollout, reward, logprobs)
            for rollout, reward in zip(rollouts, rewards, strict=True)
        ]
        if not any(any(row.mask) for row in rows):
            too_long = "its first prompt, with its tools, is longer than --max-length"
            raise UserError(
                "not one rollout of a step has a turn; the first: "
                f"{rollouts[0].problem or too_long}.",
                HOW_TO_GO_ON,
                location=self.settings.env,
                exit_code=REJECTS,
            )
        return _align_prompts(rows)

    def _reward(self, rollout: Trajectory) -> grpo.Reward:
        """All components that have a weight, 0 where a world does not give one."""
        components, _, error = self.scorer(rollout)
        if error or not components:
            return None
        return {name: components.get(name, 0.0) for name in self.weights}

    def _row(
        self,
        rollout: Trajectory,
        reward: grpo.Reward,
        logprobs: Mapping[tuple[RolloutKey, int], Sequence[float]],
    ) -> grpo.LearnedRow:
        """A rollout is a row. Of one that is several, since the template rewrites its history, one
        is drawn, so that a step has as many rows as planned.
        """
        if not rollout.turns:
            template = self.agent.setup.template
            end = template.token_id(template.turn_end)  # stands there, and is not learned
            return grpo.LearnedRow([end], [end], [0], [0.0], reward)
        rng = random.Random(f"{self.settings.seed} {rollout.task} {rollout.sample}")
        row = rng.choice(rollout.token_rows())
        # those of a turn stand in the order of its ids; ids that were only read have none
        by_turn = {turn: iter(logprobs[rollout.key, turn]) for turn in {*row.turns} - {NOT_SAMPLED}}
        return grpo.LearnedRow(
            row.prompt,
            row.ids,
            row.mask,
            [0.0 if turn == NOT_SAMPLED else next(by_turn[turn]) for turn in row.turns],
            reward,
        )

    def _count(self, rollouts: Sequence[Trajectory], rewards: Sequence[grpo.Reward]) -> None:
        """Notes what later steps need to know of rollouts, and what is wrong with them."""
        for rollout, reward in zip(rollouts, rewards, strict=True):
            value = None if reward is None else total(reward, self.weights)
            self.schedule.add(rollout.task, rollout.sample // self.step_size, value)  # its step
            self.tally.count(rollout.reward_problem)
            self.endings[rollout.ended] += 1
        self.lost += [rollout for rollout in rollouts if rollout.ended in LOST]
        count = self.endings.total()
        try:
            if exceeds_share(len(self.lost), count, self.settings.max_failures, allowed=1):
                raise lost_error(self.agent, self.lost, count)
            self.tally.refuse()
        except UserError as error:
            self.halt.append(error)


def _score_names(settings: GrpoSettings, agent: Agent, has_gold: bool) -> list[str]:
    """By the world of one of the first tasks, before anything is done in it. Raises UserError where
    it has no score, and where none of them can be built.
    """
    problems: list[str] = []
    for task in agent.tasks[:TASKS_TRIED]:
        try:
            with World(agent.setup.environment.world_class, agent.setup.limits) as world:
                world.reset(task.row)
                names = [*world.scores()]
            break
        except WorldError as error:
            problems.append(f"the world of task {task.name} is lost: {error}.")
    else:
        fix = "Correct the environment, or raise call_seconds: --set grpo.call_seconds=60."
        raise UserError(problems[0], fix, location=settings.env, exit_code=REJECTS)
    if not (names or settings.rewards or has_gold):
        raise UserError(
            "has no score to learn from.",
            "Give the class a get_reward() or get_scores(), or every task its gold; or add "
            "--rewards file.py:function.",
            location=settings.env,
        )
    return names


def _align_prompts(rows: Sequence[grpo.LearnedRow]) -> list[grpo.LearnedRow]:
    """Prompts cut to the shortest, with the rest of each at the head of what follows, not learned.

    So a batch is as wide as its longest row: TRL pads prompts and what follows apart, and a long
    prompt beside a long rollout would take up to twice max_length. `r` is read, `a` sampled:

        prompt r r r    ids a a r a    mask 1 1 0 1    ->    r r    r a a r a    0 1 1 0 1
        prompt r r      ids a          mask 1          ->    r r    a            1
    """
    shortest = min(len(row.prompt) for row in rows if any(row.mask))
    aligned = []
    for row in rows:
        if not any(row.mask):  # of a rollout without a turn: it teaches nothing
            row = row._replace(prompt=[*row.prompt[:1]] * shortest)
        surplus = len(row.prompt) - shortest
        aligned.append(
            row._replace(
                prompt=row.prompt[:shortest],
                ids=[*row.prompt[shortest:], *row.ids],
                mask=[0] * surplus + [*row.mask],
                log_probabilities=[0.0] * surplus + [*row.log_probabilities],
            )
        )
    return aligned
