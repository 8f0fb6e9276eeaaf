"""A model and prompts -> candidates: the answers that are sampled at every step."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.openai_client import refuse_unanswered
from agentlite.core.records import GOLD, Candidate, CandidateKey, to_row
from agentlite.core.row_files import Appender, read_structs, write_rows
from agentlite.data.prompt_records import find_prompts
from agentlite.engine.decoding import decoding_of
from agentlite.engine.load import loading_of
from agentlite.engine.planning.choose import dry_run_memory
from agentlite.engine.remote import remote_source
from agentlite.engine.sampler import make_sampler, remote_samples
from agentlite.rendering import Prompt, Protocol
from agentlite.scoring.preference_pairs import gold_candidates
from agentlite.scoring.rewards import Component, all_have_gold, refuse_without_gold, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, function_files
from agentlite.stages.frame import Work, plan_of
from agentlite.stages.pairs.score import CANDIDATES, SCORES, make_pairs
from agentlite.stages.training import fitting_prompts
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Plan, RunTarget, Source, find_model, model_of_prep
from agentlite.workspace.stage_folder import StageFolder


def from_model(
    settings: PairsSettings, target: RunTarget, user_functions: Mapping[str, Component]
) -> tuple[Plan, Work]:
    """The candidates of a model, or of servers that have it, at the steps of a prep or of a file of
    prompts.
    """
    weights = settle_weights(settings.weights, user_functions)
    if settings.endpoint:  # the template is that of the model that prep was run for
        source = remote_source(settings.model, settings, model_of_prep(settings.data, target.run))
    else:
        source = find_model(settings.model, target.run, target.old_plan)
    prompt_data = find_prompts(settings.data, settings.split, source, target.run)
    inputs = {"data": prompt_data.digest, "model": source.digest} | function_files(settings.rewards)
    plan = plan_of("pairs", settings, inputs, protocol=prompt_data.protocol)

    def work() -> Work:
        template = load_template(source.base)
        room = settings.max_length - settings.max_new_tokens
        prompts, too_long, mixture = fitting_prompts("pairs", settings, prompt_data, template, room)
        records = {prompt.record.id: prompt.record for prompt in prompts}
        refuse_without_gold(records.values(), weights, prompt_data.location)
        if settings.gold and not all_have_gold(records.values()):
            raise UserError(
                "prompts have no gold that could be chosen.", "Leave --gold out.", location="--gold"
            )
        longest = max(len(prompt.ids) for prompt in prompts)
        tokens = longest + settings.max_new_tokens
        stage = yield {
            "steps": len(prompts),
            "candidates": len(prompts) * settings.num_samples,
            "too_long": too_long,
            "prompt_tokens": sum(len(prompt.ids) for prompt in prompts),
            "longest_prompt": longest,
            "memory_gib": dry_run_memory("pairs", settings, source.base, tokens)
            if target.dry_run
            else {},
        }
        write_rows(stage.folder / "records.jsonl", map(to_row, records.values()))
        for name in (CANDIDATES, SCORES):
            stage.set_aside_changed(name)
        candidates = _sample(stage, settings, source, prompts, mixture.protocols)
        figures: dict[str, object] = {"too_long": too_long, "lineage": source.lineage}
        if source.endpoints:
            unanswered = len(_missing_samples(settings, prompts, {c.key for c in candidates}))
            figures |= {"lineage": [settings.model], "unanswered": unanswered}
            if unanswered:
                console.notice(
                    f"pairs: {unanswered} samples have no answer from {source.name} and give no "
                    "candidate"
                )
        scorer = Scorer(records, mixture.protocols, user_functions)
        return make_pairs(stage, settings, weights, candidates, scorer, figures)

    return plan, work()


def _sample(
    stage: StageFolder,
    settings: PairsSettings,
    source: Source,
    prompts: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
) -> list[Candidate]:
    """Appends the missing candidates to candidates.jsonl, as they come: where servers leave some
    unanswered, what they answered is kept. Returns all of them.
    """
    path = stage.folder / CANDIDATES
    with Appender(path) as file:  # cuts a torn line
        known_keys = {candidate.key for candidate in read_structs(path, Candidate)}
        for gold in gold_candidates(prompts):
            if gold.key not in known_keys:
                known_keys.add(gold.key)
                file.append(msgspec.structs.asdict(gold))
    missing = _missing_samples(settings, prompts, known_keys)
    total = len(prompts) * settings.num_samples
    count = total - len(missing)
    if missing:
        if settings.judge:  # with more answers the shares of a step are others
            (stage.folder / SCORES).unlink(missing_ok=True)
        stage.expect_rows(CANDIDATES, len(known_keys) + len(missing))
        cached = f", {count} there already" if count else ""
        console.notice(
            f"pairs: {total} candidates of {settings.model} at {len(prompts)} steps{cached}"
        )
        problems = []
        with Appender(path) as file, console.progress("pairs", total) as advance:
            # a batch that is drawn again brings candidates that are known
            for candidate in _samples(settings, source, prompts, protocols, missing):
                if isinstance(candidate, str):
                    problems.append(candidate)
                elif candidate.key not in known_keys:
                    file.append(msgspec.structs.asdict(candidate))
                    advance(count := count + 1)
        # where nothing was answered there is nothing to pair, whoever is to blame
        if source.endpoints and (settings.unanswered == "ask" or not count):
            effect = "finishes without these candidates" if count else ""
            refuse_unanswered(problems, total, source.name, effect)
    candidates = list(read_structs(path, Candidate))
    if source.endpoints:  # they answer in any order, and pairs must not depend on it
        order = {prompt.step: number for number, prompt in enumerate(prompts)}
        candidates.sort(key=lambda c: (c.model != GOLD, order.get(c.step, len(order)), c.sample))
        write_rows(path, map(msgspec.structs.asdict, candidates))
    return candidates


def _missing_samples(
    settings: PairsSettings, prompts: Iterable[Prompt], known_keys: Collection[CandidateKey]
) -> list[tuple[Prompt, int]]:
    """The prompts, and the numbers of their samples, that are not among the known ones."""
    return [
        (prompt, number)
        for prompt in prompts
        for number in range(settings.num_samples)
        if CandidateKey(*prompt.step, prompt.protocol, settings.model, number) not in known_keys
    ]


def _samples(
    settings: PairsSettings,
    source: Source,
    prompts: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
    missing: Sequence[tuple[Prompt, int]],
) -> Iterator[Candidate | str]:
    """The missing candidates, and why a server gave none. A model here samples batch by batch: a
    batch is sampled again as a whole where a candidate of it is missing, since its content is the
    same in every run, and so are its samples.
    """
    decoding = decoding_of(settings)._replace(num_samples=settings.num_samples)
    if source.endpoints:  # each is asked by itself: one that is there is not paid again
        yield from remote_samples(source, settings.model, protocols, missing, decoding)
        return
    from agentlite.engine.local_sampler import plan_batches

    missing_steps = {prompt.step for prompt, _ in missing}
    sampler = make_sampler(source, settings.model, protocols, loading_of(settings), decoding)
    for indices in plan_batches([len(prompt.ids) for prompt in prompts], settings.batch_size):
        batch = [prompts[index] for index in indices]
        if any(prompt.step in missing_steps for prompt in batch):
            yield from sampler(batch)
