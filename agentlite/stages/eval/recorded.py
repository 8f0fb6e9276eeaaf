"""Models, or files of answers, at the steps of recorded dialogs: ask, read, score, summarize."""

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.openai_client import Endpoint, check
from agentlite.core.records import Prediction, Step, digest, plain
from agentlite.core.row_files import refuse_unwritable, write_json, write_rows
from agentlite.engine import check_libraries
from agentlite.engine.planning.choose import dry_run_memory
from agentlite.engine.planning.estimate import data_of
from agentlite.rendering import Mixture, Prompt, mixture_of
from agentlite.rendering import prompts as prompts_of
from agentlite.scoring.judge.human_ratings import write_sheets
from agentlite.scoring.judge.llm_judge import Prices, judge_metrics
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.general_talk import IdentityAnswer, self_cognition
from agentlite.scoring.metrics.model_metrics import (
    ForgettingSource,
    LearnedBefore,
    Metrics,
    SamplingOfPasses,
    read_metrics,
)
from agentlite.scoring.metrics.summarize import Scores, figures, scores
from agentlite.scoring.metrics.tool_calls import UNANSWERED
from agentlite.scoring.predictions import (
    answered,
    external_prediction,
    read_predictions,
    read_scores,
    to_prediction_row,
)
from agentlite.stages.eval.ask import ANSWERS, answered_steps, ask
from agentlite.stages.eval.evaluation import EvaluatedModel, Evaluation
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
from agentlite.stages.eval.subjects import (
    EvalSubject,
    data_folder,
    find_subjects,
    load_data,
    with_retrieved_tools,
)
from agentlite.workspace.model_source import load_template
from agentlite.workspace.run_folder import Plan, RunTarget, StageFolder

VERDICTS = "verdicts.jsonl"


class SubjectAnswers(NamedTuple):
    """What a model, or a file of answers, says to the prompts: one prediction for each."""

    prompts: list[Prompt]
    predictions: list[Prediction]
    mixture: Mixture
    about_itself: list[IdentityAnswer]


