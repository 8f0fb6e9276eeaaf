"""finished prep + models -> answers, predictions and metrics for each model, the models compared,
and the reports.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.config import settings as config
from agentlite.core import console
from agentlite.core.errors import USAGE, UserError
from agentlite.core.openai_client import Endpoint, check
from agentlite.core.records import GreedyAnswer, Prediction, Record, Step, digest, from_row, plain
from agentlite.core.row_files import (
    Appender,
    find_rows,
    read_rows,
    refuse_unwritable,
    whole_lines_end,
    write_json,
    write_rows,
)
from agentlite.data.curation.sample import sample
from agentlite.engine import check_libraries, load_libraries
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.engine.planning.estimate import data_of
from agentlite.engine.remote import RemoteRequest, replies, served
from agentlite.engine.sampler import Drawing
from agentlite.rendering import Mixture, Prompt, Protocol, prompts, settled
from agentlite.report import write_report
from agentlite.scoring.gates import failures, parse_gate
from agentlite.scoring.judge.figures import judged, write_sheets
from agentlite.scoring.judge.llm_judge import Prices
from agentlite.scoring.metrics.all_figures import figures
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.model_metrics import (
    ForgettingSource,
    Metrics,
    SamplingOfPasses,
    means,
    read_metrics,
)
from agentlite.scoring.metrics.summarize import compare, scores
from agentlite.scoring.predictions import (
    ExternalAnswer,
    answered,
    missing,
    prompt_key,
    read_answers,
    read_predictions,
    read_said,
    said,
    to_prediction_row,
)
from agentlite.stages.eval.compare_folders import WITHOUT_A_MODEL, finished_beside
from agentlite.stages.eval.extra_metrics import Asking, drawn, forgotten, general_records
from agentlite.stages.tool_retrieval import digest_of, learned, offers
from agentlite.workspace import folder_lock, run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

# they change which steps are asked and what is made of the answers, not what is said
NOT_OF_THE_ANSWER = (
    "model",
    "data",
    "limit",
    "batch_size",
    "seed",
    "predictions",
    "compare",
    "gate",
    "general",
    "kagent",
    "endpoint",
    "endpoint_key",
    "judge",
    "judge_model",
    "judge_key",
    "judge_prices",
    "sheet",
    "ratings",
    "num_samples",
    "temperature",
    "retriever",
)
OF_A_MODEL = ("engine", "max_length", "max_new_tokens", "load_in_4bit", "load_in_8bit")


class EvalData(NamedTuple):
    """What is asked: the records drawn, all of the split by id, the folder of prep, and the digest
    of the rows.
    """

    records: list[Record]
    every: dict[str, Record]
    folder: Path
    digest: str

    @property
    def protocol(self) -> str:
        return str(run_folder.read_plan(self.folder).settings["protocol"])

    @property
    def base(self) -> str:
        return str(run_folder.read_plan(self.folder).settings["model"])


class EvalSubject(NamedTuple):
    """What is evaluated: a model, or what another system said, from a file; under which plan."""

    name: str
    plan: Plan
    source: Source | None = None
    file: str = ""
    said: Mapping[Step, ExternalAnswer] = {}


class Evaluated(NamedTuple):
    folder: Path
    metrics: Metrics
    scores: dict[Step, Mapping[str, float]]
    status: str
    seconds: float


def run(settings: config.EvalSettings, target: RunTarget) -> Result:
    """Evaluates every model in turn. Raises UserError 2, 3, 5, 7, 74 or 75; what is said already is
    kept.
    """
    gate = parse_gate(settings.gate)
    for name, way in WITHOUT_A_MODEL.items():
        if getattr(settings, name):
            return way(settings, target.run, gate)
    data = _data(settings, target.run)
    _check(settings)
    if settings.retrieve:
        data = _retrieved(settings, data, target.run)
    elif settings.retrieve_by != (usual := config.default("eval", "retrieve_by")):
        console.notice("eval: retrieve_by does nothing without retrieve")
        settings = replace(settings, retrieve_by=usual)  # it is part of no plan then
    base = target.folder / slug(_asked_as(settings))
    with console.stdout_to_stderr():
        subjects = _subjects(settings, data, target.run)
        if target.dry_run:
            return _dry_run(settings, target, subjects, data)
        if settings.sheet:
            refuse_unwritable(Path(settings.sheet).parent)
        first = next((one.source for one in subjects if one.source), None)
        evaluated = {
            one.name: _evaluate(settings, one, first, data, base / slug(one.name), target.force)
            for one in subjects
        }
        if settings.sheet:
            by_model = {
                name: list(read_predictions(one.folder / "predictions.jsonl"))
                for name, one in evaluated.items()
            }
            write_sheets(by_model, data.every, Path(settings.sheet), settings.seed)
        with (
            console.waiting("eval: comparing the models, writing the report"),
            folder_lock.in_turn(target.run),
        ):
            _write_comparison(base, evaluated, data.digest, settings.seed)
            report = write_report(target.run)
    done = any(one.status == "done" for one in evaluated.values())
    outputs = [
        str(one.folder.relative_to(target.folder) / "metrics.json") for one in evaluated.values()
    ]
    metrics = {name: msgspec.to_builtins(one.metrics) for name, one in evaluated.items()}
    return Result(
        "eval",
        "done" if done else "up to date",
        str(target.folder),
        metrics,
        outputs,
        round(sum(one.seconds for one in evaluated.values()), 1),
        f"less {report}",
        failures(gate, means(evaluated[subjects[-1].name].metrics)),
    )


def slug(name: str) -> str:
    """A name as a folder: `Qwen/Qwen2.5-1.5B` -> `Qwen-Qwen2.5-1.5B`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def _asked_as(settings: config.EvalSettings) -> str:
    """The data, and how it is asked: prep, prep-retrieve-5, prep-retrieve-5-bm25."""
    how = (
        ""
        if settings.retrieve_by == config.default("eval", "retrieve_by")
        else f"-{settings.retrieve_by}"
    )
    return settings.data + (f"-retrieve-{settings.retrieve}{how}" if settings.retrieve else "")


