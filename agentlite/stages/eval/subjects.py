"""What eval evaluates: the records to ask, and each model or file of answers with its plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.config.pipeline import TRAINED
from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.errors import USAGE, UserError
from agentlite.core.records import Record, Step, from_row
from agentlite.core.row_files import find_rows, read_rows
from agentlite.data.curation.sample import sample
from agentlite.engine import load_libraries
from agentlite.engine.remote import served
from agentlite.rendering import choose
from agentlite.scoring.predictions import ExternalAnswer
from agentlite.stages.eval.evaluation import slug
from agentlite.stages.eval.predictions_file import missing, read_predictions_file
from agentlite.stages.tool_retrieval import digest_of, learned, offers
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, RunTarget

LONGEST_PROTOCOLS = 80  # characters of a folder's name
# Only what decides a completion is part of a plan: steps may be added, and scored otherwise.
OF_THE_ANSWER = ("split", "retrieve", "retrieve_by")
OF_A_MODEL = (
    "engine",
    "attn_implementation",
    "max_length",
    "max_new_tokens",
    "load_in_4bit",
    "load_in_8bit",
)


class EvalData(NamedTuple):
    """The records to ask, all of the split by id, the folder of prep, and the digest of the
    rows. `chosen_protocol`: the protocols of `--protocol`; "" for those of prep.
    """

    records: list[Record]
    every: dict[str, Record]
    folder: Path
    digest: str
    chosen_protocol: str = ""

    @property
    def protocol(self) -> str:
        return self.chosen_protocol or str(run_folder.read_plan(self.folder).settings["protocol"])

    @property
    def model(self) -> Source:
        """The model that prep was run for."""
        name = str(run_folder.read_plan(self.folder).settings["model"])
        return find_model(name, self.folder.parent, self.folder)

    @property
    def prepared(self) -> dict[str, Any]:
        """The settings of prep."""
        return run_folder.read_plan(self.folder).settings


class EvalSubject(NamedTuple):
    """A model to evaluate, or a file of what another system answered; with its plan."""

    name: str
    plan: Plan
    source: Source | None = None
    file: str = ""
    answers: Mapping[Step, ExternalAnswer] = {}

    @property
    def is_local(self) -> bool:
        """Whether it is a model that is loaded here."""
        return self.source is not None and not self.source.endpoints


def load_data(settings: EvalSettings, run: Path) -> EvalData:
    """The records that are asked, and all of the split. Raises UserError where none is asked."""
    if settings.split == "all":
        raise UserError(
            "is for the tasks of --env.",
            "Name one of train, dev and test.",
            location="--split all",
        )
    folder = run_folder.find_stage(settings.data, run)
    prepared = run_folder.finished(folder, "prep")
    path = find_rows(folder, settings.split)
    every = {record.id: record for record in map(from_row, read_rows(path))}
    records = [record for record in every.values() if record.prompted_turns]
    if not records:
        raise UserError(
            "holds no record with tools, and none whose gold says that no call is expected.",
            "Run prep with a larger share: --test 0.2.",
            location=str(path),
            exit_code=USAGE,
        )
    chosen = [records[index] for index in sample(records, settings.limit, settings.seed)]
    name = next(
        value for name, value in prepared.outputs.items() if name.startswith(settings.split)
    )
    data = EvalData(chosen, every, folder, name)
    if not settings.protocol:
        return data
    mixture = choose(settings.protocol, load_template(data.model.base), settings.seed)
    records = [replace(record, meta=_without(record.meta, "protocol")) for record in chosen]
    return data._replace(records=records, chosen_protocol=mixture.name)


def _without(meta: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if name != key}


def with_retrieved_tools(settings: EvalSettings, data: EvalData, run: Path) -> EvalData:
    """With the tools that the retriever finds, and no others. The model's own libraries are loaded
    first: Unsloth patches those that the retriever uses.
    """
    retriever = digest_of(settings, run)
    count = len(data.records)
    if trained := learned(settings, data.records, run):
        console.notice(
            f"eval: {trained} of {count} records ask what {settings.retriever} learned from: "
            "prepare both alike, with the same seed, test and split_by"
        )
    with console.stdout_to_stderr():
        if settings.retrieve_by in ("tuned", "hybrid") and not settings.endpoint:
            load_libraries(settings.engine)
        with console.waiting(
            f"eval: retrieving {settings.retrieve} tools for each of {count} records"
        ):
            records = offers(settings, run, "left out").all(data.records)
    return data._replace(
        records=records,
        every=data.every | {record.id: record for record in records},
        digest=f"{data.digest}, {retriever}",
    )


def find_subjects(settings: EvalSettings, data: EvalData, target: RunTarget) -> list[EvalSubject]:
    """The files of --predictions, then the models. Raises UserError for two with one folder, or a
    file that cannot be read.
    """
    models = settings.model or (() if settings.predictions else (TRAINED,))
    subjects = [_from_file(settings, file, data) for file in dict.fromkeys(settings.predictions)]
    base = target.begun and target.begun / data_folder(settings)
    for name in dict.fromkeys(models):
        source = (
            served(name, settings, data.model, _begun_servers(settings, name, base))
            if settings.endpoint
            else find_model(name, target.run, base and base / slug(name))
        )
        subjects.append(_model(settings, source, name, data))
    folders = [slug(one.name) for one in subjects]
    if len(set(folders)) < len(folders):
        raise UserError(
            f"two models share the folder {max(folders, key=folders.count)}.",
            "Evaluate them one by one, with --out.",
            location="--model",
        )
    return subjects


def _begun_servers(settings: EvalSettings, name: str, base: Path | None) -> str:
    """The servers in the plan of an evaluation in `base`, of the same model name and with one of
    the same servers; "" if there is none.
    """
    for folder in run_folder.stages_in(base) if base else ():
        plan = run_folder.read(folder).plan
        if plan and str(plan.settings.get("model")).startswith(f"{name}@"):
            servers = plan.inputs.get("model", "")
            if {*servers.split()} & {*settings.endpoint}:
                return servers
    return ""


def _model(settings: EvalSettings, source: Source, name: str, data: EvalData) -> EvalSubject:
    """Its plan holds only what changes a completion: the steps may differ from run to run, and new
    ones are added.
    """
    plain = resolve.plain_settings(settings)
    plan = Plan(
        "eval",
        {key: plain[key] for key in (*OF_THE_ANSWER, *OF_A_MODEL)}
        | {"model": source.name, "protocol": data.protocol},
        {"data": data.digest, "model": source.digest},
        run_folder.versions(),
    )
    return EvalSubject(source.name if source.endpoints else name, plan, source)


def _from_file(settings: EvalSettings, file: str, data: EvalData) -> EvalSubject:
    """Its plan holds the content of the file, wherever it lies."""
    steps = [Step(record.id, turn) for record in data.records for turn in record.prompted_turns]
    answers = read_predictions_file(Path(file), steps, data.every)
    if count := missing(steps, answers):
        console.notice(f"eval: {count} of {len(steps)} steps have no row in {file}: they score 0")
    plain = resolve.plain_settings(settings)
    plan = Plan(
        "eval",
        {key: plain[key] for key in OF_THE_ANSWER} | {"protocol": data.protocol},
        {"data": data.digest, "predictions": file_digest(Path(file))},
        run_folder.versions(),
    )
    return EvalSubject(Path(file).stem, plan, file=file, answers=answers)


def data_folder(settings: EvalSettings) -> str:
    """The data, how its tools are chosen and in which protocols it is asked, as a folder: prep,
    prep-retrieve-5, prep-retrieve-5-bm25, prep-in-react.
    """
    usual = settings.retrieve_by == default("eval", "retrieve_by")
    by = "" if usual else f"-{settings.retrieve_by}"
    retrieved = f"-retrieve-{settings.retrieve}{by}" if settings.retrieve else ""
    chosen_protocol = (
        f"-in-{slug(settings.protocol)[:LONGEST_PROTOCOLS]}" if settings.protocol else ""
    )
    return slug(f"{settings.data}{retrieved}{chosen_protocol}")
