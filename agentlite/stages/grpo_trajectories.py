"""trajectories.jsonl of a GRPO run in an environment: its rollouts, as rows that are learned."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import REJECTS, UserError
from agentlite.core.row_files import Appender, write_rows
from agentlite.engine import checkpoints, grpo
from agentlite.engine.act import answers
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded
from agentlite.environments.credit import EarnedRollout, turn_advantages
from agentlite.environments.rollout import RolloutAnswer, RolloutPrompt, roll
from agentlite.environments.rollout_rewards import RolloutScorer
from agentlite.environments.trajectories import (
    LOST,
    READ,
    TRAJECTORIES,
    RolloutKey,
    TokenRow,
    Trajectory,
    read_trajectories,
)
from agentlite.scoring.rewards import total
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages.agent import Agent
from agentlite.stages.resting import resting_of

HOW_TO_GO_ON = (
    "Correct the environment and add --force; or raise call_seconds or max_failures (--set)."
)
OTHER_REWARDS = (
    "The same command goes on from the last checkpoint; a changed file of rewards needs --force, "
    "or --out NAME."
)


class LiveRollouts:
    """trajectories.jsonl: every rollout of the training. `size` rollouts are a step.

    Those of steps after the newest checkpoint are dropped: these steps are taken again.
    """

    def __init__(
        self,
        folder: Path,
        settings: GrpoSettings,
        acting: Agent,
        scorer: RolloutScorer,
        weights: dict[str, float],
    ):
        self.folder, self.settings, self.acting, self.weights = folder, settings, acting, weights
        self.scorer = scorer
        self.size = settings.batch_size * settings.gradient_accumulation
        self.places = {task.id: place for place, task in enumerate(acting.tasks)}
        self.halt: list[Exception] = []
        self.decoding = Decoding(
            settings.max_new_tokens, settings.temperature, settings.top_p, settings.seed
        ).under(acting.setup.template)
        self._carry_on()

    def _carry_on(self) -> None:
        path = self.folder / TRAJECTORIES
        checkpoint = checkpoints.newest(self.folder)
        checkpoints.restore_log(path.name, self.folder, checkpoint)
        with Appender(path):  # makes it, or cuts a torn line
            pass
        taken = checkpoints.step_of(checkpoint) if checkpoint else 0
        kept = [one for one in read_trajectories(path) if self._step(one) < taken]
        write_rows(path, map(msgspec.to_builtins, kept))
        self.file = Appender(path)
        self.simulators = self.acting.open_simulators(self.folder)
        self.ended: Counter[str] = Counter()
        self.tally = Tally(self.settings.max_failures, self.folder, OTHER_REWARDS, "rollouts")
        self.resting = resting_of(self.settings, len(self.acting.tasks))
        self.lost = ""
        for start in range(0, len(kept), self.size):
            self._count(self._earned(kept[start : start + self.size]))

    def _earned(self, done: Sequence[Trajectory]) -> list[EarnedRollout]:
        """With their components: all those that have a weight, 0 where a world does not give
        one.
        """
        earned = []
        for one in done:
            components, _, error = self.scorer(one)
            weighed = {name: components.get(name, 0.0) for name in self.weights}
            earned.append(EarnedRollout(one, weighed if components and not error else None))
        return earned

    def _step(self, one: Trajectory) -> int:
        return one.sample // self.size

    def __enter__(self) -> "LiveRollouts":
        return self

    def __exit__(self, *error: object) -> None:
        self.simulators.__exit__(*error)
        self.file.__exit__(*error)

    def task(self, loaded: Loaded) -> grpo.GrpoTask:
        self.__exit__(None, None, None)
        self._carry_on()
        prompts: list[list[int]] = [[] for _ in self.acting.tasks]  # each is made turn by turn
        return grpo.GrpoTask(
            prompts,
            [],
            lambda _: [],
            self.weights,
            self.decoding,
            self.halt,
            self.live,
        )

    def live(self, sample: grpo.Draw, groups: Sequence[int], step: int) -> list[grpo.LearnedRow]:
        """A group of rollouts for each of the step's tasks. Where too many worlds were lost, or too
        many rewards failed, the step is the last one. Raises UserError 2 where no model has said
        anything.
        """
        setup, size = self.acting.setup, self.settings.group_size
        waiting = [
            (self.acting.tasks[index], step * self.size + place * size + number)
            for place, index in enumerate(self.resting.awake(groups, step))
            for number in range(size)
        ]
        likely: dict[tuple[RolloutKey, int], Sequence[float]] = {}

        def answering(prompts: Sequence[RolloutPrompt]) -> Iterator[RolloutAnswer]:
            for one in answers(sample, prompts, setup.protocol, self.decoding):
                prompt = prompts[one.prompt]
                likely[prompt.key, prompt.turn] = one.log_probabilities
                yield one

        ended = {
            one.key: one
            for one in roll(setup, waiting, {}, answering, self.size, self.simulators)
            if isinstance(one, Trajectory)
        }
        done = [
            self.scorer.rewarded(ended[RolloutKey(task.id, number)]) for task, number in waiting
        ]
        for one in done:
            self.file.append(msgspec.to_builtins(one))
        earned = self._earned(done)
        self._count(earned)
        rows = [
            self._row(one, likely, advantages)
            for one, advantages in zip(earned, self._advantages(earned), strict=True)
        ]
        if not any(any(row.mask) for row in rows):
            raise _nothing_sampled(done, self.acting, self.settings)
        return _of_one_prompt_length(rows)

    def _advantages(self, earned: Sequence[EarnedRollout]) -> list[list[float]]:
        """Of each turn, or none where TRL gives a whole rollout one."""
        settings, size = self.settings, self.settings.group_size
        if settings.credit == "trajectory":
            return [[] for _ in earned]
        scaled = settings.scale_rewards == "group"
        return [
            of_one
            for start in range(0, len(earned), size)
            for of_one in turn_advantages(
                earned[start : start + size], self.weights, settings.credit, scaled
            )
        ]

    def _row(
        self,
        earned: EarnedRollout,
        likely: Mapping[tuple[RolloutKey, int], Sequence[float]],
        advantages: Sequence[float],
    ) -> grpo.LearnedRow:
        """A rollout is a row. Of one that is several, since the template rewrites its history, one
        is drawn, so that a step has as many rows as planned.
        """
        one, reward = earned.rollout, earned.components
        if not one.turns:
            template = self.acting.setup.template
            end = template.token_id(template.turn_end)
            return grpo.LearnedRow([end], [end], [0], [0.0], reward)
        chance = random.Random(f"{self.settings.seed} {one.task} {one.sample}")
        row: TokenRow = chance.choice(one.token_rows())
        of_ids = {turn: iter(likely[one.key, turn]) for turn in {*row.turns} - {READ}}
        return grpo.LearnedRow(
            row.prompt,
            row.ids,
            row.mask,
            [0.0 if turn == READ else next(of_ids[turn]) for turn in row.turns],
            reward,
            [0.0 if turn == READ else advantages[turn] for turn in row.turns] if advantages else [],
        )

    def _count(self, earned: Sequence[EarnedRollout]) -> None:
        """The facts about these rollouts that later steps need, and what is wrong with them."""
        groups: dict[tuple[str, int], list[EarnedRollout]] = {}
        for each in earned:
            one = each.rollout
            groups.setdefault((one.task, self._step(one)), []).append(each)
            self.tally.count(one.reward_problem)
            self.ended[one.ended] += 1
            if one.ended in LOST:
                self.lost = self.lost or f"{one.problem} (task {self.acting.name_of(one.task)})"
        for (task, step), group in groups.items():
            totals = [total(each.components, self.weights) for each in group if each.components]
            self.resting.visited(self.places[task], step, totals)
        lost = sum(self.ended[ended] for ended in LOST)
        if lost > max(1, self.settings.max_failures * self.ended.total()):
            self.halt.append(
                UserError(
                    f"{lost} of {self.ended.total()} rollouts are lost; the first: {self.lost}.",
                    HOW_TO_GO_ON,
                    location=self.settings.env,
                    exit_code=REJECTS,
                )
            )
        try:
            self.tally.refuse()
        except UserError as error:
            self.halt.append(error)


def _of_one_prompt_length(rows: Sequence[grpo.LearnedRow]) -> list[grpo.LearnedRow]:
    """Prompts cut to the shortest, with the rest of each at the head of what follows, not learned.

    So nothing is padded on the left: Unsloth moves rows that are, and would not move their
    advantages. And a batch is as wide as its longest row: TRL pads prompts and what follows apart,
    so a long prompt beside a long rollout would take up to twice max_length.
    """
    shortest = min(len(row.prompt) for row in rows if any(row.mask))
    credited, cut = any(row.advantages for row in rows), []
    for row in rows:
        if not any(row.mask):  # of a rollout without a turn: it teaches nothing
            row = row._replace(prompt=[*row.prompt[:1]] * shortest, advantages=[0.0] * len(row.ids))
        more = len(row.prompt) - shortest
        unlearned = [0.0] * more
        cut.append(
            row._replace(
                prompt=row.prompt[:shortest],
                ids=[*row.prompt[shortest:], *row.ids],
                mask=[0] * more + [*row.mask],
                log_probabilities=[*unlearned, *row.log_probabilities],
                advantages=[*unlearned, *row.advantages] if credited else [],
            )
        )
    return cut


def _nothing_sampled(
    done: Sequence[Trajectory], acting: Agent, settings: GrpoSettings
) -> UserError:
    ended = Counter(one.ended for one in done).most_common(1)[0][0]
    first = next(one for one in done if one.ended == ended)
    if ended == "length":
        return UserError(
            "every first prompt of a step, with its tools, is longer than "
            f"{settings.max_length - settings.max_new_tokens} tokens.",
            f"Raise --max-length, as in --max-length {4 * settings.max_length}, or offer fewer "
            "tools.",
            location=settings.env,
        )
    return UserError(
        f"not one rollout of a step has begun; the first: {first.problem} (task "
        f"{acting.name_of(first.task)}).",
        HOW_TO_GO_ON,
        location=settings.env,
        exit_code=REJECTS,
    )
