"""What is measured besides predictions: judges, pass^k, what a model forgot, who it says it is, and
how many of the questions it was trained on.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from agentlite.config.settings import EvalSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import (
    Candidate,
    Gold,
    GreedyAnswer,
    Message,
    Prediction,
    Record,
    Step,
    canonical,
    digest,
    from_row,
)
from agentlite.core.row_files import Appender, read_rows, row_file
from agentlite.data.curation.traits import parents, queries
from agentlite.data.prompt_records import STAND_IN, Prompts
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load_for_inference, loading_of
from agentlite.engine.local_sampler import generate
from agentlite.engine.remote import judge_endpoint
from agentlite.engine.sampler import make_sampler
from agentlite.rendering import Mixture, Prompt, Protocol, encoding
from agentlite.scoring.judge.llm_judge import VERDICTS, judge_metrics
from agentlite.scoring.metrics.general_talk import Identity, forgetting, is_right, self_cognition
from agentlite.scoring.metrics.summarize import passes
from agentlite.scoring.predictions import prompt_key, to_prediction
from agentlite.scoring.read_turn import read_turn
from agentlite.stages.eval.subjects import EvalSubject, Questions
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.stage_folder import StageFolder

FOLDER = Path(__file__).parent
QUESTIONS, QUESTIONS_ZH = FOLDER / "questions.jsonl", FOLDER / "questions_zh.jsonl"
ANSWER_TOKENS = {QUESTIONS: 24, QUESTIONS_ZH: 48}  # small vocabularies cut a character in three
IDENTITY_QUESTIONS = FOLDER / "identity_questions.jsonl"
SAMPLES = "samples.jsonl"


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


def judge_figures(
    settings: EvalSettings,
    predictions: Sequence[Prediction],
    records: Mapping[str, Record],
    stage: StageFolder,
) -> dict[str, Any]:
    """The judge's figures, where there is one."""
    endpoint = judge_endpoint(settings)
    if not endpoint:
        return {}

    def begin(rows: int) -> None:
        stage.reopen()
        stage.expect_rows(VERDICTS, rows)

    figures, judge = judge_metrics(
        predictions,
        records,
        endpoint,
        stage.folder / VERDICTS,
        settings.seed,
        leave_out=settings.unanswered == "wrong",
        begin=begin,
    )
    return {"judge": figures, "judge_is": judge}


# --- pass^k ---


def pass_metrics(questions: Questions, name: str, path: Path) -> dict[str, Any]:
    """pass^1 to pass^k over the steps; where a prompt is too long, all is wrong. Each sample is
    appended to the file, under the model's `name`; those that it holds for these very prompts are
    not sampled again.
    """
    settings, source, prompts, protocols = questions
    if not settings.num_samples:
        return {}
    numbers = range(settings.num_samples)  # of the samples of a step
    decoding = Decoding(settings.max_new_tokens, settings.temperature, seed=settings.seed)
    decoding = decoding._replace(num_samples=settings.num_samples)
    # a sample counts for the prompt, the model and the settings that it was drawn with
    origin = [source.digest, decoding.temperature, decoding.max_new_tokens, decoding.seed]
    fitting = questions.fitting.items()
    keys = {step: digest(canonical([*origin, prompt_key(prompt)])) for step, prompt in fitting}
    samples: dict[Step, dict[int, Candidate]] = defaultdict(dict)  # by step and number
    with Appender(path) as file:
        for row in read_rows(path):
            candidate = msgspec.convert(row["candidate"], Candidate)
            if row.get("key", "") == keys.get(candidate.step):
                samples[candidate.step][candidate.sample] = candidate
        missing = [prompt for step, prompt in fitting if not {*numbers} <= samples[step].keys()]
        loading = loading_of(settings)
        sampler = make_sampler(source, name, protocols, loading, decoding) if missing else None
        with console.progress(f"drawing {len(numbers)} of {name}", len(missing)) as advance:
            for start in range(0, len(missing), settings.batch_size):
                batch = missing[start : start + settings.batch_size]
                for candidate in sampler(batch) if sampler else ():
                    samples[candidate.step][candidate.sample] = candidate
                    row = {"key": keys[candidate.step], "candidate": msgspec.to_builtins(candidate)}
                    file.append(row)
                advance(start + len(batch))
    outcomes = {}
    for prompt in prompts:
        protocol, step_samples = protocols[prompt.protocol], samples[prompt.step]
        outcomes[prompt.step] = [
            n in step_samples and _is_right(prompt, step_samples[n], protocol) for n in numbers
        ]
    sampling = {"temperature": settings.temperature}
    return {"passes": passes(outcomes, settings.seed), "passes_are": sampling}


