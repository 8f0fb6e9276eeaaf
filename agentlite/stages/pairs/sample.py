"""A model and prompts -> candidates: the answers that are sampled at every step."""

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.endpoint_pool import refuse_unanswered
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.records import GOLD, Candidate, CandidateKey, Record, to_row
from agentlite.core.row_files import Appender, write_json, write_rows
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import find_prompts
from agentlite.engine import check_libraries
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import loading_of
from agentlite.engine.planning.choose import dry_run_memory
from agentlite.engine.remote import served
from agentlite.engine.sampler import make_sampler, remote_samples
from agentlite.rendering import Mixture, Prompt, Protocol, mixture_of
from agentlite.scoring.preference_pairs import gold_candidates, read_candidates
from agentlite.scoring.rewards import Component, have_gold, refuse_without_gold, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, Tally, reading
from agentlite.scoring.rewards.user_functions import function_files
from agentlite.stages.frame import Figures, plan_of
from agentlite.stages.pairs.score import (
    RANKING,
    SCORES,
    CandidateSource,
    ScoredCandidates,
    expected_calls,
    score_candidates,
)
from agentlite.stages.pairs.stored import (
    CANDIDATES,
    SAMPLED,
    is_sampled,
    rescore_hint,
    set_aside_changed,
)
from agentlite.stages.training import fitting_prompts
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.lineage import lineage, model_of_prep
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, RunTarget, StageFolder


