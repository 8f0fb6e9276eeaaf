"""GRPO on recorded prompts: rollouts.jsonl, with every answer and its score; which prompts rest."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import msgspec
from msgspec import Struct

from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, Score, TrainedAnswer, to_row
from agentlite.core.row_files import Appender, read_structs, write_rows
from agentlite.data.prompt_records import find_prompts
from agentlite.engine import checkpoints, grpo, local_sampler
from agentlite.engine.decoding import decoding_of
from agentlite.engine.remote import judge_component
from agentlite.rendering import Prompt
from agentlite.scoring.preference_pairs import gold_candidates
from agentlite.scoring.rewards import (
    Component,
    components_without_gold,
    refuse_without_gold,
    settle_weights,
    total,
)
from agentlite.scoring.rewards.scorer import Scorer, Tally
from agentlite.stages.frame import Figures
from agentlite.stages.training import data_option, fitting_prompts
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import RunTarget, find_learner

HOW_TO_GO_ON = (
    "The same command carries on from here; a changed file of rewards is another plan: --out "
    "NAME, or --force."
)


class PromptSampling:
    """The prompts of a prep, whose answers are sampled, scored, and kept in rollouts.jsonl.

    `read` finds the prompts and what scores answers to them, and returns what a dry run says and
    the tokens of the longest row; entered, it holds the log open: the gold answers, and every
    answer of the training. `unit`, `sample_unit`: the names of their numbers in the figures.
    """

    unit, sample_unit, is_live = "prompts", "answers", False
    outputs, keep = ("records.jsonl", "rollouts.jsonl"), ("rollouts.jsonl",)

    def __init__(self, settings: GrpoSettings, functions: Sequence[str], target: RunTarget):
        self.settings, self.folder = settings, target.folder
        self.judge = judge_component(settings, self.folder)
        self.weights = settle_weights(settings.weights, [*functions, *self.judge])
        self.source = find_learner("grpo", settings, target)
        self.prompt_data = find_prompts(settings.data, settings.split, self.source, target.run)
        self.protocol, self.inputs = self.prompt_data.protocol, {"data": self.prompt_data.digest}
        self.eval_options = data_option(settings.data)
        self.halt: list[Exception] = []
        self.tally = Tally(settings.max_failures, self.folder, HOW_TO_GO_ON)

    def read(self, functions: Mapping[str, Component]) -> tuple[Figures, int]:
        """Raises UserError also where the weights need gold that is not there."""
        settings, template = self.settings, load_template(self.source.base)
        room = settings.max_length - settings.max_new_tokens
        self.prompts, self.too_long, mixture = fitting_prompts(
            "grpo", settings, self.prompt_data, template, room
        )
        self.decoding = decoding_of(settings).under(template)
        self.records = {prompt.record.id: prompt.record for prompt in self.prompts}
        refuse_without_gold(self.records.values(), self.weights, self.prompt_data.location)
        self.scorer = Scorer(self.records, mixture.protocols, {**functions, **self.judge})
        if not self.scorer.has_gold:
            self.weights = components_without_gold(self.weights)
        self.count = len(self.prompts)
        longest = max(len(prompt.ids) for prompt in self.prompts)
        figures = {"too_long": self.too_long, "longest_prompt": longest}
        return figures, longest + settings.max_new_tokens

    def __enter__(self) -> Self:
        write_rows(self.folder / "records.jsonl", map(to_row, self.records.values()))
        path, model = self.folder / "rollouts.jsonl", self.folder.name
        rows = restore_rows(
            path,
            partial(read_structs, kind=TrainedAnswer),
            lambda row, steps: row.model != model or row.trained < steps,
        )
        self.rows = {row.candidate.key: row for row in rows}
        self.file = Appender(path)
        self.schedule = PromptSchedule(self.settings, [prompt.step for prompt in self.prompts])
        self._visit(row for row in rows if row.model == model)
        self.add([*gold_candidates(self.prompts)])
        self.tally.refuse()
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def figures(self) -> Figures:
        failed = sum(bool(row.error) for row in self.rows.values())
        return {"failed_rewards": failed, "too_long": self.too_long}

    def add(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Scores and stores those of whole groups, which a judge compares, that are not there."""
        for judge in self.judge.values():
            judge.rank(candidates, self.records)
        new_candidates = [candidate for candidate in candidates if candidate.key not in self.rows]
        for candidate, score in zip(new_candidates, self.scorer(new_candidates), strict=True):
            row = TrainedAnswer(
                **msgspec.structs.asdict(candidate),
                components=score.components,
                feedback=score.feedback,
                error=score.error,
            )
            self.rows[candidate.key] = row
            self.file.append(msgspec.structs.asdict(row))
            self.tally.count(score.error)
        return [self.rows[candidate.key].score for candidate in candidates]

    def sample(self, draw: grpo.Draw, indices: Sequence[int], step: int) -> list[grpo.LearnedRow]:
        """A group of answers to each prompt of an optimizer step."""
        group_size = self.settings.group_size
        prompts = [self.prompts[index] for index in self.schedule.select(indices, step)]
        requests = [
            local_sampler.SampleRequest(
                prompt.ids,
                tuple(f"{self.settings.seed} {step} {index} {n}" for n in range(group_size)),
                self.scorer.protocols[prompt.protocol].stops,
            )
            for index, prompt in enumerate(prompts)
        ]
        return self.score(prompts, sorted(draw(requests, self.decoding)), step)

    def score(
        self, prompts: Sequence[Prompt], answers: Sequence[local_sampler.Sample], step: int
    ) -> list[grpo.LearnedRow]:
        """Scores the answers of a step to its prompts. Where too many rewards failed, the step is
        the last one.
        """
        candidates = []
        for number, answer in enumerate(answers, step * len(answers)):
            prompt, tokens = prompts[answer.prompt], len(answer.ids)
            origin = (*prompt.step, prompt.protocol, self.folder.name, number)
            candidates.append(Candidate(*origin, answer.text, answer.ended, tokens, step))
        scores = self.add(candidates)
        self._visit(self.rows[candidate.key] for candidate in candidates)
        try:
            self.tally.refuse()
        except UserError as error:
            self.halt.append(error)
        return [
            grpo.answer_row(
                prompts[answer.prompt].ids, answer, None if score.error else score.components
            )
            for answer, score in zip(answers, scores, strict=True)
        ]

    def _visit(self, rows: Iterable[TrainedAnswer]) -> None:
        for row in rows:
            value = None if row.error else total(row.components, self.weights)
            self.schedule.add(row.candidate.step, row.trained, value)


