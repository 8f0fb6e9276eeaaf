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


def pass_metrics(questions: Questions, name: str, file: Path) -> dict[str, Any]:
    """pass^1 to pass^k over the steps; where a prompt is too long, all is wrong. Each sample is
    appended to `file`, under the model's `name`; those that it holds for these very prompts are not
    sampled again.
    """
    settings, source, prompts, protocols = questions
    if not settings.num_samples:
        return {}
    wanted = range(settings.num_samples)
    decoding = Decoding(settings.max_new_tokens, settings.temperature, seed=settings.seed)
    decoding = decoding._replace(num_samples=settings.num_samples)
    # a sample counts for the prompt, the model and the settings that it was drawn with
    how = [source.digest, decoding.temperature, decoding.max_new_tokens, decoding.seed]
    keys = {
        step: digest(canonical([*how, prompt_key(prompt)]))
        for step, prompt in questions.fitting.items()
    }
    samples: dict[Step, dict[int, Candidate]] = defaultdict(dict)  # by step and number
    with Appender(file) as rows:
        for row in read_rows(file):
            candidate = msgspec.convert(row["candidate"], Candidate)
            if row.get("key", "") == keys.get(candidate.step):
                samples[candidate.step][candidate.sample] = candidate
        fitting = questions.fitting.items()
        left = [prompt for step, prompt in fitting if not {*wanted} <= samples[step].keys()]
        loading = loading_of(settings)
        sampler = make_sampler(source, name, protocols, loading, decoding) if left else None
        with console.progress(f"drawing {len(wanted)} of {name}", len(left)) as advance:
            for start in range(0, len(left), settings.batch_size):
                batch = left[start : start + settings.batch_size]
                for candidate in sampler(batch) if sampler else ():
                    samples[candidate.step][candidate.sample] = candidate
                    made = msgspec.to_builtins(candidate)
                    rows.append({"key": keys[candidate.step], "candidate": made})
                advance(start + len(batch))
    right = {}
    for prompt in prompts:
        protocol, drawn = protocols[prompt.protocol], samples[prompt.step]
        right[prompt.step] = [n in drawn and _is_right(prompt, drawn[n], protocol) for n in wanted]
    how_drawn = {"temperature": settings.temperature}
    return {"passes": passes(right, settings.seed), "passes_are": how_drawn}


def _is_right(prompt: Prompt, sample: Candidate, protocol: Protocol) -> bool:
    answer = GreedyAnswer(*prompt.step, "drawn", sample.text, sample.ended, sample.new_tokens)
    metrics = to_prediction(prompt, answer, protocol).metrics
    return metrics.get("exact_call", metrics["call_decision"]) == 1


# --- Forgetting ---


def forgetting_metrics(
    settings: EvalSettings, first: lookup.Source, source: lookup.Source, mixture: Mixture
) -> dict[str, Any]:
    """What a model forgot that the `first` one knew: over the general rows of a file, and over
    questions of our own, in English and Chinese.
    """
    if not settings.general or source.digest == first.digest:
        return {}
    records, loading = general_records(settings.general), loading_of(settings)
    # the model itself comes first: it is in memory already, and the first one is afterwards
    right = {
        model.digest: [
            _right_answers(model, file, loading, settings.batch_size) for file in ANSWER_TOKENS
        ]
        for model in (source, first)
    }
    before, after = (
        (_losses(model, records, mixture, loading), *right[model.digest])
        for model in (first, source)
    )
    return {
        "forgetting": forgetting(before, after, settings.seed),
        "forgetting_is": {"general": settings.general, "before": first.name, "after": source.name},
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
        right = {}
        for answer in chain.from_iterable(generate(loaded, ids, decoding, batch_size=batch_size)):
            row = questions[answer.prompt]
            right[row["question"]] = float(is_right(answer.text, row["answers"]))
    return right


# --- Self-cognition ---


def identity_of(settings: EvalSettings, prepared: Mapping[str, Any]) -> Identity | None:
    """The name and the author as eval's own settings say, or else those that prep filled in. None
    where there is neither. `prepared`: the settings of prep.
    """
    name = settings.model_name or prepared["model_name"]
    author = settings.model_author or prepared["model_author"]
    return Identity([*name], [*author], prepared["system"]) if name or author else None


def identity_records(identity: Identity) -> list[Record]:
    """Each question about what is known as a dialog without tools, in which no call is expected."""
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
    """Of what the model answered; with a prompt that was too long, nothing."""
    if not identity:
        return {}
    said = []
    for record in identity_records(identity):
        (turn,), about = record.prompted_turns, record.meta["about"]
        answer = answers[Step(record.id, turn)]
        text = read_turn(answer.text, mixture.protocol_of(record), record, turn).content
        said.append((about, record.meta["language"], is_right(text, getattr(identity, about))))
    return {"self_cognition": self_cognition(said, seed), "self_cognition_is": identity}


# --- What it was trained on ---

RECORDS = "records.jsonl"  # what a stage was given, where it keeps that itself


def learned_before(
    subjects: Iterable[EvalSubject], records: Sequence[Record], run: Path
) -> dict[str, dict[str, Any]]:
    """Of each model that was trained here, if it or a stage it was made from was trained on some of
    the records, or on rows that are not there any more.
    """
    asked, found = [_ties(record) for record in records], dict[str, dict[str, Any]]()

    @cache  # models are often made from the same stages
    def learned(folder: Path) -> int | None:
        """How many of the records a stage was trained on; None where its rows are not known."""
        if (path := _rows_of(folder)) is None:
            return None
        ties = set(chain.from_iterable(_ties(from_row(row)) for row in read_rows(path)))
        return sum(not ties.isdisjoint(one) for one in asked)

    with console.waiting("eval: comparing the questions with those that were learned"):
        for subject in subjects:
            if subject.source and not subject.source.endpoints:
                stage = re.sub(r"@\d+\Z", "", subject.name)  # sft@50 learned what sft learns
                counts = {one.name: learned(one) for one in _trained_stages(stage, run)}
                # None stays: nobody knows what that stage learned
                by_stage = {name: count for name, count in counts.items() if count != 0}
                if by_stage:
                    found[subject.name] = {"records": len(records), "by_stage": by_stage}
    return found


def _trained_stages(name: str, run: Path) -> list[Path]:
    """The stages with rows to learn that the model comes from, itself the first."""
    if not name or not lookup.is_stage(folder := lookup.find_stage(name, run)):
        return []
    stage = lookup.read_stage(folder)
    earlier = str(stage.settings.get("model") or "")
    before = _trained_stages(earlier, folder.parent) if earlier != name else []
    return [folder, *before] if "data" in stage.inputs else before


def _rows_of(folder: Path) -> Path | None:
    """The records that a stage was trained on, as long as its data is that of its plan."""
    stage = lookup.read_stage(folder)
    if stage.is_unchanged(RECORDS):
        return folder / RECORDS
    name = str(stage.settings.get("data") or "")
    data = lookup.read_stage(lookup.find_stage(name, folder.parent))
    digests = stage.inputs["data"].split(",")  # some stages note the first letters of each
    if not all(any(whole.startswith(one) for whole in data.outputs.values()) for one in digests):
        return None
    split = str(stage.settings.get("split") or "train")
    paths = (row_file(data.folder, name) for name in (split, Path(RECORDS).stem))
    return next((path for path in paths if data.is_unchanged(path.name)), None)


def _ties(record: Record) -> set[str]:
    """Keys that two records share if they are the same, or ask the same."""
    return {*parents(record), *filter(None, queries(record))}
