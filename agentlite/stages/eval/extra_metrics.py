"""Extra metrics of an evaluated model: what it forgot, and how often k samples are all right."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import EvalSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Candidate, GreedyAnswer, Record, Step, canonical, digest
from agentlite.core.row_files import Appender, read_rows
from agentlite.data.prompt_records import Prompts
from agentlite.engine.decoding import Decoding
from agentlite.engine.generate import generate
from agentlite.engine.load import Loading, load_for_inference, loading_of
from agentlite.engine.sampler import make_sampler
from agentlite.rendering import Mixture, Prompt, Protocol, encoding
from agentlite.scoring.metrics.confidence import Summary
from agentlite.scoring.metrics.general_talk import (
    GeneralResults,
    forgetting,
    is_right,
)
from agentlite.scoring.metrics.summarize import passes
from agentlite.scoring.predictions import answered, prompt_key
from agentlite.workspace.model_source import Source, load_template

QUESTIONS = Path(__file__).parent / "questions.jsonl"
QUESTIONS_ZH = Path(__file__).parent / "questions_zh.jsonl"
ANSWER_TOKENS = {QUESTIONS: 24, QUESTIONS_ZH: 48}  # small vocabularies cut a character in three


def forgetting_metrics(
    settings: EvalSettings, before: Source, after: Source, mixture: Mixture
) -> dict[str, Any]:
    """Over the general rows of a file, and over questions of our own, in English and Chinese."""
    records, loading = general_records(settings.general), loading_of(settings)
    # `after` comes first: it is in memory already
    right = {
        source.digest: [
            _right_answers(source, file, loading, settings.batch_size) for file in ANSWER_TOKENS
        ]
        for source in (after, before)
    }
    first, second = (
        GeneralResults(_losses(source, records, mixture, loading), *right[source.digest])
        for source in (before, after)
    )
    return forgetting(first, second, settings.seed)


def general_records(file: str) -> list[Record]:
    """Raises UserError with file and line for a row that is none, or a file without any."""
    records = list(Prompts(file, "", "", False).records())
    if not records:
        raise UserError(
            "holds no row.",
            "Name a file of general talk, in any format that prep reads.",
            location=f"--general {file}",
        )
    return records


def pass_metrics(
    settings: EvalSettings,
    source: Source,
    name: str,
    prompts: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
    file: Path,
) -> dict[str, Summary]:
    """pass^1 to pass^k over the steps; where a prompt is too long, all is wrong. Each sample is
    appended to `file`, under the model's `name`.
    """
    room = settings.max_length - settings.max_new_tokens
    right: dict[Step, list[bool]] = {
        prompt.step: [False] * (settings.num_samples or 0) for prompt in prompts
    }
    fitting = [prompt for prompt in prompts if len(prompt.ids) <= room]
    samples = _sample(settings, source, name, fitting, protocols, file)
    for prompt in fitting:
        right[prompt.step] = []
        for candidate in samples[prompt.step]:
            answer = GreedyAnswer(
                *prompt.step, "drawn", candidate.text, candidate.ended, candidate.new_tokens
            )
            metrics = answered(prompt, answer, protocols[prompt.protocol]).metrics
            right[prompt.step].append(metrics.get("exact_call", metrics["call_decision"]) == 1)
    return passes(right, settings.seed)


def _sample(
    settings: EvalSettings,
    source: Source,
    name: str,
    prompts: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
    file: Path,
) -> dict[Step, list[Candidate]]:
    """The candidates at each step. Those that the file holds for these very prompts are not sampled
    again.
    """
    decoding = Decoding(
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        seed=settings.seed,
        num_samples=settings.num_samples or 0,
    )
    how = [decoding.temperature, decoding.top_p, decoding.max_new_tokens, decoding.seed]
    request = digest(canonical([source.digest, *how]))
    keys = {prompt.step: prompt_key(prompt) for prompt in prompts}
    wanted = range(decoding.num_samples)
    by_step: dict[Step, dict[int, Candidate]] = defaultdict(dict)
    with Appender(file) as rows:
        for row in read_rows(file):
            candidate = msgspec.convert(row["candidate"], Candidate)
            if row.get("request") == request and row["prompt"] == keys.get(candidate.step):
                by_step[candidate.step][candidate.sample] = candidate
        left = [prompt for prompt in prompts if not {*wanted} <= by_step[prompt.step].keys()]
        loading = loading_of(settings)
        sampler = make_sampler(source, name, protocols, loading, decoding) if left else None
        with console.progress(f"drawing {decoding.num_samples} of {name}", len(left)) as advance:
            for start in range(0, len(left), settings.batch_size):
                batch = left[start : start + settings.batch_size]
                for candidate in sampler(batch) if sampler else ():
                    by_step[candidate.step][candidate.sample] = candidate
                    row = {
                        "request": request,
                        "prompt": keys[candidate.step],
                        "candidate": msgspec.to_builtins(candidate),
                    }
                    rows.append(row)
                advance(start + len(batch))
    return {step: [samples[number] for number in wanted] for step, samples in by_step.items()}


def _losses(
    source: Source, records: Sequence[Record], mixture: Mixture, loading: Loading
) -> dict[str, float]:
    """Nats a trained token, by record; one that is too long for the model, or trains nothing, is
    left out.
    """
    template = load_template(source.base)
    rows: dict[str, list[encoding.Encoded]] = {}
    for record in records:
        try:
            encoded = encoding.training_rows(record, mixture.of(record), template)
        except RowError:
            continue
        if encoded and max(len(row.input_ids) for row in encoded) <= loading.max_length:
            rows[record.id] = encoded
    if not rows:
        raise UserError(
            f"no row fits into {loading.max_length} tokens.",
            "Raise --max-length.",
            location="--general",
        )
    from agentlite.engine.weighted_loss import record_losses

    losses = record_losses(list(rows), rows.__getitem__, source, loading)
    return {record_id: loss for record_id, loss in losses if math.isfinite(loss)}


@cache
def _right_answers(
    source: Source, file: Path, loading: Loading, batch_size: int
) -> dict[str, bool]:
    """By question of a file, whether the model answers it; greedily."""
    template, questions = load_template(source.base), list(read_rows(file))
    loaded = load_for_inference(source, loading)
    dialogs = [[{"role": "user", "content": row["question"]}] for row in questions]
    ids = [template.encode(template.render(dialog, prompt=True)) for dialog in dialogs]
    decoding = Decoding(ANSWER_TOKENS[file]).under(template)
    with console.waiting(f"eval: asking {source.name} {len(questions)} general questions"):
        batches = generate(loaded, ids, decoding, batch_size=batch_size)
        return {
            questions[completion.prompt]["question"]: is_right(
                completion.text, questions[completion.prompt]["answers"]
            )
            for completion in chain.from_iterable(batches)
        }
