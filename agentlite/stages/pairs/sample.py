"""A model and prompts -> candidates: the answers that are sampled at every step."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.openai_client import refuse_unanswered
from agentlite.core.records import GOLD, Candidate, CandidateKey, Step, to_row
from agentlite.core.row_files import Appender, write_rows
from agentlite.data.prompt_records import find_prompts
from agentlite.engine import check_libraries
from agentlite.engine.decoding import Decoding, decoding_of
from agentlite.engine.load import loading_of
from agentlite.engine.planning.choose import dry_run_memory
from agentlite.engine.remote import served
from agentlite.engine.sampler import make_sampler, remote_samples
from agentlite.rendering import Prompt
from agentlite.scoring.preference_pairs import gold_candidates, read_candidates
from agentlite.scoring.rewards import Component, have_gold, refuse_without_gold, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, Tally, protocols_by_name
from agentlite.scoring.rewards.user_functions import function_files
from agentlite.stages.frame import Figures, plan_of
from agentlite.stages.pairs.score import (
    SCORES,
    CandidateSource,
    score_candidates,
)
from agentlite.stages.pairs.stored import (
    CANDIDATES,
    rescore_hint,
)
from agentlite.stages.training import fitting_prompts
from agentlite.workspace.model_source import find_model, load_template, model_of_prep
from agentlite.workspace.stage_folder import RunTarget, StageFolder


class Sampling(CandidateSource):
    """A model, or servers that have it, at the steps of a prep or of a file of prompts."""

    keep = (CANDIDATES,)

    def __init__(
        self, settings: PairsSettings, target: RunTarget, user_functions: Mapping[str, Component]
    ):
        self.settings, self.user_functions = settings, user_functions
        self.folder, self.is_dry = target.folder, target.dry_run
        self.weights = self.settle(settings.weights)
        if settings.endpoint:  # the template is that of the model that prep was run for
            base = model_of_prep(settings.data, target.run)
        else:
            base = find_model(settings.model, target.run, target.begun)
        self.source = served(settings.model, settings, base) if settings.endpoint else base
        self.prompts = find_prompts(settings.data, settings.split, self.source, target.run)
        inputs = {"data": self.prompts.digest, "model": self.source.digest}
        inputs |= function_files(settings.rewards)
        self.plan = plan_of("pairs", settings, inputs, protocol=self.prompts.protocol)

    def before_work(self) -> None:
        if not self.settings.endpoint:
            check_libraries(self.settings.engine)

    def is_open(self, figures: Figures) -> bool:
        return self.settings.unanswered == "ask" and bool(figures.get("unanswered"))

    def read(self) -> Figures:
        """A sample of the records with a step to ask, their protocols, and the prompts that fit."""
        settings, template = self.settings, load_template(self.source.base)
        room = settings.max_length - settings.max_new_tokens
        self.steps, self.too_long, mixture = fitting_prompts(
            "pairs", settings, self.prompts, template, room
        )
        self.protocols = mixture.protocols
        self.records = {step.record.id: step.record for step in self.steps}
        refuse_without_gold(self.records.values(), self.weights, self.prompts.location)
        if settings.gold and not have_gold(self.records.values()):
            raise UserError(
                "prompts have no gold that could be chosen.", "Leave --gold out.", location="--gold"
            )
        longest = max(len(prompt.ids) for prompt in self.steps)
        tokens = longest + settings.max_new_tokens
        return {
            "steps": len(self.steps),
            "candidates": len(self.steps) * settings.num_samples,
            "too_long": self.too_long,
            "prompt_tokens": sum(len(prompt.ids) for prompt in self.steps),
            "longest_prompt": longest,
            "memory_gib": dry_run_memory("pairs", settings, self.source.base, tokens)
            if self.is_dry
            else {},
        }

    def fill(self, stage: StageFolder) -> None:
        write_rows(stage.folder / "records.jsonl", map(to_row, self.records.values()))
        for name in (CANDIDATES, SCORES):
            stage.set_aside_changed(name)
        self._sample(stage)
        self.candidates = list(read_candidates(stage.folder / CANDIDATES))

    def score(self, folder: Path) -> Figures:
        settings, source = self.settings, self.source
        figures: dict[str, object] = {"too_long": self.too_long, "lineage": source.lineage}
        if source.endpoints:
            unanswered = len(self._missing({candidate.key for candidate in self.candidates}))
            figures |= {"lineage": [settings.model], "unanswered": unanswered}
            if unanswered:
                console.notice(
                    f"pairs: {unanswered} samples have no answer from {source.name} and give no "
                    "candidate"
                )
        scorer = Scorer(
            self.records,
            protocols_by_name(self.prompts.protocol, source.base),
            self.user_functions,
        )
        tally = Tally(settings.max_failures, folder, rescore_hint(folder.name))
        self.scores = score_candidates(folder, self.candidates, scorer, tally)
        return {**figures, "failed_rewards": tally.failed}

    def settle(self, changed: Mapping[str, float]) -> dict[str, float]:
        return settle_weights(changed, self.user_functions)

    def _sample(self, stage: StageFolder) -> None:
        """Appends the missing candidates to candidates.jsonl, as they come: where servers leave
        some unanswered, what they answered is kept.
        """
        settings, source, prompts = self.settings, self.source, self.steps
        path = stage.folder / CANDIDATES
        with Appender(path) as file:  # cuts a torn line
            known = {candidate.key for candidate in read_candidates(path)}
            for gold in gold_candidates(prompts):
                if gold.key not in known:
                    known.add(gold.key)
                    file.append(msgspec.structs.asdict(gold))
        missing = self._missing(known)
        total = len(prompts) * settings.num_samples
        there = total - len(missing)
        if missing:
            if settings.judge:  # with more answers the shares of a step are others
                (stage.folder / SCORES).unlink(missing_ok=True)
            stage.expect(CANDIDATES, len(known) + len(missing))
            cached = f", {there} there already" if there else ""
            console.notice(
                f"pairs: {total} candidates of {settings.model} at {len(prompts)} steps{cached}"
            )
            decoding = decoding_of(settings)._replace(num_samples=settings.num_samples)
            # a server is asked each missing sample by itself: one that is there is not paid again
            samples = (
                remote_samples(source, settings.model, self.protocols, missing, decoding)
                if source.endpoints
                else self._sample_here(decoding, {prompt.step for prompt, _ in missing})
            )
            problems = []
            with Appender(path) as file, console.progress("pairs", total) as advance:
                for candidate in samples:
                    if isinstance(candidate, str):
                        problems.append(candidate)
                    elif candidate.key not in known:
                        file.append(msgspec.structs.asdict(candidate))
                        advance(there := there + 1)
            # where nothing was answered there is nothing to pair, whoever is to blame
            if source.endpoints and (settings.unanswered == "ask" or not there):
                effect = "finishes without these candidates" if there else ""
                refuse_unanswered(problems, total, source.name, effect)
        if source.endpoints:  # they answer in any order, and pairs must not depend on it
            order = {prompt.step: number for number, prompt in enumerate(prompts)}
            answers = sorted(
                read_candidates(path),
                key=lambda one: (one.model != GOLD, order.get(one.step, len(order)), one.sample),
            )
            write_rows(path, map(msgspec.structs.asdict, answers))

    def _missing(self, known: Collection[CandidateKey]) -> list[tuple[Prompt, int]]:
        """The prompts, and the numbers of their samples, that are not among the known ones."""
        name = self.settings.model
        return [
            (prompt, number)
            for prompt in self.steps
            for number in range(self.settings.num_samples)
            if CandidateKey(*prompt.step, prompt.protocol, name, number) not in known
        ]

    def _sample_here(self, decoding: Decoding, wanted: Collection[Step]) -> Iterator[Candidate]:
        """Batch by batch. A batch is sampled again as a whole where a candidate of it is missing:
        its content is the same in every run, and so are its samples.
        """
        from agentlite.engine.local_sampler import plan_batches

        settings, prompts = self.settings, self.steps
        sampler = make_sampler(
            self.source, settings.model, self.protocols, loading_of(settings), decoding
        )
        for indices in plan_batches([len(prompt.ids) for prompt in prompts], settings.batch_size):
            batch = [prompts[index] for index in indices]
            if any(prompt.step in wanted for prompt in batch):
                yield from sampler(batch)