def _is_right(prompt: Prompt, sample: Candidate, protocol: Protocol) -> bool:
    answer = GreedyAnswer(*prompt.step, "drawn", sample.text, sample.ended, sample.new_tokens)
    metrics = to_prediction(prompt, answer, protocol).metrics
    return metrics.get("exact_call", metrics["call_decision"]) == 1


# --- Forgetting ---


def forgetting_metrics(
    settings: EvalSettings, start: lookup.Source, source: lookup.Source, mixture: Mixture
) -> dict[str, Any]:
    """What a model forgot that the `start` knew, the first of the models: over the general rows of
    a file, and over questions of our own, in English and Chinese.
    """
    if not settings.general or source.digest == start.digest:
        return {}
    records, loading = general_records(settings.general), loading_of(settings)
    # the model itself comes first: it is in memory already, and the start is afterwards
    answers = {
        model.digest: [
            _right_answers(model, f, loading, settings.batch_size) for f in ANSWER_TOKENS
        ]
        for model in (source, start)
    }
    before, after = (
        (_losses(model, records, mixture, loading), *answers[model.digest])
        for model in (start, source)
    )
    return {
        "forgetting": forgetting(before, after, settings.seed),
        "forgetting_is": {"general": settings.general, "before": start.name, "after": source.name},
    }


def _losses(
    source: lookup.Source, records: Sequence[Record], mixture: Mixture, loading: Loading
) -> dict[str, float]:
    """Nats a trained token, by record; one that is too long for the model, or trains nothing, is
    left out.
    """
    template = load_template(source.base)
    rows: dict[str, list[encoding.Encoded]] = {}
    for record in records:
        try:
            encoded = encoding.training_rows(record, mixture.protocol_of(record), template)
        except RowError:  # it cannot be written in this protocol
            continue
        if encoded and max(len(row.input_ids) for row in encoded) <= loading.max_length:
            rows[record.id] = encoded
    if not rows:
        raise UserError(
            f"no row fits into {loading.max_length} tokens.",
            "Raise --max-length.",
            location="--general",
        )
    from agentlite.engine.summed_loss import record_losses

    losses = record_losses(list(rows), rows.__getitem__, source, loading)
    return {record_id: loss for record_id, loss in losses if math.isfinite(loss)}


@cache  # the first model is compared with each of the others
def _right_answers(
    source: lookup.Source, file: Path, loading: Loading, batch_size: int
) -> dict[str, float]:
    """By question of a file, 1 if the model answers it; greedily."""
    template, questions = load_template(source.base), list(read_rows(file))
    loaded = load_for_inference(source, loading)
    dialogs = [[{"role": "user", "content": row["question"]}] for row in questions]
    ids = [template.encode(template.render(dialog, prompt=True)) for dialog in dialogs]
    decoding = Decoding(ANSWER_TOKENS[file]).under(template)
    with console.waiting(f"eval: asking {source.name} {len(questions)} general questions"):
        scores = {}
        for answer in chain.from_iterable(generate(loaded, ids, decoding, batch_size=batch_size)):
            row = questions[answer.prompt]
            scores[row["question"]] = float(is_right(answer.text, row["answers"]))
    return scores


# --- Self-cognition ---


def identity_of(settings: EvalSettings, prep_settings: Mapping[str, Any]) -> Identity | None:
    """The name and the author as eval's own settings say, or else those that prep filled in. None
    where there is neither.
    """
    name = settings.model_name or prep_settings["model_name"]
    author = settings.model_author or prep_settings["model_author"]
    return Identity([*name], [*author], prep_settings["system"]) if name or author else None


