"""finished prep + models -> completions, predictions, metrics of each model, and a comparison."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.conditions import Condition
from agentlite.core.errors import UserError
from agentlite.core.openai_client import Endpoint, check
from agentlite.core.records import Prediction, Step, digest, plain
from agentlite.core.row_files import refuse_unwritable, write_json, write_rows
from agentlite.engine import check_libraries
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import loading_of
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.engine.planning.estimate import data_of
from agentlite.rendering import Mixture, Prompt, settled
from agentlite.rendering import prompts as prompts_of
from agentlite.report import write_report
from agentlite.report.headline import headline
from agentlite.scoring.gates import check_figure, failures, parse_gate
from agentlite.scoring.judge.llm_judge import Prices
from agentlite.scoring.judge.rate_answers import judge_metrics, write_sheets
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.model_metrics import (
    HEADLINE,
    Comparison,
    ForgettingSource,
    LearnedBefore,
    Metrics,
    SamplingOfPasses,
    as_printed,
    means,
    read_metrics,
)
from agentlite.scoring.metrics.self_cognition import Identity, IdentityAnswer, self_cognition
from agentlite.scoring.metrics.summarize import Scores, compare, figures, scores
from agentlite.scoring.metrics.wrong_answers import UNANSWERED
from agentlite.scoring.predictions import (
    answered,
    external_prediction,
    read_predictions,
    to_prediction_row,
)
from agentlite.stages.eval.ask import ANSWERS, answered_steps, ask
from agentlite.stages.eval.compare_folders import WITHOUT_A_MODEL, earlier_scores
from agentlite.stages.eval.extra_metrics import (
    forgetting_metrics,
    general_records,
    pass_metrics,
)
from agentlite.stages.eval.identity import (
    SELF_COGNITION,
    identity_answers,
    identity_of,
    identity_records,
)
from agentlite.stages.eval.learned_before import learned_before
from agentlite.stages.eval.live import evaluate_live
from agentlite.stages.eval.subjects import (
    EvalData,
    EvalSubject,
    data_folder,
    find_subjects,
    load_data,
    slug,
    with_retrieved_tools,
)
from agentlite.workspace import folder_lock, run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.lineage import longer_rows
from agentlite.workspace.model_source import Source, load_template
from agentlite.workspace.run_folder import Result, RunTarget

VERDICTS = "verdicts.jsonl"


class Evaluated(NamedTuple):
    folder: Path
    metrics: Metrics
    scores: Scores
    status: str
    seconds: float


def run(settings: EvalSettings, target: RunTarget) -> Result:
    """Evaluates every model in turn. Raises UserError 2, 3, 5, 7, 8, 74 or 75; answers that are
    there are kept.
    """
    gate = parse_gate(settings.gate, own_scores=bool(settings.env))
    run_folder.refuse_other_command(target.folder, "eval")
    if settings.env:
        return evaluate_live(settings, target, gate)
    _check_figures(settings)
    for name, compare_only in WITHOUT_A_MODEL.items():
        if getattr(settings, name):
            return compare_only(settings, target.run, gate)
    data = load_data(settings, target.run)
    _check_settings(settings)
    settings, data = _with_retrieval(settings, data, target.run)
    with console.stdout_to_stderr():
        subjects = find_subjects(settings, data, target)
        if target.dry_run:
            return _dry_run(settings, target, subjects, data)
        evaluated = _evaluate_all(settings, target, subjects, data)
        if settings.sheet:
            by_model = {
                name: list(read_predictions(one.folder / "predictions.jsonl"))
                for name, one in evaluated.items()
            }
            write_sheets(by_model, data.every, Path(settings.sheet), settings.seed)
        base = target.folder / data_folder(settings)
        with (
            console.waiting("eval: comparing the models, writing the report"),
            folder_lock.in_turn(target.run),
        ):
            comparison = _write_comparison(base, evaluated, data.digest, settings.seed)
            write_report(target.run)
    return _result(settings, target, evaluated, comparison, gate)


def _with_retrieval(
    settings: EvalSettings, data: EvalData, run: Path
) -> tuple[EvalSettings, EvalData]:
    """The settings without what has no effect, and the data with the tools that are retrieved."""
    usual = default("eval", "retrieve_by")
    if settings.retrieve:
        return settings, with_retrieved_tools(settings, data, run)
    if settings.retrieve_by != usual:
        console.notice("eval: retrieve_by does nothing without retrieve")
    return replace(settings, retrieve_by=usual), data  # it is part of no plan then


def _evaluate_all(
    settings: EvalSettings,
    target: RunTarget,
    subjects: Sequence[EvalSubject],
    data: EvalData,
) -> dict[str, Evaluated]:
    """Every model by its name; which of them learned some of the questions is said at the end."""
    if settings.sheet:
        refuse_unwritable(Path(settings.sheet).parent)
    base = target.folder / data_folder(settings)
    first = next((one.source for one in subjects if one.source), None)
    learned = learned_before(subjects, data.records, target.run)
    evaluated = {
        one.name: _evaluate(
            settings,
            one,
            first,
            data,
            base / slug(one.name),
            target.force,
            learned.get(one.name, UNSET),
        )
        for one in subjects
    }
    for name, one in learned.items():
        for sentence in one.sentences(name):
            console.notice(f"eval: {sentence.rstrip('.')}")
    return evaluated


def _result(
    settings: EvalSettings,
    target: RunTarget,
    evaluated: Mapping[str, Evaluated],
    comparison: Comparison | None,
    gate: Sequence[Condition],
) -> Result:
    """What is printed; the gate is for the last model."""
    *_, last = evaluated.values()
    done = any(one.status == "done" for one in evaluated.values())
    return Result(
        "eval",
        "done" if done else "up to date",
        str(target.folder),
        {name: as_printed(one.metrics, settings.metrics) for name, one in evaluated.items()},
        [str(one.folder.relative_to(target.folder) / "metrics.json") for one in evaluated.values()],
        round(sum(one.seconds for one in evaluated.values()), 1),
        target.next("agentlite report"),
        failures(gate, means(last.metrics)),
        headline(
            {one.folder.name: msgspec.to_builtins(one.metrics) for one in evaluated.values()},
            msgspec.to_builtins(comparison.differences) if comparison else [],
        ),
    )


def key_figure(figures: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{words} {100 * figures[name]:.0f} %"
        for name, words in HEADLINE.items()
        if name in figures
    )


def inherit(settings: EvalSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of prep's rows; with --env, that of a rollout."""
    if settings.env:
        return {"max_length": (default("rollout", "max_length"), "--env")}
    return longer_rows("eval", settings.data, run)


