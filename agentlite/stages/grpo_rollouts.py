"""rollouts.jsonl of a GRPO run: its answers scored, stored and, with --skip-solved, screened."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import GrpoSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, CandidateKey, Rollout, Score
from agentlite.core.row_files import Appender, write_rows
from agentlite.data.curriculum import level
from agentlite.engine import checkpoints, grpo, local_sampler
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded
from agentlite.rendering import Prompt
from agentlite.scoring.preference_pairs import gold_candidates, read_rollouts
from agentlite.scoring.rewards import settle_weights, total, without_comparisons
from agentlite.scoring.rewards.scorer import Scorer, Tally
from agentlite.stages.resting import resting_of
from agentlite.workspace.model_source import Source, load_template

BATCH = 8  # prompts screened at once
HOW_TO_GO_ON = (
    "The same command carries on from here; a changed file of rewards is another plan: --out "
    "NAME, or --force."
)


class Rollouts:
    """rollouts.jsonl: the gold answers, the samples that show which prompts teach anything, and
    every answer of the training.

    Rows of steps after the newest checkpoint are dropped: those steps are taken again.
    """

    def __init__(self, folder: Path, settings: GrpoSettings, scorer: Scorer, prompts: list[Prompt]):
        self.folder, self.settings, self.scorer, self.prompts = folder, settings, scorer, prompts
        weights = settle_weights(settings.weights, scorer.user_functions)
        self.weights = weights if scorer.has_gold else without_comparisons(weights)
        self.halt: list[Exception] = []
        self.tally = Tally(settings.max_failures, folder, HOW_TO_GO_ON)
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
        self.file = Appender(path)
        self._begin_resting()
        self.add([gold for gold in gold_candidates(self.prompts) if gold.key not in self.rows])
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
        scores = list(self.scorer(candidates))
        for candidate, score in zip(candidates, scores, strict=True):
            score_fields: dict[str, Any] = {
                "components": score.components,
                "feedback": score.feedback,
                "error": score.error,
            }
            row = Rollout(**msgspec.structs.asdict(candidate), **score_fields)
            self.rows[candidate.key] = row
            self.file.append(msgspec.structs.asdict(row))
            self.tally.count(score.error)
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
            self.prompts = self._unsolved(loaded, decoding)
            self._begin_resting()
        ids, stops = (
            [one.ids for one in self.prompts],
            [self.scorer.protocols[one.protocol].stops for one in self.prompts],
        )
        return grpo.GrpoTask(
            ids,
            stops,
            self.verdicts,
            self.weights,
            decoding,
            self.halt,
            awake=self.resting.awake,
            levels=(
                [level(one.record, [one.turn]) for one in self.prompts]
                if self.settings.order == "curriculum"
                else []
            ),
        )

    def _begin_resting(self) -> None:
        """With what the answers of the steps so far earned."""
        self.resting = resting_of(self.settings, len(self.prompts))
        self.places = {one.step: place for place, one in enumerate(self.prompts)}
        rows = [row for row in self.rows.values() if row.model == self.folder.name]
        self._visit(row for row in rows if row.candidate.step in self.places)

    def _visit(self, rows: Iterable[Rollout]) -> None:
        earned: dict[tuple[int, int], list[float]] = {}
        for row in rows:
            of_group = earned.setdefault((row.trained, self.places[row.candidate.step]), [])
            of_group += [] if row.error else [total(row.components, self.weights)]
        for (step, place), totals in sorted(earned.items()):
            self.resting.visited(place, step, totals)

    def verdicts(self, answers: Sequence[grpo.SampledAnswer]) -> list[grpo.Reward]:
        """Judges the answers of an optimizer step. Where too many rewards failed, the step is the
        last one.
        """
        name, size = self.folder.name, len(answers)
        candidates = [
            self._candidate(
                self.prompts[one.prompt],
                one.sample,
                name,
                one.trained * size + one.batch_index,
                one.trained,
            )
            for one in answers
        ]
        scores = self.add(candidates)
        self._visit([self.rows[one.key] for one in candidates])
        try:
            self.tally.refuse()
        except UserError as error:
            self.halt.append(error)
        return [None if score.error else score.components for score in scores]

    def _candidate(
        self, prompt: Prompt, sample: local_sampler.Sample, model: str, number: int, trained: int
    ) -> Candidate:
        return Candidate(
            *prompt.step,
            prompt.protocol,
            model,
            number,
            sample.text,
            sample.ended,
            len(sample.ids),
            trained,
        )

    def _unsolved(self, loaded: Loaded, decoding: Decoding) -> list[Prompt]:
        """The prompts whose answers before training differ in their totals: the others would teach
        nothing.
        """
        batches = local_sampler.plan_batches([len(one.ids) for one in self.prompts], BATCH)
        with console.progress("grpo: looking for prompts that teach", len(batches)) as advance:
            for done, batch in enumerate(batches, 1):
                self._screen([self.prompts[index] for index in batch], loaded, decoding)
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
        requests = [
            local_sampler.SampleRequest(
                one.ids,
                tuple(f"{seed} {one.step} {number}" for number in group),
                self.scorer.protocols[one.protocol].stops,
            )
            for one in batch
        ]
        samples = grpo.draw(loaded, requests, decoding)
        new = [self._candidate(batch[one.prompt], one, name, one.sample, 0) for one in samples]
        self.add([candidate for candidate in new if candidate.key not in self.rows])
        self.tally.refuse()

    def _differing(self) -> list[Prompt]:
        totals: dict[Any, set[float]] = {}
        for row in self.rows.values():
            if row.model == self.settings.model and not row.error:
                totals.setdefault(row.candidate.step, set()).add(
                    round(total(row.components, self.weights), 9)
                )
        left = [one for one in self.prompts if len(totals.get(one.step, ())) > 1]
        out = len(self.prompts) - len(left)
        console.notice(
            f"grpo: {out} of {len(self.prompts)} prompts left out: the answers to each score the "
            "same"
        )
        if not left:
            raise UserError(
                "no prompt is left: the answers to each score the same.",
                "Raise --temperature or --group-size, or leave --skip-solved out.",
                location=str(self.folder),
            )
        return left