def identity_records(identity: Identity) -> list[Record]:
    """A dialog without tools, where no call is expected, for each question about what is known."""
    system = (Message("system", identity.system),) if identity.system else ()
    return [
        Record(
            messages=(*system, Message("user", row["question"]), Message("assistant", STAND_IN)),
            gold={len(system) + 1: Gold()},
            task="self_cognition",
            meta=row,
        )
        for row in read_rows(IDENTITY_QUESTIONS)
        if getattr(identity, row["about"])
    ]


def identity_metrics(
    identity: Identity | None, answers: Mapping[Step, GreedyAnswer], mixture: Mixture, seed: int
) -> dict[str, Any]:
    """How often the model says who it is; where a prompt was too long, it says nothing."""
    if not identity:
        return {}
    outcomes = []
    for record in identity_records(identity):
        (turn,), about = record.prompted_turns, record.meta["about"]
        answer = answers[Step(record.id, turn)]
        text = read_turn(answer.text, mixture.protocol_of(record), record, turn).content
        outcomes.append((about, record.meta["language"], is_right(text, getattr(identity, about))))
    return {"self_cognition": self_cognition(outcomes, seed), "self_cognition_is": identity}


# --- What it was trained on ---

RECORDS = "records.jsonl"  # what a stage was given, where it keeps that itself


def count_learned(
    subjects: Iterable[EvalSubject], records: Sequence[Record], run: Path
) -> dict[str, dict[str, Any]]:
    """By model that was trained here, how many of the records it, or a stage it was made from, was
    trained on; None where the rows of a stage are not there any more.
    """
    record_ties = [_ties(record) for record in records]
    figures: dict[str, dict[str, Any]] = {}

    @cache  # models are often made from the same stages
    def count_of(folder: Path) -> int | None:
        """How many of the records a stage was trained on; None where its rows are not known."""
        if (path := _training_file(folder)) is None:
            return None
        learned_ties = set(chain.from_iterable(_ties(from_row(row)) for row in read_rows(path)))
        return sum(not learned_ties.isdisjoint(ties) for ties in record_ties)

    with console.waiting("eval: comparing the questions with those that were learned"):
        for subject in subjects:
            if subject.source and not subject.source.endpoints:
                stage = re.sub(r"@\d+\Z", "", subject.name)  # sft@50 learned what sft learns
                counts = {path.name: count_of(path) for path in _training_stages(stage, run)}
                # None stays: nobody knows what that stage learned
                if by_stage := {name: count for name, count in counts.items() if count != 0}:
                    figures[subject.name] = {"records": len(records), "by_stage": by_stage}
    return figures


def _training_stages(name: str, run: Path) -> list[Path]:
    """The stages with rows to learn that the model comes from, itself the first."""
    if not name or not lookup.is_stage(folder := lookup.find_stage(name, run)):
        return []
    stage = lookup.read_stage(folder)
    start = str(stage.settings.get("model") or "")
    earlier_stages = _training_stages(start, folder.parent) if start != name else []
    return [folder, *earlier_stages] if "data" in stage.inputs else earlier_stages


def _training_file(folder: Path) -> Path | None:
    """The records that a stage was trained on, as long as its data is that of its plan."""
    stage = lookup.read_stage(folder)
    if stage.is_unchanged(RECORDS):
        return folder / RECORDS
    name = str(stage.settings.get("data") or "")
    data = lookup.read_stage(lookup.find_stage(name, folder.parent))
    for prefix in stage.inputs["data"].split(","):  # some stages note the first letters of each
        if not any(file_digest.startswith(prefix) for file_digest in data.outputs.values()):
            return None
    split = str(stage.settings.get("split") or "train")
    paths = (row_file(data.folder, name) for name in (split, Path(RECORDS).stem))
    return next((path for path in paths if data.is_unchanged(path.name)), None)


def _ties(record: Record) -> set[str]:
    """Keys that two records share if they are the same, or ask the same."""
    return {*parents(record), *filter(None, queries(record))}