def _check_figures(settings: EvalSettings) -> None:
    """Raises UserError 2 for a figure that is not one of answers."""
    if settings.rewards:
        raise UserError(
            "gives figures of rollouts, and there is no --env.",
            "Add --env, or leave it out: `agentlite pairs` and grpo take rewards for single "
            "answers.",
            location="--rewards",
        )
    for name in settings.metrics:
        check_figure(name, "--metrics")


def _check_settings(settings: EvalSettings) -> None:
    """Raises UserError 2 for settings that would fail only after the models were asked."""
    if settings.max_new_tokens >= settings.max_length:
        raise UserError(
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
            location="eval.max_new_tokens",
        )
    if settings.sheet and Path(settings.sheet).exists():
        raise UserError(
            "is there already: somebody may have scored it.",
            "Name another file, or remove that one.",
            location=f"--sheet {settings.sheet}",
        )
    if settings.judge and not settings.judge_model:
        raise UserError(
            "which model is the judge?",
            "Add --judge-model NAME, as the endpoint calls it.",
            location="--judge",
        )
    if len(settings.judge_prices) not in (0, 2):
        raise UserError(
            "are two: of a million tokens read, and of a million written.",
            "Write them as 0.5,1.5.",
            location="eval.judge_prices",
        )
    if settings.judge:
        check(_judge_endpoint(settings), "--judge")
    if settings.endpoint and not settings.model:
        raise UserError(
            "which of its models?",
            "Add --model NAME, as the server calls it.",
            location="--endpoint",
        )
    if settings.endpoint and (settings.general or settings.num_samples):
        raise UserError(
            "needs the model itself.",
            "Leave it out, or leave --endpoint out.",
            location="--general" if settings.general else "--num-samples",
        )
    if settings.protocol and settings.endpoint:
        raise UserError(
            "is for models that agentlite prompts itself: a server writes its own prompts.",
            "Leave it out, or leave --endpoint out.",
            location="--protocol",
        )
    if settings.retrieve and settings.predictions:
        raise UserError(
            "have prompts without the tools that are retrieved now.",
            f"Prepare these, agentlite prep --retrieve {settings.retrieve}, and evaluate that.",
            location="--predictions",
        )
    if settings.general:
        general_records(settings.general)


