"""Models, or files of answers, at the steps of recorded dialogs: ask, read, score, summarize."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import UNSET, structs, to_builtins

from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.openai_client import refuse_unanswered
from agentlite.core.records import Ending, GreedyAnswer, Prediction, Step, digest, to_json
from agentlite.core.row_files import Appender, count_rows, refuse_unwritable, write_json, write_rows
from agentlite.engine import check_libraries
from agentlite.engine.decoding import Decoding
from agentlite.engine.planning.choose import dry_run_memory
from agentlite.engine.planning.estimate import data_of
from agentlite.engine.remote import RemoteRequest, judge_endpoint, replies
from agentlite.rendering import mixture_of, prompts_of
from agentlite.scoring.judge.human_ratings import write_sheet
from agentlite.scoring.judge.llm_judge import items_of
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.figures import Json, learned_before_sentences, read_metrics
from agentlite.scoring.metrics.step_metrics import UNANSWERED
from agentlite.scoring.metrics.summarize import Scores, figures, scores
from agentlite.scoring.predictions import (
    external_prediction,
    prompt_key,
    read_answers,
    read_predictions,
    to_prediction,
    to_prediction_row,
)
from agentlite.stages.eval import probes, subjects
from agentlite.stages.eval.subjects import Questions
from agentlite.stages.frame import Figures, Files, Work
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import RunTarget
from agentlite.workspace.stage_folder import StageFolder

ANSWERS = "answers.jsonl"


class RecordedEvaluation:
    """Models at the steps of a split of prep, and files of what other systems answered there.

    `scored_file`: of a model, with each of its answers; `scores`: of those whose work is done.
    """

    scored_file = "predictions.jsonl"

    def __init__(self, settings: EvalSettings, target: RunTarget):
        data = subjects.load_data(settings, target.run)
        judge_endpoint(settings)
        if settings.general:
            probes.general_records(settings.general)
        if settings.retrieve:
            data = subjects.with_retrieved_tools(settings, data, target.run)
        else:
            settings = structs.replace(settings, retrieve_by=default("eval", "retrieve_by"))
        self.settings, self.data = settings, data
        self.subjects = {s.name: s for s in subjects.find_subjects(settings, data, target)}
        self.scores: dict[str, Scores] = {}
        self.target = target
        self.identity = probes.identity_of(settings, data.prep.settings)
        self.identity_records = probes.identity_records(self.identity) if self.identity else []
        if target.dry_run:
            return
        if settings.sheet:
            refuse_unwritable(Path(settings.sheet).parent)
        if any(
            (subject.source and not subject.source.endpoints)
            and (target.force or not (subject.target.folder / ANSWERS).exists())
            for subject in self.subjects.values()
        ):
            check_libraries(settings.engine)
        self.learned_before = probes.count_learned(self.subjects.values(), data.records, target.run)

    def _forecast(self, subject: subjects.EvalSubject) -> Figures:
        """What a model is asked, and the memory that it takes."""
        records = (*self.data.records, *(self.identity_records if subject.source else ()))
        memory = {}
        if subject.source and not subject.source.endpoints:
            longest = data_of(self.settings, self.target.run).longest
            memory = dry_run_memory("eval", self.settings, subject.source.base, longest)
        prompts = sum(len(record.prompted_turns) for record in records)
        return {"prompts": prompts, "memory_gib": memory}

    def work(self, name: str) -> Work:
        """Asks what was not asked yet, reads and scores every answer, and summarizes."""
        settings, data, subject = self.settings, self.data, self.subjects[name]
        stage = yield self._forecast(subject) if self.target.dry_run else {}
        source = subject.source
        template = load_template((source or data.model).base)
        mixture = mixture_of(data.protocol, template)
        protocols = mixture.protocols
        with console.waiting(f"eval: writing the prompts of {len(data.records)} records"):
            prompts = list(prompts_of(data.records, mixture.protocol_of, template))
        if source:
            questions = Questions(settings, source, prompts, protocols)
            identity_prompts = prompts_of(self.identity_records, mixture.protocol_of, template)
            answers = ask(questions._replace(prompts=[*prompts, *identity_prompts]), stage)
            predictions = [
                to_prediction(prompt, answers[prompt.step], protocols[prompt.protocol])
                for prompt in prompts
            ]
        else:
            ends = [template.turn_end, *template.special.values()]
            predictions = [
                external_prediction(
                    prompt, subject.answers.get(prompt.step), protocols[prompt.protocol], ends
                )
                for prompt in prompts
            ]
        unanswered = sum(prediction.problem == UNANSWERED for prediction in predictions)
        if unanswered:
            console.notice(
                f"eval: {unanswered} of {len(predictions)} questions have no answer from {name} "
                "and count as wrong"
            )
        probe_figures = {
            "learned_before": self.learned_before.get(name, UNSET),
            "unanswered": unanswered or UNSET,
            **probes.judge_figures(settings, predictions, data.all_records, stage),
        }
        if source:
            start = next(s.source for s in self.subjects.values() if s.source)
            probe_figures |= probes.pass_metrics(questions, name, stage.folder / probes.SAMPLES)
            probe_figures |= probes.forgetting_metrics(settings, start, source, mixture)
            probe_figures |= probes.identity_metrics(self.identity, answers, mixture, settings.seed)
        return self._summarize(name, predictions, probe_figures, stage)

    def _summarize(
        self, name: str, predictions: Sequence[Prediction], probe_figures: Json, stage: StageFolder
    ) -> tuple[Files, Figures]:
        """The figures; of predictions that were measured before as they are now, those of then."""
        folder, records, seed = stage.folder, self.data.all_records, self.settings.seed
        scored_dialogs = dialogs(predictions, records)
        self.scores[name] = scores(predictions, scored_dialogs)
        # the same rows have the same figures: their intervals are not drawn again
        rows = [*map(to_prediction_row, predictions)]
        key = f"{len(rows)} {digest(to_json([seed, *rows]))}"
        is_measured = stage.status == "done" and stage.done.figures.get("steps") == key
        stored_metrics = read_metrics(folder / "metrics.json") if is_measured else None
        with console.waiting(f"eval: scoring {len(predictions)} answers of {name}"):
            metrics = stored_metrics or figures(predictions, scored_dialogs, records, seed)
            metrics = structs.replace(metrics, **probe_figures)
        if metrics == stored_metrics:
            return stage.done.outputs, stage.done.figures
        write_rows(folder / self.scored_file, rows)
        write_rows(folder / "dialogs.jsonl", (dialog._asdict() for dialog in scored_dialogs))
        write_json(folder / "metrics.json", metrics)
        all_figures = {**metrics.metrics, **metrics.dialogs}
        means = {key: round(figure.mean, 4) for key, figure in all_figures.items() if figure}
        files = [ANSWERS] if self.subjects[name].source else []
        return [*files, self.scored_file, "dialogs.jsonl", "metrics.json"], {"steps": key, **means}

    def conclude(self) -> None:
        """Says and writes what can only be told when all models are evaluated."""
        for name, counts in self.learned_before.items():
            for sentence in learned_before_sentences(name, counts):
                console.notice(f"eval: {sentence.rstrip('.')}")
        if sheet := self.settings.sheet:
            answers = {}
            for name, subject in self.subjects.items():
                predictions = [*read_predictions(subject.target.folder / self.scored_file)]
                answers[name] = items_of(predictions, self.data.all_records)
            write_sheet(answers, Path(sheet), self.settings.seed)


# --- Answers, cached in answers.jsonl as they come ---


def ask(questions: Questions, stage: StageFolder) -> dict[Step, GreedyAnswer]:
    """An answer to each prompt: the cached ones, and those of the prompts that were not asked yet,
    appended to the file as they come. What a server answered is kept where it leaves others
    unanswered.
    """
    settings, source, prompts, _ = questions
    keys = {prompt.step: prompt_key(prompt) for prompt in prompts}
    stage.set_aside_changed(ANSWERS)
    path = stage.folder / ANSWERS
    answers = read_answers(path, keys)
    if settings.unanswered == "ask":  # the last answer to a prompt is the one that counts
        answers = {step: answer for step, answer in answers.items() if not answer.problem}
    missing = questions._replace(prompts=[p for p in prompts if p.step not in answers])
    if not missing.prompts:
        return answers
    stage.reopen()
    stage.expect_rows(ANSWERS, count_rows(path) + len(missing.prompts))
    cached = f", {len(answers)} there already" if answers else ""
    answer_limit = f"answers of at most {settings.max_new_tokens} tokens"
    console.notice(f"eval: {source.name}, {len(missing.prompts)} prompts{cached}, {answer_limit}")
    fitting = missing.fitting
    with Appender(path) as file:

        def keep(answer: GreedyAnswer) -> None:
            answers[answer.step] = answer
            file.append(to_builtins(answer))

        for prompt in missing.prompts:
            if prompt.step not in fitting:  # an empty answer, and no model is loaded for that
                keep(GreedyAnswer(*prompt.step, "", "", "cut"))
        if too_long := len(missing.prompts) - len(fitting):
            console.notice(
                f"eval: {too_long} prompts are longer than {missing.room} tokens: they score 0"
            )
        send = _ask_server if source.endpoints else ask_model
        unanswered = []
        for answer in send(missing._replace(prompts=[*fitting.values()])) if fitting else ():
            answer = structs.replace(answer, prompt=keys[answer.step])
            if answer.problem:
                unanswered.append(answer)
            else:
                keep(answer)
        # where nothing was answered, the model was not measured, whoever is to blame
        all_unanswered = len(unanswered) == len(questions.fitting)
        if settings.unanswered == "ask" or all_unanswered:
            problems = [answer.problem for answer in unanswered]
            effect = "" if all_unanswered else "counts them as wrong"
            refuse_unanswered(problems, len(prompts), source.name, effect)
        for answer in unanswered:  # not before: what is kept is not asked again
            keep(answer)
    return answers


def ask_model(questions: Questions, *, own_ends: bool = False) -> Iterator[GreedyAnswer]:
    """The answers of a model, by protocol: each has stop strings of its own. `own_ends`: an answer
    ends only where the model's configuration says, as for other programs."""
    from agentlite.engine.load import load_for_inference, loading_of
    from agentlite.engine.local_sampler import generate

    settings, source, prompts, protocols = questions
    decoding = Decoding(settings.max_new_tokens)
    if not own_ends:
        decoding = decoding.under(load_template(source.base))
    loaded = load_for_inference(source, loading_of(settings))
    count = 0
    with console.progress(f"eval {source.name}", len(prompts)) as advance:
        for name, protocol in protocols.items():
            protocol_prompts = [prompt for prompt in prompts if prompt.protocol == name]
            ids = [prompt.ids for prompt in protocol_prompts]
            decoding = decoding._replace(stops=protocol.stops)
            for batch in generate(loaded, ids, decoding, batch_size=settings.batch_size):
                for answer in batch:
                    ended: Ending = "cut" if answer.ended == "cut" else "turn"
                    step, tokens = protocol_prompts[answer.prompt].step, len(answer.ids)
                    yield GreedyAnswer(*step, "", answer.text, ended, tokens)
                advance(count := count + len(batch))


def _ask_server(questions: Questions) -> Iterator[GreedyAnswer]:
    """The answers of a server, with a `problem` where it has none."""
    settings, source, prompts, protocols = questions
    decoding = Decoding(settings.max_new_tokens)
    requests = [RemoteRequest(prompt, protocols[prompt.protocol]) for prompt in prompts]
    with console.progress(f"eval {source.name}", len(prompts)) as advance:
        for count, reply in enumerate(replies(source, requests, decoding), 1):
            step = prompts[reply.request].step
            yield GreedyAnswer(*step, "", reply.text, reply.ended, reply.new_tokens, reply.problem)
            advance(count)