def _check(settings: config.EvalSettings) -> None:
    """What would fail once the models were asked fails before. Raises UserError 2."""
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
        check(_endpoint(settings), "--judge")
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
    if settings.retrieve and settings.predictions:
        raise UserError(
            "were made of other prompts than those with the tools that are brought now.",
            f"Prepare these, agentlite prep --retrieve {settings.retrieve}, and evaluate that.",
            location="--predictions",
        )
    if settings.general:
        general_records(settings.general)


def _endpoint(settings: config.EvalSettings) -> Endpoint:
    return Endpoint(settings.judge, settings.judge_model, settings.judge_key)


def _data(settings: config.EvalSettings, run: Path) -> EvalData:
    """The records with tools: without one there is nothing to decide."""
    folder = run_folder.find_stage(settings.data, run)
    prepared = run_folder.finished(folder, "prep")
    path = find_rows(folder, settings.split)
    records = [record for row in read_rows(path) if (record := from_row(row)).tools]
    if not records:
        raise UserError(
            "holds no record with tools.",
            "Run prep with a larger share: --test 0.2.",
            location=str(path),
            exit_code=USAGE,
        )
    chosen = [records[index] for index in sample(records, settings.limit, settings.seed)]
    name = next(
        value for name, value in prepared.outputs.items() if name.startswith(settings.split)
    )
    return EvalData(chosen, {record.id: record for record in records}, folder, name)


def _retrieved(settings: config.EvalSettings, data: EvalData, run: Path) -> EvalData:
    """With the tools that the retriever brings, and no others. The model's own libraries come
    first: Unsloth changes those below it when it is loaded."""
    retriever = digest_of(settings, run)
    count = len(data.records)
    if known := learned(settings, data.records, run):
        console.notice(
            f"eval: {known} of {count} records ask what {settings.retriever} learned from: prepare "
            "both "
            "alike, with the same seed, test and split_by"
        )
    with console.stdout_to_stderr():
        if settings.retrieve_by in ("tuned", "hybrid") and not settings.endpoint:
            load_libraries(settings.engine)
        with console.waiting(
            f"eval: bringing {settings.retrieve} tools to each of {count} records"
        ):
            records = offers(settings, run, "left out").all(data.records)
    return data._replace(
        records=records,
        every={record.id: record for record in records},
        digest=f"{data.digest}, {retriever}",
    )