def _judge_endpoint(settings: EvalSettings) -> Endpoint:
    return Endpoint(
        settings.judge,
        settings.judge_model,
        settings.judge_key,
        settings.requests.seconds,
        settings.requests.tries,
        concurrency=settings.requests.concurrency,
    )


def _dry_run(
    settings: EvalSettings,
    target: RunTarget,
    subjects: Sequence[EvalSubject],
    data: EvalData,
) -> Result:
    """How many prompts each model would still be asked, and the memory that it takes."""
    figures, base = {}, target.folder / data_folder(settings)
    longest = data_of("eval", settings, target.run).longest
    identity = identity_of(settings, data.prepared)
    for subject in subjects:
        folder = base / slug(subject.name)
        if not target.force:
            run_folder.compare(folder, subject.plan)
        about_itself = identity_records(identity) if identity and subject.source else []
        steps = {
            Step(record.id, turn)
            for record in (*data.records, *about_itself)
            for turn in record.prompted_turns
        }
        answered = set() if target.force else answered_steps(folder, settings.unanswered)
        is_local = subject.source and not subject.source.endpoints
        memory = (
            dry_run_memory("eval", settings, subject.source.base, longest)
            if subject.source and is_local
            else {}
        )
        figures[subject.name] = {
            "prompts": len(steps),
            "missing": len(steps - answered) if subject.source else 0,
            "memory_gib": memory,
        }
    return Result("eval", "dry run", str(base), figures, [], 0.0)


def _evaluate(
    settings: EvalSettings,
    subject: EvalSubject,
    first: Source | None,
    data: EvalData,
    folder: Path,
    force: bool,
    learned: LearnedBefore | UnsetType,
) -> Evaluated:
    """Asks what was not asked yet; every answer is read and scored anew, so that a new metric needs
    no new completion.
    """
    source = subject.source
    if source and not source.endpoints and (force or not (folder / ANSWERS).exists()):
        check_libraries(settings.engine)
    with run_folder.open_stage(folder, subject.plan, force=force) as stage:
        answers = _answers(settings, subject, data, stage)
        predictions = answers.predictions
        whole = dialogs(predictions, data.every)
        unanswered = sum(one.problem == UNANSWERED for one in predictions)
        if unanswered:
            console.notice(
                f"eval: {unanswered} of {len(predictions)} questions have no answer from "
                f"{subject.name} and count as wrong"
            )
        extra = _extra_metrics(settings, subject, first, data, answers, stage)
        extra["learned_before"] = learned

        # the figures of these very predictions, scored as they are now, are not measured twice
        scored = digest(plain([settings.seed, *map(to_prediction_row, predictions)]))
        key = f"{len(predictions)} {scored}"
        is_measured = stage.status == "done" and stage.done.figures.get("steps") == key
        earlier = read_metrics(folder / "metrics.json") if is_measured else None
        metrics = replace(earlier, **extra) if earlier else None
        if metrics is None or metrics != earlier:
            stage.outcome = "done"
            with console.waiting(f"eval: scoring {len(predictions)} answers of {subject.name}"):
                metrics = metrics or replace(
                    figures(predictions, whole, data.every, settings.seed),
                    unanswered=unanswered or UNSET,
                    **extra,
                )
            write_rows(folder / "predictions.jsonl", map(to_prediction_row, predictions))
            write_rows(folder / "dialogs.jsonl", (dialog._asdict() for dialog in whole))
            write_json(folder / "metrics.json", metrics)
            outputs = ["predictions.jsonl", "dialogs.jsonl", "metrics.json"]
            if answers.about_itself:
                write_rows(
                    folder / SELF_COGNITION, (answer._asdict() for answer in answers.about_itself)
                )
            if (folder / SELF_COGNITION).exists():
                outputs.append(SELF_COGNITION)
            key_figures = {
                name: round(figure.mean, 4)
                for name, figure in {**metrics.metrics, **metrics.dialogs}.items()
                if figure
            }
            prompt_set = {
                "limit": settings.limit,
                "seed": settings.seed,
                "predictions": subject.file,
            }
            stage.finish(
                [ANSWERS, *outputs] if source else outputs,
                {"steps": key, "prompt_set": prompt_set, **key_figures},
            )
        return Evaluated(
            folder, metrics, scores(predictions, whole), stage.outcome, stage.done.seconds
        )