class RecordedEvaluation(Evaluation):
    scored = "predictions.jsonl"

    def __init__(self, settings: EvalSettings, target: RunTarget):
        data = load_data(settings, target.run)
        _check_settings(settings)
        if settings.retrieve:
            data = with_retrieved_tools(settings, data, target.run)
        elif settings.retrieve_by != default("eval", "retrieve_by"):
            console.notice("eval: retrieve_by does nothing without retrieve")
            settings = replace(settings, retrieve_by=default("eval", "retrieve_by"))
        self.settings, self.data, self.run = settings, data, target.run
        self.base = target.folder / data_folder(settings)
        begun = target.begun and target.begun / self.base.name
        subjects = find_subjects(settings, data, target.run, begun)
        self.subjects = {subject.name: subject for subject in subjects}
        self.plans = {name: subject.plan for name, subject in self.subjects.items()}
        self.identity = identity_of(settings, data.prepared)
        self.about_itself = identity_records(self.identity) if self.identity else []
        if target.dry_run:
            return
        if settings.sheet:
            refuse_unwritable(Path(settings.sheet).parent)
        for name, subject in self.subjects.items():
            is_there = not target.force and (self.folder(name) / ANSWERS).exists()
            if subject.is_local and not is_there:
                check_libraries(settings.engine)

    @cached_property
    def learned(self) -> dict[str, LearnedBefore]:
        return learned_before(self.subjects.values(), self.data.records, self.run)

    def missing(self, name: str, force: bool) -> dict[str, Any]:
        subject = self.subjects[name]
        about_itself = self.about_itself if subject.source else []
        steps = {
            Step(record.id, turn)
            for record in (*self.data.records, *about_itself)
            for turn in record.prompted_turns
        }
        known = set() if force else answered_steps(self.folder(name), self.settings.unanswered)
        memory = {}
        if subject.source and subject.is_local:
            longest = data_of(self.settings, self.run).longest
            memory = dry_run_memory("eval", self.settings, subject.source.base, longest)
        return {
            "prompts": len(steps),
            "missing": len(steps - known) if subject.source else 0,
            "memory_gib": memory,
        }

    def measure(self, name: str, stage: StageFolder) -> tuple[Metrics, Scores]:
        folder, subject, seed = stage.folder, self.subjects[name], self.settings.seed
        answers = self._ask(subject, stage)
        predictions = answers.predictions
        whole = dialogs(predictions, self.data.every)
        unanswered = sum(prediction.problem == UNANSWERED for prediction in predictions)
        if unanswered:
            console.notice(
                f"eval: {unanswered} of {len(predictions)} questions have no answer from {name} "
                "and count as wrong"
            )
        extra = self._extra_metrics(subject, answers, stage)

        # the figures of these very predictions, scored as they are now, are not measured twice
        scored = digest(plain([seed, *map(to_prediction_row, predictions)]))
        key = f"{len(predictions)} {scored}"
        is_measured = stage.status == "done" and stage.done.figures.get("steps") == key
        earlier = read_metrics(folder / "metrics.json") if is_measured else None
        metrics = replace(earlier, **extra) if earlier else None
        if metrics is None or metrics != earlier:
            stage.outcome = "done"
            with console.waiting(f"eval: scoring {len(predictions)} answers of {name}"):
                metrics = metrics or replace(
                    figures(predictions, whole, self.data.every, seed),
                    unanswered=unanswered or UNSET,
                    **extra,
                )
            write_rows(folder / self.scored, map(to_prediction_row, predictions))
            write_rows(folder / "dialogs.jsonl", (dialog._asdict() for dialog in whole))
            write_json(folder / "metrics.json", metrics)
            if answers.about_itself:
                write_rows(
                    folder / SELF_COGNITION, (answer._asdict() for answer in answers.about_itself)
                )
            outputs = [ANSWERS] if subject.source else []
            outputs += [self.scored, "dialogs.jsonl", "metrics.json"]
            outputs += [SELF_COGNITION] if (folder / SELF_COGNITION).exists() else []
            prompt_set = {
                "limit": self.settings.limit,
                "seed": seed,
                "predictions": subject.file,
            }
            means = {
                name: round(figure.mean, 4)
                for name, figure in {**metrics.metrics, **metrics.dialogs}.items()
                if figure
            }
            stage.finish(outputs, {"steps": key, "prompt_set": prompt_set, **means})
        return metrics, scores(predictions, whole)

    def _ask(self, subject: EvalSubject, stage: StageFolder) -> SubjectAnswers:
        """Each prompt is answered by the model, its server, or the file; the answers are read."""
        data, source = self.data, subject.source
        template = load_template(source.base if source else data.model.base)
        mixture = mixture_of(data.protocol, template)
        with console.waiting(f"eval: writing the prompts of {len(data.records)} records"):
            prompts = list(prompts_of(data.records, mixture.of, template))
        if not source:
            given = [
                external_prediction(
                    prompt, subject.answers.get(prompt.step), mixture.protocols[prompt.protocol]
                )
                for prompt in prompts
            ]
            return SubjectAnswers(prompts, given, mixture, [])
        every_prompt = [*prompts, *prompts_of(self.about_itself, mixture.of, template)]
        answers = ask(self.settings, source, every_prompt, mixture.protocols, stage)
        predictions = [
            answered(prompt, answers[prompt.step], mixture.protocols[prompt.protocol])
            for prompt in prompts
        ]
        about_itself = identity_answers(self.identity, answers, mixture) if self.identity else []
        return SubjectAnswers(prompts, predictions, mixture, about_itself)

    def _extra_metrics(
        self, subject: EvalSubject, answers: SubjectAnswers, stage: StageFolder
    ) -> dict[str, Any]:
        """The groups of metrics that are asked for and need more than predictions."""
        settings, source = self.settings, subject.source
        extra: dict[str, Any] = {"learned_before": self.learned.get(subject.name, UNSET)}
        if settings.judge:
            extra["judge"], extra["judge_is"] = judge_metrics(
                answers.predictions,
                self.data.every,
                _judge_endpoint(settings),
                stage.folder / VERDICTS,
                settings.seed,
                Prices(*settings.judge_prices) if settings.judge_prices else None,
                leave_out=settings.unanswered == "wrong",
                begin=partial(_begin_judging, stage),
            )
        if not source:
            return extra
        if settings.num_samples:
            extra["passes"] = pass_metrics(
                settings,
                source,
                subject.name,
                answers.prompts,
                answers.mixture.protocols,
                stage.folder / "samples.jsonl",
            )
            extra["passes_are"] = SamplingOfPasses(settings.temperature)
        if self.identity:
            extra["self_cognition"] = self_cognition(answers.about_itself, settings.seed)
            extra["self_cognition_is"] = self.identity
        first = next(one.source for one in self.subjects.values() if one.source)
        if settings.general and source.digest != first.digest:
            extra["forgetting"] = forgetting_metrics(settings, first, source, answers.mixture)
            extra["forgetting_is"] = ForgettingSource(settings.general, first.name, source.name)
        return extra

    def is_alike(self, plan: Plan) -> bool:
        return plan.inputs.get("data") == self.data.digest

    def read_scores(self, folder: Path) -> Scores:
        return read_scores(folder)

    def conclude(self, models: Mapping[str, EvaluatedModel]) -> None:
        for name, learned in self.learned.items():
            for sentence in learned.sentences(name):
                console.notice(f"eval: {sentence.rstrip('.')}")
        if sheet := self.settings.sheet:
            by_model = {
                name: list(read_predictions(model.folder / self.scored))
                for name, model in models.items()
            }
            write_sheets(by_model, self.data.every, Path(sheet), self.settings.seed)