def _subjects(settings: config.EvalSettings, data: EvalData, run: Path) -> list[EvalSubject]:
    """The files of --predictions, then the models. Raises UserError for two of one folder, or a
    file that is none.
    """
    models = settings.model or (() if settings.predictions else ("sft",))
    subjects = [_outside(settings, file, data) for file in dict.fromkeys(settings.predictions)]
    subjects += [
        _model(settings, _source(settings, name, data, run), name, data)
        for name in dict.fromkeys(models)
    ]
    folders = [slug(one.name) for one in subjects]
    if len(set(folders)) < len(folders):
        raise UserError(
            f"two models share the folder {max(folders, key=folders.count)}.",
            "Evaluate them one by one, with --out.",
            location="--model",
        )
    return subjects


def _source(settings: config.EvalSettings, name: str, data: EvalData, run: Path) -> Source:
    if settings.endpoint:
        return served(name, settings.endpoint, settings.endpoint_key, find_model(data.base, run))
    return find_model(name, run)


def _model(settings: config.EvalSettings, source: Source, name: str, data: EvalData) -> EvalSubject:
    """Its plan holds only what changes an answer. Which steps are asked may differ from run to run:
    they are added.
    """
    answer = resolve.plain_settings(settings, NOT_OF_THE_ANSWER)
    plan = Plan(
        "eval",
        {**answer, "model": source.name, "protocol": data.protocol},
        {"data": data.digest, "model": source.digest},
        run_folder.versions(),
    )
    return EvalSubject(source.name if source.endpoint else name, plan, source)


def _outside(settings: config.EvalSettings, file: str, data: EvalData) -> EvalSubject:
    """Its plan holds what is in the file, wherever that lies."""
    steps = [Step(record.id, turn) for record in data.records for turn in record.asked]
    found = read_said(Path(file), steps, data.every)
    if count := missing(steps, found):
        console.notice(f"eval: {count} of {len(steps)} steps have no row in {file}: they score 0")
    told = resolve.plain_settings(settings, (*NOT_OF_THE_ANSWER, *OF_A_MODEL))
    plan = Plan(
        "eval",
        {**told, "protocol": data.protocol},
        {"data": data.digest, "predictions": file_digest(Path(file))},
        run_folder.versions(),
    )
    return EvalSubject(Path(file).name.partition(".")[0], plan, file=file, said=found)


def _evaluate(
    settings: config.EvalSettings,
    subject: EvalSubject,
    first: Source | None,
    data: EvalData,
    folder: Path,
    force: bool,
) -> Evaluated:
    """Asks what is missing; whatever was said is read and scored anew, so that another metric costs
    no answer.
    """
    source = subject.source
    if source and not source.endpoint and (force or not (folder / "answers.jsonl").exists()):
        check_libraries(settings.engine)
    with run_folder.open_stage(folder, subject.plan, force=force) as stage:
        template = load_template(
            source.base if source else find_model(data.base, folder.parents[2]).base
        )
        mixture = settled(data.protocol, template)
        with console.waiting(f"eval: writing the prompts of {len(data.records)} records"):
            asked = list(prompts(data.records, mixture.of, template))
        if source:
            predictions = _answers(settings, source, asked, mixture.protocols, stage)
        else:
            predictions = [
                said(one, subject.said.get(one.step), mixture.protocols[one.protocol])
                for one in asked
            ]
        whole = dialogs(predictions, data.every)
        extra = _extra(settings, subject, first, asked, mixture, predictions, data, folder)
        key = f"{len(predictions)} {_digest(predictions, settings.seed)}"
        earlier = _measured(stage, key)
        metrics = replace(earlier, **extra) if earlier else None
        if metrics is None or metrics != earlier:
            stage.outcome = "done"
            with console.waiting(f"eval: scoring {len(predictions)} answers of {subject.name}"):
                metrics = metrics or replace(
                    figures(predictions, whole, data.every, settings.seed), **extra
                )
            write_rows(folder / "predictions.jsonl", map(to_prediction_row, predictions))
            write_rows(folder / "dialogs.jsonl", (one._asdict() for one in whole))
            write_json(folder / "metrics.json", metrics)
            outputs = [
                *(["answers.jsonl"] if source else []),
                "predictions.jsonl",
                "dialogs.jsonl",
                "metrics.json",
            ]
            told = {"limit": settings.limit, "seed": settings.seed, "predictions": subject.file}
            stage.finish(outputs, {"steps": key, "asked": told, **_key_figures(metrics)})
        return Evaluated(
            folder, metrics, scores(predictions, whole), stage.outcome, stage.done.seconds
        )