class SubjectAnswers(NamedTuple):
    """What a model, or a file of answers, says to the prompts."""

    prompts: list[Prompt]
    predictions: list[Prediction]  # one a prompt
    mixture: Mixture
    identity: Identity | None
    about_itself: list[IdentityAnswer]


def _answers(
    settings: EvalSettings,
    subject: EvalSubject,
    data: EvalData,
    stage: run_folder.StageFolder,
) -> SubjectAnswers:
    source = subject.source
    template = load_template(source.base if source else data.model.base)
    mixture = settled(data.protocol, template)
    with console.waiting(f"eval: writing the prompts of {len(data.records)} records"):
        prompts = list(prompts_of(data.records, mixture.of, template))
    if not source:
        given = [
            external_prediction(
                prompt, subject.answers.get(prompt.step), mixture.protocols[prompt.protocol]
            )
            for prompt in prompts
        ]
        return SubjectAnswers(prompts, given, mixture, None, [])
    identity = identity_of(settings, data.prepared)
    records = identity_records(identity) if identity else []
    every_prompt = [*prompts, *prompts_of(records, mixture.of, template)]
    answers = ask(settings, source, every_prompt, mixture.protocols, stage)
    predictions = [
        answered(prompt, answers[prompt.step], mixture.protocols[prompt.protocol])
        for prompt in prompts
    ]
    about_itself = identity_answers(identity, answers, mixture) if identity else []
    return SubjectAnswers(prompts, predictions, mixture, identity, about_itself)


def _extra_metrics(
    settings: EvalSettings,
    subject: EvalSubject,
    first: Source | None,
    data: EvalData,
    answers: SubjectAnswers,
    stage: run_folder.StageFolder,
) -> dict[str, Any]:
    """The groups of metrics that are asked for and need more than predictions."""
    extra: dict[str, Any] = {}
    source, loading = subject.source, loading_of(settings)
    if settings.judge:
        prices = Prices(*settings.judge_prices) if settings.judge_prices else None
        extra["judge"], extra["judge_is"] = judge_metrics(
            answers.predictions,
            data.every,
            _judge_endpoint(settings),
            stage.folder / VERDICTS,
            settings.seed,
            prices,
            leave_out=settings.unanswered == "wrong",
            begin=partial(_begin_judging, stage),
        )
    if settings.num_samples and source:
        decoding = Decoding(
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
            num_samples=settings.num_samples,
        )
        extra["passes"] = pass_metrics(
            source,
            subject.name,
            answers.prompts,
            answers.mixture.protocols,
            loading,
            decoding,
            stage.folder / "samples.jsonl",
            batch_size=settings.batch_size,
        )
        extra["passes_are"] = SamplingOfPasses(settings.temperature)
    if identity := answers.identity:
        extra["self_cognition"] = self_cognition(answers.about_itself, settings.seed)
        extra["self_cognition_is"] = identity
    if settings.general and source and first and source.digest != first.digest:
        extra["forgetting"] = forgetting_metrics(
            first,
            source,
            settings.general,
            answers.mixture,
            loading,
            batch_size=settings.batch_size,
            seed=settings.seed,
        )
        extra["forgetting_is"] = ForgettingSource(settings.general, first.name, source.name)
    return extra


def _begin_judging(stage: run_folder.StageFolder, rows: int) -> None:
    stage.reopen()
    stage.expect(VERDICTS, rows)


def _write_comparison(
    base: Path, evaluated: Mapping[str, Evaluated], data: str, seed: int
) -> Comparison | None:
    """compare.json: these models and those that were evaluated before on the same steps, in the
    order they first came in. None for a single model. `data`: the digest of the rows.
    """
    now = {one.folder.name: one.scores for one in evaluated.values()}
    by_model = {**earlier_scores(base, data, now), **now}
    if len(by_model) < 2:
        return None
    path = base / "compare.json"
    before = json.loads(path.read_bytes())["models"] if path.exists() else []
    order = [
        *(name for name in before if name in by_model),
        *(name for name in by_model if name not in before),
    ]
    digests = {name: file_digest(base / name / "predictions.jsonl") for name in order}
    comparison = compare({name: by_model[name] for name in order}, seed)
    write_json(path, replace(comparison, predictions=digests))
    return comparison
