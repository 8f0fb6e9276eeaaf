"""The records and prompts of pairs, and the candidates that a model gives to them."""

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.endpoint_pool import refuse_unanswered
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, CandidateKey, Record
from agentlite.core.row_files import Appender, write_rows
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import Prompts
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import loading_of
from agentlite.engine.sampler import make_sampler, remote_samples
from agentlite.rendering import Prompt, Protocol
from agentlite.scoring.preference_pairs import gold_candidates, read_candidates
from agentlite.scoring.rewards import have_gold, refuse_without_gold
from agentlite.workspace.model_source import Source
from agentlite.workspace.run_folder import StageFolder

CANDIDATES = "candidates.jsonl"


def chosen_records(
    settings: PairsSettings, prepared: Prompts, weights: Mapping[str, float]
) -> list[Record]:
    """A sample of the records with a step to ask. Raises UserError 2 if there is none, or if
    `weights` need gold that is not there.
    """
    records = [record for record in prepared.records() if record.prompted_turns]
    if not records:
        raise UserError(
            "holds no record with tools.",
            "There must be something to choose: run prep on rows with tools,"
            " or with a smaller --test and --dev.",
            location=prepared.location,
        )
    refuse_without_gold(records, weights, prepared.location)
    if settings.gold and not have_gold(records):
        raise UserError(
            "prompts have no gold that could be chosen.", "Leave --gold out.", location="--gold"
        )
    return [records[index] for index in sample(records, settings.limit, settings.seed)]


def fitting_prompts(settings: PairsSettings, prompts: Iterable[Prompt]) -> tuple[list[Prompt], int]:
    """The prompts that leave room for an answer, and how many do not."""
    room = settings.max_length - settings.max_new_tokens
    if room <= 0:
        raise UserError(
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
            location="pairs.max_new_tokens",
        )
    every = list(prompts)
    fitting = [one for one in every if len(one.ids) <= room]
    if len(fitting) < len(every):
        console.notice(
            f"pairs: {len(every) - len(fitting)} prompts are longer than {room} tokens and give no "
            "pair"
        )
    if not fitting:
        raise UserError(
            f"every prompt is longer than {room} tokens.",
            "Raise --max-length.",
            location="pairs.max_length",
        )
    return fitting, len(every) - len(fitting)


def sample_candidates(
    settings: PairsSettings,
    source: Source,
    prompts: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
    stage: StageFolder,
) -> None:
    """Appends the missing candidates to candidates.jsonl, as they come. Raises UserError 8 where
    servers leave some unanswered and these are not to be left out; what they answered is kept.
    """
    path = stage.folder / CANDIDATES
    with Appender(path) as file:
        known = {candidate.key for candidate in read_candidates(path)}
        for gold in gold_candidates(prompts):
            if gold.key not in known:
                known.add(gold.key)
                file.append(msgspec.structs.asdict(gold))
    missing = missing_samples(settings, prompts, known)
    if missing:
        stage.expect(CANDIDATES, len(known) + len(missing))
        total = len(prompts) * settings.num_samples
        there = total - len(missing)
        cached = f", {there} there already" if there else ""
        console.notice(
            f"pairs: {total} candidates of {settings.model} at {len(prompts)} steps{cached}"
        )
        if source.endpoints:
            _sample_by_servers(settings, source, protocols, missing, path, there, total)
        else:
            _sample_here(settings, source, protocols, prompts, path, known)
    if source.endpoints:
        _put_in_order(path, prompts)


def missing_samples(
    settings: PairsSettings, prompts: Sequence[Prompt], known: Container[CandidateKey]
) -> list[tuple[Prompt, int]]:
    """The prompts, and the numbers of their samples, that are not among the known candidates."""
    return [
        (prompt, n)
        for prompt in prompts
        for n in range(settings.num_samples)
        if _key(settings, prompt, n) not in known
    ]


def _key(settings: PairsSettings, prompt: Prompt, sample: int) -> CandidateKey:
    return CandidateKey(*prompt.step, prompt.protocol, settings.model, sample)


def _decoding(settings: PairsSettings) -> Decoding:
    return Decoding(
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=settings.seed,
        num_samples=settings.num_samples,
    )


def _sample_here(
    settings: PairsSettings,
    source: Source,
    protocols: Mapping[str, Protocol],
    prompts: Sequence[Prompt],
    path: Path,
    known: Container[CandidateKey],
) -> None:
    """Batch by batch. A batch is sampled again as a whole where a candidate of it is missing: its
    content is the same in every run, and so are its samples.
    """
    from agentlite.engine.local_sampler import plan_batches

    samples = range(settings.num_samples)
    total, there = len(prompts) * len(samples), 0
    left = []
    for batch in plan_batches([len(one.ids) for one in prompts], settings.batch_size):
        of_batch = [prompts[index] for index in batch]
        keys = [_key(settings, prompt, n) for prompt in of_batch for n in samples]
        there += sum(key in known for key in keys)
        if any(key not in known for key in keys):
            left.append(of_batch)
    decoding = _decoding(settings)
    sampler = make_sampler(source, settings.model, protocols, loading_of(settings), decoding)
    with Appender(path) as file, console.progress("pairs", total) as advance:
        for of_batch in left:
            for candidate in sampler(of_batch):
                if candidate.key not in known:
                    file.append(msgspec.structs.asdict(candidate))
                    there += 1
            advance(there)


def _sample_by_servers(
    settings: PairsSettings,
    source: Source,
    protocols: Mapping[str, Protocol],
    missing: Sequence[tuple[Prompt, int]],
    path: Path,
    there: int,
    total: int,
) -> None:
    """Each missing sample on its own: one that was answered is not paid for again."""
    problems = []
    with Appender(path) as file, console.progress("pairs", total) as advance:
        for candidate in remote_samples(
            source, settings.model, protocols, missing, _decoding(settings)
        ):
            if isinstance(candidate, str):
                problems.append(candidate)
                continue
            file.append(msgspec.structs.asdict(candidate))
            advance(there := there + 1)
    # where nothing was answered there is nothing to pair, whoever is to blame
    none = not there
    if settings.unanswered == "ask" or none:
        effect = "" if none else "finishes without these candidates"
        refuse_unanswered(problems, total, source.name, effect)


def _put_in_order(path: Path, prompts: Sequence[Prompt]) -> None:
    """The candidates of servers come in any order; pairs must not depend on it."""
    order = {prompt.step: number for number, prompt in enumerate(prompts)}
    found = list(read_candidates(path))
    ordered = sorted(
        found, key=lambda one: (one.model != GOLD, order.get(one.step, len(order)), one.sample)
    )
    if ordered != found:
        write_rows(path, map(msgspec.structs.asdict, ordered))