def _measured(stage: run_folder.StageFolder, key: str) -> Metrics | None:
    """The metrics that are there of these very predictions, scored as they are now."""
    if stage.status != "done" or stage.done.figures.get("steps") != key:
        return None
    return read_metrics(stage.folder / "metrics.json")


def _digest(predictions: Sequence[Prediction], seed: int) -> str:
    return digest(plain([seed, *map(to_prediction_row, predictions)]))


def _key_figures(metrics: Metrics) -> dict[str, float]:
    figures = {**metrics.metrics, **metrics.dialogs}
    return {name: round(figure.mean, 4) for name, figure in figures.items() if figure}


def _answers(
    settings: config.EvalSettings,
    source: Source,
    asked: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
    stage: run_folder.StageFolder,
) -> list[Prediction]:
    """Those that are there, and those of the prompts that were not asked yet: each is appended as
    it comes.
    """
    keys = {one.step: prompt_key(one) for one in asked}
    path = stage.folder / "answers.jsonl"
    stage.set_aside_changed(path.name)
    known = read_answers(path, keys)
    waiting = [one for one in asked if one.step not in known]
    if waiting:
        stage.reopen()
        console.notice(
            f"eval: {source.name}, {len(waiting)} prompts"
            + (f", {len(known)} there already" if known else "")
        )
        with Appender(path) as file:
            for answer in _ask(settings, source, waiting, protocols, keys):
                known[answer.step] = answer
                file.append(msgspec.to_builtins(answer))
    return [answered(one, known[one.step], protocols[one.protocol]) for one in asked]


def _ask(
    settings: config.EvalSettings,
    source: Source,
    waiting: Sequence[Prompt],
    protocols: Mapping[str, Protocol],
    keys: Mapping[Step, str],
) -> Iterator[GreedyAnswer]:
    """An answer to each prompt, as it comes; to one that is too long an empty one, and no model is
    loaded for that.
    """
    room = settings.max_length - settings.max_new_tokens
    fitting = [one for one in waiting if len(one.ids) <= room]
    yield from (GreedyAnswer(*one.step, "", "", "cut") for one in waiting if len(one.ids) > room)
    if len(fitting) < len(waiting):
        console.notice(
            f"eval: {len(waiting) - len(fitting)} prompts are longer than {room} tokens: they "
            "score 0"
        )
    if not fitting:
        return
    if source.endpoint:
        yield from _ask_there(settings, source, source.endpoint, fitting, keys)
        return
    from agentlite.engine.generate import Greedy, generate
    from agentlite.engine.load import Loading, load_to_ask

    turn_end = (template := load_template(source.base)).token_id(template.turn_end)
    loaded = load_to_ask(
        source,
        Loading(settings.engine, settings.max_length, settings.load_in_4bit, settings.load_in_8bit),
    )
    done = 0
    with console.progress(f"eval {source.name}", len(fitting)) as advance:
        for name, protocol in protocols.items():
            own = [one for one in fitting if one.protocol == name]
            how = Greedy(turn_end, protocol.stops, settings.max_new_tokens, settings.batch_size)
            for batch in generate(loaded, [one.ids for one in own], how):
                for given in batch:
                    step = own[given.prompt].step
                    yield GreedyAnswer(
                        *step,
                        keys[step],
                        given.text,
                        "turn" if given.finished else "cut",
                        given.new_tokens,
                    )
                advance(done := done + len(batch))


