"""finished prep + a model -> an adapter that does more of what scored well, with rollouts.jsonl and
checkpoints.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config import resolve
from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, CandidateKey, Rollout, Score, to_row
from agentlite.core.row_files import Appender, PatientAppender, write_rows
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.engine import check_libraries, checkpoints, deepspeed, grpo
from agentlite.engine import sample as sampling
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.rendering import Prompt, prompts, settled
from agentlite.scoring.preference_pairs import read_rollouts
from agentlite.scoring.rewards import settle_weights, total
from agentlite.scoring.rewards.scorer import Scorer, Tally, reading
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import (
    adapter_shape,
    failing_early,
    lineage,
    refuse_circle,
    refuse_other_adapter,
)
from agentlite.workspace.model_source import Source, find_model, load_template, trained_files
from agentlite.workspace.run_folder import Plan, Result, RunTarget

BATCH = 8  # prompts screened at once
NOT_OF_THE_PLAN = (
    "reward_seconds",
    "max_failures",
    "max_flat_steps",
)  # how it is done, not what comes out
MEND = (
    "The same command carries on from here; a changed file of rewards is another plan: --out "
    "NAME, or --force."
)


def inherit(settings: GrpoSettings, run: Path) -> dict[str, tuple[Any, str]]:
    """The shape of the adapter that is continued."""
    return {**adapter_shape(settings.model, run), **deepspeed.inherited("grpo", settings)}


def run(settings: GrpoSettings, target: RunTarget) -> Result:
    """Trains, or carries on. Raises UserError 2, 3, 4, 5, 6, 7, 74 or 75; Stopped after a
    signal.
    """
    settle_weights(settings.weights, _names(settings))
    source = find_model(settings.model, target.run)
    found = find_prompts(settings.data, settings.split, settings.model, source, target.run)
    plan = Plan(
        "grpo",
        {**resolve.plain_settings(settings, NOT_OF_THE_PLAN), "protocol": found.protocol},
        {
            "data": found.digest,
            "model": source.digest,
            **function_files(settings.rewards),
            **deepspeed.inputs(settings),
        },
        run_folder.versions(),
    )
    refuse_circle(settings.model, target)
    _refuse_mistakes(settings)
    refuse_other_adapter("grpo", settings, source, target.run)
    deepspeed.refuse_unfit("grpo", settings, source)
    if target.dry_run:
        return _dry_run(settings, target, plan, found, source)
    if target.has_work(plan):
        check_libraries(settings.engine)
    with (
        console.stdout_to_stderr(),
        run_folder.open_stage(target.folder, plan, force=target.force) as stage,
    ):
        if stage.status != "done":
            with failing_early(stage):
                _fill(stage, settings, found, source, lineage(settings.model, target.run))
        other = "" if settings.data == "prep" else f" --data {settings.data}"
        return stage.result(
            target.next(f"agentlite eval --model {source.name} --model {target.out}{other}")
        )


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"reward {figures['first_reward']:.2f} -> {figures['last_reward']:.2f}"


def _refuse_mistakes(settings: GrpoSettings) -> None:
    answers = settings.batch_size * settings.gradient_accumulation
    if answers % settings.group_size:
        fits = [str(size) for size in range(2, answers + 1) if answers % size == 0]
        raise UserError(
            f"a step holds {answers} answers (batch_size x gradient_accumulation), no whole groups "
            "of it.",
            f"Take one of {', '.join(fits)}.",
            location="grpo.group_size",
        )
    if settings.max_new_tokens >= settings.max_length:
        raise UserError(
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
            location="grpo.max_new_tokens",
        )


def _names(settings: GrpoSettings) -> list[str]:
    return [text.rpartition(":")[2] for text in settings.rewards]


def _asked(settings: GrpoSettings, found: Prompts, source: Source) -> tuple[list[Prompt], int]:
    """The prompts that leave room for an answer, and how many do not. Raises UserError 2 if none
    does.
    """
    records = [record for record in found.records() if record.asked]
    chosen = [records[index] for index in sample(records, settings.limit, settings.seed)]
    template = load_template(source.base)
    every = list(prompts(chosen, settled(found.protocol, template).of, template))
    room = settings.max_length - settings.max_new_tokens
    fitting = [one for one in every if len(one.ids) <= room]
    if len(fitting) < len(every):
        console.notice(
            f"grpo: {len(every) - len(fitting)} prompts are longer than {room} tokens and left out"
        )
    if not fitting:
        raise UserError(
            f"holds no prompt of at most {room} tokens with tools.",
            "Raise --max-length, or run prep on rows with tools.",
            location=found.place,
        )
    return fitting, len(every) - len(fitting)


def _fill(
    stage: run_folder.StageFolder,
    settings: GrpoSettings,
    found: Prompts,
    source: Source,
    models: list[str],
) -> None:
    folder = stage.folder
    with console.waiting("grpo: writing the prompts"):
        asked, too_long = _asked(settings, found, source)
    records = {one.record.id: one.record for one in asked}
    write_rows(folder / "records.jsonl", map(to_row, records.values()))
    console.notice(f"grpo: {len(asked)} prompts, groups of {settings.group_size}")
    with UserFunctions(settings.rewards, seconds=settings.reward_seconds) as own:
        judge = Scorer(records, reading(found.protocol, source.base), own)
        with Rollouts(folder, settings, judge, asked) as rollouts:
            figures = grpo.train(
                source, settings, folder, lambda loaded: rollouts.task(loaded, source)
            )
    files = trained_files(folder, source.base)
    told = {
        "prompts": len(rollouts.asked),
        **figures,
        "failed_rewards": rollouts.failed,
        "too_long": too_long,
        "lineage": [*models, folder.name],
    }
    stage.finish([*files, "metrics.jsonl", "records.jsonl", "rollouts.jsonl"], told)


class Rollouts:
    """rollouts.jsonl: the gold, what was drawn to see which prompts teach anything, and every
    answer of the training.

    Rows of steps after the newest checkpoint go: those steps are taken again.
    """

    def __init__(self, folder: Path, settings: GrpoSettings, judge: Scorer, asked: list[Prompt]):
        self.folder, self.settings, self.judge, self.asked = folder, settings, judge, asked
        self.weights = settle_weights(settings.weights, judge.user_functions)
        self.halt: list[Exception] = []
        self.tally = Tally(settings.max_failures, folder, MEND)
        self._carry_on()

    def _carry_on(self) -> None:
        path = self.folder / "rollouts.jsonl"
        checkpoint = checkpoints.newest(self.folder)
        checkpoints.restore_log(path.name, self.folder, checkpoint)
        with Appender(path):  # makes it, or cuts a torn line
            pass
        done = checkpoints.step_of(checkpoint) if checkpoint else 0
        kept = [
            row
            for row in read_rollouts(path)
            if (row.trained < done if row.model == self.folder.name else not row.error)
        ]
        write_rows(path, [msgspec.structs.asdict(row) for row in kept])
        self.rows = {row.candidate.key: row for row in kept}
        self.file = PatientAppender(path)
        gold = [
            Candidate(*one.step, one.protocol, GOLD, 0, one.said, one.ended, 0)
            for one in self.asked
        ]
        self.add([candidate for candidate in gold if candidate.key not in self.rows])
        self.settle()
        self.tally.refuse()

    @property
    def failed(self) -> int:
        return sum(bool(row.error) for row in self.rows.values())

    def __enter__(self) -> "Rollouts":
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def add(self, candidates: Sequence[Candidate]) -> list[Score]:
        """Scores and stores them."""
        scores = list(self.judge(candidates))
        for candidate, score in zip(candidates, scores, strict=True):
            told: dict[str, Any] = {
                "components": score.components,
                "feedback": score.feedback,
                "error": score.error,
            }
            row = Rollout(**msgspec.structs.asdict(candidate), **told)
            self.rows[candidate.key] = row
            self.file.append(msgspec.structs.asdict(row))
            self.tally.count(score)
        return scores

    def task(self, loaded: Loaded, source: Source) -> grpo.GrpoTask:
        self.file.__exit__(None, None, None)
        self._carry_on()
        decoding = Decoding(
            max_new_tokens=self.settings.max_new_tokens,
            temperature=self.settings.temperature,
            top_p=self.settings.top_p,
        ).under(load_template(source.base))
        if self.settings.skip_solved:
            self.asked = self._unsolved(loaded, decoding)
        ids, stops = (
            [one.ids for one in self.asked],
            [self.judge.protocols[one.protocol].stops for one in self.asked],
        )
        return grpo.GrpoTask(
            ids, stops, self.verdicts, self.weights, decoding, self.halt, self.settle
        )

    def verdicts(self, answers: Sequence[grpo.SampledAnswer]) -> list[grpo.AnswerReward]:
        """Judges the answers of an optimizer step. Where too many rewards failed, the step is the
        last one.
        """
        name, size = self.folder.name, len(answers)
        candidates = [
            self._candidate(
                self.asked[one.prompt], one.drawn, name, one.trained * size + one.place, one.trained
            )
            for one in answers
        ]
        scores = self.add(candidates)
        try:
            self.tally.refuse()
        except UserError as error:
            self.halt.append(error)
        return [grpo.AnswerReward(None if score.error else score.components) for score in scores]

    def settle(self) -> None:
        self.file.settle()

    def _candidate(
        self, prompt: Prompt, drawn: sampling.Sample, model: str, number: int, trained: int
    ) -> Candidate:
        return Candidate(
            *prompt.step,
            prompt.protocol,
            model,
            number,
            drawn.text,
            drawn.ended,
            len(drawn.ids),
            trained,
        )

    def _unsolved(self, loaded: Loaded, decoding: Decoding) -> list[Prompt]:
        """The prompts whose answers before training differ in their totals: the others would teach
        nothing.
        """
        batches = sampling.plan_batches([len(one.ids) for one in self.asked], BATCH)
        with console.progress("grpo: looking for prompts that teach", len(batches)) as advance:
            for done, batch in enumerate(batches, 1):
                self._screen([self.asked[index] for index in batch], loaded, decoding)
                advance(done)
        return self._differing()

    def _screen(self, batch: Sequence[Prompt], loaded: Loaded, decoding: Decoding) -> None:
        """A group of answers to each prompt, unless they are there."""
        group, name, seed = range(self.settings.group_size), self.settings.model, self.settings.seed
        if all(
            CandidateKey(*one.step, one.protocol, name, number) in self.rows
            for one in batch
            for number in group
        ):
            return
        asked = [
            sampling.SampleRequest(
                one.ids,
                tuple(f"{seed} {one.step} {number}" for number in group),
                self.judge.protocols[one.protocol].stops,
            )
            for one in batch
        ]
        drawn = sampling.sample(loaded, asked, decoding)
        new = [self._candidate(batch[one.prompt], one, name, one.sample, 0) for one in drawn]
        self.add([candidate for candidate in new if candidate.key not in self.rows])
        self.settle()
        self.tally.refuse()

    def _differing(self) -> list[Prompt]:
        totals: dict[Any, set[float]] = {}
        for row in self.rows.values():
            if row.model == self.settings.model and not row.error:
                totals.setdefault(row.candidate.step, set()).add(
                    round(total(row.components, self.weights), 9)
                )
        left = [one for one in self.asked if len(totals.get(one.step, ())) > 1]
        out = len(self.asked) - len(left)
        console.notice(
            f"grpo: {out} of {len(self.asked)} prompts left out: the answers to each score the same"
        )
        if not left:
            raise UserError(
                "no prompt is left: the answers to each score the same.",
                "Raise --temperature or --group-size, or leave --skip-solved out.",
                location=str(self.folder),
            )
        return left


def _dry_run(
    settings: GrpoSettings, target: RunTarget, plan: Plan, found: Prompts, source: Source
) -> Result:
    """How many steps and answers there would be, and of how long prompts."""
    status = "new" if target.force else run_folder.compare(target.folder, plan)
    asked, too_long = _asked(settings, found, source)
    planned = grpo.schedule(settings, len(asked))
    longest = max(len(one.ids) for one in asked)
    figures = {
        "folder": status,
        "prompts": len(asked),
        "steps": planned.steps,
        "answers": planned.rows,
        "too_long": too_long,
        "longest_prompt": longest,
        "memory_gib": dry_run_memory(
            "grpo", settings, source.base, longest + settings.max_new_tokens
        ),
    }
    return Result("grpo", "dry run", str(target.folder), figures, [], 0.0)
