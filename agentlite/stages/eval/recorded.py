"""Models, or files of answers, at the steps of recorded dialogs: ask, read, score, summarize."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.records import Prediction, digest, plain
from agentlite.core.row_files import refuse_unwritable, write_json, write_rows
from agentlite.engine import check_libraries
from agentlite.engine.planning.choose import dry_run_memory
from agentlite.engine.planning.estimate import data_of
from agentlite.engine.remote import judge_endpoint
from agentlite.rendering import mixture_of
from agentlite.rendering import prompts as prompts_of
from agentlite.scoring.judge.human_ratings import write_sheet
from agentlite.scoring.judge.llm_judge import items
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.figures import Json, learned_sentences, read_metrics
from agentlite.scoring.metrics.step_metrics import UNANSWERED
from agentlite.scoring.metrics.summarize import Scores, figures, scores
from agentlite.scoring.predictions import (
    external_prediction,
    read_predictions,
    to_prediction,
    to_prediction_row,
)
from agentlite.stages.eval import probes, subjects
from agentlite.stages.eval.ask import ANSWERS, Questions, ask
from agentlite.stages.frame import Figures, Files, Work
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import RunTarget
from agentlite.workspace.stage_folder import StageFolder


class RecordedEvaluation:
    """Models at the steps of a split of prep, and files of what other systems answered there.

    `scored`: the file of a model with each of its answers; `scores`: of those whose work is done.
    """

    scored = "predictions.jsonl"

    def __init__(self, settings: EvalSettings, target: RunTarget):
        data = subjects.load_data(settings, target.run)
        judge_endpoint(settings)
        if settings.general:
            probes.general_records(settings.general)
        if settings.retrieve:
            data = subjects.with_retrieved_tools(settings, data, target.run)
        else:
            settings = replace(settings, retrieve_by=default("eval", "retrieve_by"))
        self.settings, self.data = settings, data
        self.models = {
            subject.name: subject for subject in subjects.find_subjects(settings, data, target)
        }
        self.scores: dict[str, Scores] = {}
        self.target = target
        self.identity = probes.identity_of(settings, data.prep.settings)
        self.about_itself = probes.identity_records(self.identity) if self.identity else []
        if target.dry_run:
            return
        if settings.sheet:
            refuse_unwritable(Path(settings.sheet).parent)
        for subject in self.models.values():
            is_there = not target.force and (subject.target.folder / ANSWERS).exists()
            if subject.is_local and not is_there:
                check_libraries(settings.engine)
        self.learned = probes.learned_before(self.models.values(), data.records, target.run)

    def _forecast(self, subject: subjects.EvalSubject) -> Figures:
        """What a model is asked, and the memory that it takes."""
        about_itself = self.about_itself if subject.source else []
        asked = (*self.data.records, *about_itself)
        memory = {}
        if subject.source and subject.is_local:
            longest = data_of(self.settings, self.target.run).longest
            memory = dry_run_memory("eval", self.settings, subject.source.base, longest)
        prompts = sum(len(record.prompted_turns) for record in asked)
        return {"prompts": prompts, "memory_gib": memory}

    def work(self, name: str) -> Work:
        """Asks what was not asked yet, reads and scores every answer, and summarizes."""
        settings, data, subject = self.settings, self.data, self.models[name]
        stage = yield self._forecast(subject) if self.target.dry_run else {}
        source = subject.source
        template = load_template((source or data.model).base)
        mixture = mixture_of(data.protocol, template)
        protocols = mixture.protocols
        with console.waiting(f"eval: writing the prompts of {len(data.records)} records"):
            prompts = list(prompts_of(data.records, mixture.of, template))
        if source:
            about = prompts_of(self.about_itself, mixture.of, template)
            answers = ask(Questions(settings, source, [*prompts, *about], protocols), stage)
        ends, predictions = [template.turn_end, *template.special.values()], list[Prediction]()
        for prompt in prompts:
            protocol = protocols[prompt.protocol]
            if source:
                predictions.append(to_prediction(prompt, answers[prompt.step], protocol))
            else:
                answer = subject.answers.get(prompt.step)
                predictions.append(external_prediction(prompt, answer, protocol, ends))
        unanswered = sum(prediction.problem == UNANSWERED for prediction in predictions)
        if unanswered:
            console.notice(
                f"eval: {unanswered} of {len(predictions)} questions have no answer from {name} "
                "and count as wrong"
            )
        extra = {
            "learned_before": self.learned.get(name, UNSET),
            "unanswered": unanswered or UNSET,
            **probes.judge_figures(settings, predictions, data.every, stage),
        }
        if source:
            first = next(one.source for one in self.models.values() if one.source)
            questions = Questions(settings, source, prompts, protocols)
            extra |= probes.pass_metrics(questions, name, stage.folder / probes.SAMPLES)
            extra |= probes.forgetting_metrics(settings, first, source, mixture)
            extra |= probes.identity_metrics(self.identity, answers, mixture, settings.seed)
        return self._summarize(name, predictions, extra, stage)

    def _summarize(
        self, name: str, predictions: Sequence[Prediction], extra: Json, stage: StageFolder
    ) -> tuple[Files, Figures]:
        """The figures; of predictions that were measured before as they are now, those of then."""
        folder, records, seed = stage.folder, self.data.every, self.settings.seed
        whole = dialogs(predictions, records)
        self.scores[name] = scores(predictions, whole)
        scored = digest(plain([seed, *map(to_prediction_row, predictions)]))
        key = f"{len(predictions)} {scored}"
        is_measured = stage.status == "done" and stage.done.figures.get("steps") == key
        earlier = read_metrics(folder / "metrics.json") if is_measured else None
        with console.waiting(f"eval: scoring {len(predictions)} answers of {name}"):
            metrics = replace(earlier or figures(predictions, whole, records, seed), **extra)
        if metrics == earlier:
            return stage.done.outputs, stage.done.figures
        write_rows(folder / self.scored, map(to_prediction_row, predictions))
        write_rows(folder / "dialogs.jsonl", (dialog._asdict() for dialog in whole))
        write_json(folder / "metrics.json", metrics)
        every = {**metrics.metrics, **metrics.dialogs}
        means = {key: round(figure.mean, 4) for key, figure in every.items() if figure}
        asked = [ANSWERS] if self.models[name].source else []
        outputs = [*asked, self.scored, "dialogs.jsonl", "metrics.json"]
        return outputs, {"steps": key, **means}

    def conclude(self) -> None:
        """Says and writes what can only be told when all models are evaluated."""
        for name, learned in self.learned.items():
            for sentence in learned_sentences(name, learned):
                console.notice(f"eval: {sentence.rstrip('.')}")
        if sheet := self.settings.sheet:
            answers = {
                name: items([*read_predictions(model.target.folder / self.scored)], self.data.every)
                for name, model in self.models.items()
            }
            write_sheet(answers, Path(sheet), self.settings.seed)
