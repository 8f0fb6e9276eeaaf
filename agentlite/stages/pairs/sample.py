"""The records and prompts of pairs, and the candidates that a model gives to them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import CandidateKey, Record
from agentlite.core.row_files import Appender
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import Prompts
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import loading_of
from agentlite.engine.sampler import make_sampler
from agentlite.rendering import Prompt
from agentlite.scoring.preference_pairs import gold_candidates, read_candidates
from agentlite.scoring.rewards import have_gold, refuse_without_gold
from agentlite.workspace.model_source import Source


def chosen_records(
    settings: PairsSettings, prepared: Prompts, weights: Mapping[str, float]
) -> list[Record]:
    """A sample of the records with a step to ask. Raises UserError 2 where there is none, or where
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
    settings: PairsSettings, source: Source, prompts: Sequence[Prompt], folder: Path
) -> None:
    """Appends the missing candidates to candidates.jsonl, batch by batch. A batch is sampled again
    as a whole: its content is the same in every run, and so are its samples.
    """
    from agentlite.engine.local_sampler import plan_batches

    path = folder / "candidates.jsonl"
    with Appender(path) as file:
        known = {candidate.key for candidate in read_candidates(path)}
        for gold in gold_candidates(prompts):
            if gold.key not in known:
                file.append(msgspec.structs.asdict(gold))
        keys = [
            [
                CandidateKey(*one.step, one.protocol, settings.model, n)
                for n in range(settings.num_samples)
            ]
            for one in prompts
        ]
        batches = plan_batches([len(one.ids) for one in prompts], settings.batch_size)
        left = [
            batch
            for batch in batches
            if any(key not in known for index in batch for key in keys[index])
        ]
        if left:
            total = len(prompts) * settings.num_samples
            there = sum(key in known for of_prompt in keys for key in of_prompt)
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
            sampler = make_sampler(source, settings.model, loading_of(settings), decoding)
            with console.progress("pairs", total) as advance:
                for batch in left:
                    for candidate in sampler([prompts[index] for index in batch]):
                        if candidate.key not in known:
                            file.append(msgspec.structs.asdict(candidate))
                            there += 1
                    advance(there)