Row = TypeVar("Row", bound=Struct)


def restore_rows(
    path: Path, read: Callable[[Path], Iterable[Row]], is_kept: Callable[[Row, int], bool]
) -> list[Row]:
    """The rows of a log that stay where its run goes on from the newest checkpoint: those of later
    steps are dropped, and these steps are taken again. `is_kept`: of a row, after how many steps.
    """
    steps = checkpoints.restore_log(path.name, path.parent)
    with Appender(path):  # makes it, or cuts a torn line
        pass
    rows = [row for row in read(path) if is_kept(row, steps)]
    write_rows(path, map(msgspec.to_builtins, rows))
    return rows


class Visit(NamedTuple):
    """The last step that a prompt was learned from in, how often it was, and the totals of that
    step's answers.
    """

    step: int
    times: int
    totals: frozenset[float]


NEVER = Visit(-1, 0, frozenset())


class PromptSchedule:
    """Which prompts rest: those whose last answers all scored the same, for some epochs. An epoch
    has a group for each prompt. `keys`: what each prompt is known by.
    """

    def __init__(self, settings: GrpoSettings, keys: Sequence[Hashable]):
        groups = settings.batch_size * settings.gradient_accumulation / settings.group_size
        # 100 prompts in steps of 4 groups: an epoch is 25 steps
        self.keys, self.resting_steps = keys, settings.resting_epochs * len(keys) / groups
        self.visits: dict[Hashable, Visit] = {}

    def add(self, key: Hashable, step: int, value: float | None) -> None:
        """An answer to a prompt at a step, step after step, and its total: None without a score."""
        visit = self.visits.get(key, NEVER)
        if visit.step != step:
            visit = Visit(step, visit.times + 1, frozenset())
        totals = visit.totals if value is None else visit.totals | {round(value, 9)}
        self.visits[key] = visit._replace(totals=totals)

    def select(self, indices: Sequence[int], step: int) -> list[int]:
        """The prompts of a step that was to have those of `indices`. In the place of one that rests
        comes the one that was learned from least and longest ago of those that do not.
        """
        visits = [self.visits.get(key, NEVER) for key in self.keys]
        awake = {
            index
            for index, visit in enumerate(visits)
            if visit is NEVER or len(visit.totals) > 1 or step - visit.step >= self.resting_steps
        }
        chosen: list[int] = []
        for index in indices:
            substitutes = awake - {*indices} - {*chosen}
            if index not in awake and substitutes:
                index = min(substitutes, key=lambda i: (visits[i].times, visits[i].step, i))
            chosen.append(index)
        return chosen