def _begin_judging(stage: StageFolder, rows: int) -> None:
    stage.reopen()
    stage.expect(VERDICTS, rows)


def _judge_endpoint(settings: EvalSettings) -> Endpoint:
    return Endpoint(
        settings.judge,
        settings.judge_model,
        settings.judge_key,
        settings.requests.seconds,
        settings.requests.tries,
        concurrency=settings.requests.concurrency,
    )


def _check_settings(settings: EvalSettings) -> None:
    """Raises UserError 2 for settings that would fail only after the models were asked."""
    needs_model = bool(settings.endpoint and (settings.general or settings.num_samples))
    for is_wrong, location, problem, fix in (
        (
            settings.max_new_tokens >= settings.max_length,
            "eval.max_new_tokens",
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
        ),
        (
            settings.sheet and Path(settings.sheet).exists(),
            f"--sheet {settings.sheet}",
            "is there already: somebody may have scored it.",
            "Name another file, or remove that one.",
        ),
        (
            settings.judge and not settings.judge_model,
            "--judge",
            "which model is the judge?",
            "Add --judge-model NAME, as the endpoint calls it.",
        ),
        (
            len(settings.judge_prices) not in (0, 2),
            "eval.judge_prices",
            "are two: of a million tokens read, and of a million written.",
            "Write them as 0.5,1.5.",
        ),
        (
            settings.endpoint and not settings.model,
            "--endpoint",
            "which of its models?",
            "Add --model NAME, as the server calls it.",
        ),
        (
            needs_model,
            "--general" if settings.general else "--num-samples",
            "needs the model itself.",
            "Leave it out, or leave --endpoint out.",
        ),
        (
            settings.protocol and settings.endpoint,
            "--protocol",
            "is for models that agentlite prompts itself: a server writes its own prompts.",
            "Leave it out, or leave --endpoint out.",
        ),
        (
            settings.retrieve and settings.predictions,
            "--predictions",
            "have prompts without the tools that are retrieved now.",
            f"Prepare these, agentlite prep --retrieve {settings.retrieve}, and evaluate that.",
        ),
    ):
        if is_wrong:
            raise UserError(problem, fix, location=location)
    if settings.judge:
        check(_judge_endpoint(settings), "--judge")
    if settings.general:
        general_records(settings.general)