class Sampling(CandidateSource):
    """A model, or servers that have it, at the steps of a prep or of a file of prompts."""

    advice = "sample more answers (-n), raise --temperature, lower --margin, or add --gold"
    keep = (CANDIDATES,)

    def __init__(
        self, settings: PairsSettings, target: RunTarget, user_functions: Mapping[str, Component]
    ):
        self.settings, self.target, self.user_functions = settings, target, user_functions
        self.folder = target.folder
        self.weights = settle_weights(settings.weights, user_functions)
        self.source = _find_source(settings, target)
        self.prompts = find_prompts(
            settings.data, settings.split, settings.model, self.source, target.run
        )
        inputs = {
            "data": self.prompts.digest,
            "model": self.source.digest,
            **function_files(settings.rewards),
        }
        self.plan = plan_of("pairs", settings, inputs, protocol=self.prompts.protocol)
        _refuse_sampling_again(target, self.plan)

    def before_work(self) -> None:
        is_there = not self.target.force and (self.folder / SAMPLED).exists()
        if not self.settings.endpoint and not is_there:
            check_libraries(self.settings.engine)

    def is_open(self, figures: Figures) -> bool:
        return self.settings.unanswered == "ask" and bool(figures.get("unanswered"))

    def dry_run(self) -> Figures:
        """How many candidates there would be, and how long the prompts are."""
        settings = self.settings
        _, _, fitting, too_long = self._read()
        longest = max(len(prompt.ids) for prompt in fitting)
        tokens = longest + settings.max_new_tokens
        return {
            "steps": len(fitting),
            "candidates": len(fitting) * settings.num_samples,
            "too_long": too_long,
            "prompt_tokens": sum(len(prompt.ids) for prompt in fitting),
            "longest_prompt": longest,
            "memory_gib": dry_run_memory("pairs", settings, self.source.base, tokens),
        }

    def _read(self) -> tuple[list[Record], Mixture, list[Prompt], int]:
        """The chosen records, their protocols, the prompts that fit, and how many are too long."""
        settings = self.settings
        records = self._choose_records()
        template = load_template(self.source.base)
        mixture = mixture_of(self.prompts.protocol, template)
        room = settings.max_length - settings.max_new_tokens
        location = self.prompts.location
        fitted = fitting_prompts("pairs", records, mixture, template, room, location)
        return records, mixture, *fitted

    def _choose_records(self) -> list[Record]:
        """A sample of the records with a step to ask."""
        settings, location = self.settings, self.prompts.location
        records = [record for record in self.prompts.records() if record.prompted_turns]
        if not records:
            raise UserError(
                "holds no record with tools.",
                "There must be something to choose: run prep on rows with tools,"
                " or with a smaller --test and --dev.",
                location=location,
            )
        refuse_without_gold(records, self.weights, location)
        if settings.gold and not have_gold(records):
            raise UserError(
                "prompts have no gold that could be chosen.", "Leave --gold out.", location="--gold"
            )
        return [records[index] for index in sample(records, settings.limit, settings.seed)]

    def scored(self, stage: StageFolder | None) -> ScoredCandidates:
        assert stage  # a grid ranks what was sampled before
        settings, source, folder = self.settings, self.source, stage.folder
        records, mixture, fitting, too_long = self._read()
        records_file = folder / "records.jsonl"
        write_rows(records_file, map(to_row, records))
        stage.set_aside_changed(SCORES)
        set_aside_changed(folder)
        is_whole = (folder / SAMPLED).exists()
        if is_whole and source.endpoints and settings.unanswered == "ask":
            known = {candidate.key for candidate in read_candidates(folder / CANDIDATES)}
            is_whole = not self._missing(fitting, known)
        if not is_whole:
            (folder / SAMPLED).unlink(missing_ok=True)
            self._sample(fitting, mixture.protocols, stage)
            digests = {path.stem: file_digest(path) for path in (records_file, folder / CANDIDATES)}
            write_json(folder / SAMPLED, digests)
        candidates = list(read_candidates(folder / CANDIDATES))
        unanswered = len(self._missing(fitting, {one.key for one in candidates}))
        if unanswered:
            console.notice(
                f"pairs: {unanswered} samples have no answer from {source.name} and give no "
                "candidate"
            )
        scorer = Scorer(
            {record.id: record for record in records},
            reading(self.prompts.protocol, source.base),
            self.user_functions,
        )
        tally = Tally(settings.max_failures, folder, rescore_hint(folder.name))
        return ScoredCandidates(
            candidates,
            score_candidates(folder, candidates, scorer, tally),
            lambda changed: settle_weights(changed, self.user_functions),
            expected_calls(records),
            {
                "too_long": too_long,
                "failed_rewards": tally.failed,
                **({"unanswered": unanswered} if source.endpoints else {}),
                "lineage": lineage(settings.model, self.target.run),
            },
        )

    def _sample(
        self, prompts: Sequence[Prompt], protocols: Mapping[str, Protocol], stage: StageFolder
    ) -> None:
        """Appends the missing candidates to candidates.jsonl, as they come. Raises UserError 8
        where servers leave some unanswered and these are not to be left out; what they answered is
        kept.
        """
        settings, source = self.settings, self.source
        path = stage.folder / CANDIDATES
        with Appender(path) as file:
            known = {candidate.key for candidate in read_candidates(path)}
            for gold in gold_candidates(prompts):
                if gold.key not in known:
                    known.add(gold.key)
                    file.append(msgspec.structs.asdict(gold))
        missing = self._missing(prompts, known)
        if missing:
            stage.expect(CANDIDATES, len(known) + len(missing))
            total = len(prompts) * settings.num_samples
            there = total - len(missing)
            cached = f", {there} there already" if there else ""
            console.notice(
                f"pairs: {total} candidates of {settings.model} at {len(prompts)} steps{cached}"
            )
            decoding = Decoding(
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.temperature,
                top_p=settings.top_p,
                seed=settings.seed,
                num_samples=settings.num_samples,
            )
            # a server is asked each missing sample by itself: one that is there is not paid again
            samples = (
                remote_samples(source, settings.model, protocols, missing, decoding)
                if source.endpoints
                else self._sample_here(prompts, protocols, decoding, missing)
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
        if source.endpoints:
            _put_in_order(path, prompts)

    def _missing(
        self, prompts: Sequence[Prompt], known: Container[CandidateKey]
    ) -> list[tuple[Prompt, int]]:
        """The prompts, and the numbers of their samples, that are not among the known ones."""
        name = self.settings.model
        return [
            (prompt, number)
            for prompt in prompts
            for number in range(self.settings.num_samples)
            if CandidateKey(*prompt.step, prompt.protocol, name, number) not in known
        ]

    def _sample_here(
        self,
        prompts: Sequence[Prompt],
        protocols: Mapping[str, Protocol],
        decoding: Decoding,
        missing: Sequence[tuple[Prompt, int]],
    ) -> Iterator[Candidate]:
        """Batch by batch. A batch is sampled again as a whole where a candidate of it is missing:
        its content is the same in every run, and so are its samples.
        """
        from agentlite.engine.local_sampler import plan_batches

        settings, wanted = self.settings, {prompt.step for prompt, _ in missing}
        sampler = make_sampler(
            self.source, settings.model, protocols, loading_of(settings), decoding
        )
        for indices in plan_batches([len(prompt.ids) for prompt in prompts], settings.batch_size):
            batch = [prompts[index] for index in indices]
            if any(prompt.step in wanted for prompt in batch):
                yield from sampler(batch)


def _find_source(settings: PairsSettings, target: RunTarget) -> Source:
    """The model; behind servers, with the template of the model that prep was run for."""
    if not settings.endpoint:
        return find_model(settings.model, target.run, target.begun)
    begun = run_folder.read(target.begun).plan if target.begun else None
    servers = begun.inputs.get("model", "") if begun else ""
    return served(settings.model, settings, model_of_prep(settings.data, target.run), servers)


def _refuse_sampling_again(target: RunTarget, plan: Plan) -> None:
    """Other weights need no new candidates. Raises UserError 3 with the command that ranks the
    existing ones.
    """
    if target.force or not is_sampled(target.folder):
        return
    before = run_folder.read_plan(target.folder)
    changes = run_folder.differences(before, plan)
    keys = [key for key in RANKING if before.settings.get(key) != plan.settings.get(key)]
    inputs = {
        key
        for key in before.inputs.keys() | plan.inputs.keys()
        if before.inputs.get(key) != plan.inputs.get(key)
    }
    if changes and len(changes) == len(keys) + len(inputs) and not inputs & {"data", "model"}:
        raise UserError(
            f"its candidates were ranked with other settings: {'; '.join(changes)}.",
            f"`agentlite pairs --from {shlex.quote(target.out)} ... --out "
            f"{shlex.quote(f'{target.out}-2')}` ranks the candidates that are there, without a "
            "model; --force samples again.",
            location=str(target.folder),
            exit_code=OTHER_PLAN,
        )


def _put_in_order(path: Path, prompts: Sequence[Prompt]) -> None:
    """The candidates of servers come in any order; pairs must not depend on it."""
    order = {prompt.step: number for number, prompt in enumerate(prompts)}
    found = list(read_candidates(path))
    ordered = sorted(
        found, key=lambda one: (one.model != GOLD, order.get(one.step, len(order)), one.sample)
    )
    if ordered != found:
        write_rows(path, map(msgspec.structs.asdict, ordered))