def _ask_there(
    settings: config.EvalSettings,
    source: Source,
    endpoint: Endpoint,
    asked: Sequence[Prompt],
    keys: Mapping[Step, str],
) -> Iterator[GreedyAnswer]:
    parameters = {"max_tokens": settings.max_new_tokens, "temperature": 0}
    questions = [RemoteRequest(one) for one in asked]
    with console.progress(f"eval {source.name}", len(asked)) as advance:
        for done, reply in enumerate(
            replies(endpoint, questions, load_template(source.base), parameters), 1
        ):
            step = asked[reply.question].step
            yield GreedyAnswer(*step, keys[step], reply.text, reply.ended, reply.new_tokens)
            advance(done)


def _write_comparison(
    base: Path, evaluated: Mapping[str, Evaluated], digest: str, seed: int
) -> None:
    """Of these models and of those that were evaluated before on the same steps, in the order they
    first came in.
    """
    now = {one.folder.name: one.scores for one in evaluated.values()}
    by_model = {**finished_beside(base, digest, now), **now}
    if len(by_model) < 2:
        return
    path = base / "compare.json"
    before = json.loads(path.read_bytes())["models"] if path.exists() else []
    order = [
        *(name for name in before if name in by_model),
        *(name for name in by_model if name not in before),
    ]
    digests = {name: file_digest(base / name / "predictions.jsonl") for name in order}
    comparison = compare({name: by_model[name] for name in order}, seed)
    write_json(path, replace(comparison, predictions=digests))


def _extra(
    settings: config.EvalSettings,
    subject: EvalSubject,
    first: Source | None,
    asked: Sequence[Prompt],
    mixture: Mixture,
    predictions: Sequence[Prediction],
    data: EvalData,
    folder: Path,
) -> dict[str, Any]:
    """The groups of metrics that are asked for and need more than predictions: the scores of an LLM
    judge, pass^k over samples, and what was forgotten since the first model.
    """
    extra: dict[str, Any] = {}
    source = subject.source
    loading = (settings.engine, settings.max_length, settings.load_in_4bit, settings.load_in_8bit)
    if settings.judge:
        prices = Prices(*settings.judge_prices) if settings.judge_prices else None
        extra["judge"], extra["judge_is"] = judged(
            predictions,
            data.every,
            _endpoint(settings),
            folder / "judged.jsonl",
            settings.seed,
            prices,
        )
    if settings.num_samples and source:
        how = Drawing(
            subject.name,
            *loading,
            settings.max_new_tokens,
            settings.num_samples,
            settings.temperature,
            1.0,
            settings.seed,
        )
        extra["passes"] = drawn(
            source, asked, mixture.protocols, how, folder / "drawn.jsonl", settings.batch_size
        )
        extra["passes_are"] = SamplingOfPasses(settings.temperature)
    if settings.general and source and first and source.digest != first.digest:
        asking = Asking(*loading, settings.batch_size)
        extra["forgetting"] = forgotten(
            first, source, settings.general, mixture, asking, settings.seed
        )
        extra["forgetting_is"] = ForgettingSource(settings.general, first.name, source.name)
    return extra


def _dry_run(
    settings: config.EvalSettings,
    target: RunTarget,
    subjects: Sequence[EvalSubject],
    data: EvalData,
) -> Result:
    """How many prompts each model would still be asked, and the memory that it takes."""
    told, force, base = {}, target.force, target.folder / slug(_asked_as(settings))
    longest = data_of("eval", settings, target.run).longest
    for one in subjects:
        folder = base / slug(one.name)
        if not force:
            run_folder.compare(folder, one.plan)
        steps = {Step(record.id, turn) for record in data.records for turn in record.asked}
        known = set() if force else _known_steps(folder / "answers.jsonl")
        here = one.source and not one.source.endpoint
        memory = (
            dry_run_memory("eval", settings, one.source.base, longest)
            if one.source and here
            else {}
        )
        told[one.name] = {
            "prompts": len(steps),
            "missing": len(steps - known) if one.source else 0,
            "memory_gib": memory,
        }
    return Result("eval", "dry run", str(base), told, [], 0.0)


def _known_steps(path: Path) -> set[Step]:
    """Those of the whole lines: a torn last one is only cut by a run that writes."""
    whole = path.read_bytes()[: whole_lines_end(path)] if path.exists() else b""
    return {Step(row["record_id"], row["turn"]) for row in map(json.loads, whole.splitlines())}
