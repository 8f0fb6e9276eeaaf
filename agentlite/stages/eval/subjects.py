"""What eval evaluates: the records to ask, and each model or file of answers with its plan."""

import re
from collections.abc import Collection, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.config.pipeline import DEFAULT_MODEL
from agentlite.config.settings import EvalSettings, default
from agentlite.core import console
from agentlite.core.errors import USAGE, RowError, UserError
from agentlite.core.records import Record, Step, from_row, to_json
from agentlite.core.row_files import Row, read_rows, row_file
from agentlite.data.curation.mix import sample
from agentlite.data.formats.raw_rows import read_raw
from agentlite.data.formats.tool_calls import read_call
from agentlite.engine import load_libraries
from agentlite.engine.remote import remote_source
from agentlite.rendering import Prompt, Protocol, choose
from agentlite.scoring.predictions import ExternalAnswer
from agentlite.stages.frame import plan_of
from agentlite.stages.tool_retrieval import offers, retriever_digest
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest, load_template
from agentlite.workspace.lookup import Plan, RunTarget, Source, StoredStage

ID_KEYS = ("record_id", "id")
CALL_KEYS = ("calls", "tool_calls", "function_call")  # the last one as older servers write it
ROW_HINT = (
    'A row: {"record_id": "...", "turn": 2, "text": "..."}, or "calls": [{"name": ..., '
    '"arguments": {...}}] for "text", or "tool_calls" or "message" as OpenAI writes them.'
)
LONGEST_PROTOCOLS = 80  # characters of a folder's name
ASCII = "A-Za-z0-9_"  # of which many make a name: a file system counts bytes
# Only what decides a completion is part of a plan: steps may be added, and scored otherwise.
ANSWER_SETTINGS = ("split", "retrieve", "retrieve_by")
MODEL_SETTINGS = (
    "engine",
    "attn_implementation",
    "max_length",
    "max_new_tokens",
    "load_in_4bit",
    "load_in_8bit",
)


class EvalData(NamedTuple):
    """The records to ask, all of the split by id, their prep, the digest of the rows, and the
    protocols of the prompts.
    """

    records: list[Record]
    all_records: dict[str, Record]
    prep: StoredStage
    digest: str
    protocol: str

    @property
    def model(self) -> Source:
        """The model that prep was run for: it may be gone where another one is asked."""
        prep = self.prep
        return lookup.find_model(str(prep.settings["model"]), prep.folder.parent, prep.plan)


class Questions(NamedTuple):
    """What a model is asked, and how. `protocols`: those of the prompts, by name."""

    settings: EvalSettings
    source: Source
    prompts: Sequence[Prompt]
    protocols: Mapping[str, Protocol]

    @property
    def room(self) -> int:
        """The tokens of the longest prompt that leaves room for an answer."""
        return self.settings.max_length - self.settings.max_new_tokens

    @property
    def fitting(self) -> dict[Step, Prompt]:
        return {prompt.step: prompt for prompt in self.prompts if len(prompt.ids) <= self.room}


class EvalSubject(NamedTuple):
    """A model to evaluate, or a file of what another system answered; with its plan and folder."""

    name: str
    plan: Plan
    target: RunTarget
    source: Source | None = None
    answers: Mapping[Step, ExternalAnswer] = {}


def load_data(settings: EvalSettings, run: Path) -> EvalData:
    """The records that are asked, and all of the split."""
    prep = lookup.find_finished_stage(settings.data, run, "prep")
    path = row_file(prep.folder, settings.split)
    # also those that --limit leaves out: a file of predictions may name them
    all_records = {record.id: record for record in map(from_row, read_rows(path))}
    records = [record for record in all_records.values() if record.prompted_turns]
    if not records:
        raise UserError(
            "holds no record with tools, and none whose gold says that no call is expected.",
            "Run prep with a larger share: --test 0.2.",
            location=str(path),
            exit_code=USAGE,
        )
    records = [records[index] for index in sample(records, settings.limit, settings.seed)]
    digest, protocol = prep.outputs[path.name], str(prep.settings["protocol"])
    data = EvalData(records, all_records, prep, digest, protocol)
    if settings.protocol:
        template = load_template(data.model.base)
        data = data._replace(
            # each is drawn a protocol anew
            records=[replace(r, meta={**r.meta, "protocol": None}) for r in records],
            protocol=choose(settings.protocol, template, settings.seed).setting,
        )
    return data


def with_retrieved_tools(settings: EvalSettings, data: EvalData, run: Path) -> EvalData:
    """The data with the tools that the retriever finds, and no others. The model's own libraries
    are loaded first: Unsloth patches those that the retriever uses.
    """
    assert settings.retrieve
    retriever = lookup.find_finished_stage(settings.retriever, run, "retriever")
    by, count = settings.retrieve_by, len(data.records)
    with console.stdout_to_stderr():
        if by == "tuned" and not settings.endpoint:
            load_libraries(settings.engine)
        with console.waiting(
            f"eval: retrieving {settings.retrieve} tools for each of {count} records"
        ):
            tool_offers = offers(retriever, settings.retrieve, by, "left out")
            records = [*map(tool_offers.offer, data.records)]
    return data._replace(
        records=records,
        all_records=data.all_records | {record.id: record for record in records},
        digest=f"{data.digest}, {retriever_digest(retriever)}",
    )


def find_subjects(settings: EvalSettings, data: EvalData, target: RunTarget) -> list[EvalSubject]:
    """The files of --predictions, then the models. A plan holds only what changes an answer: other
    steps may be asked later.
    """
    run, subfolder = target.run, data_folder(settings)

    def target_of(name: str) -> RunTarget:
        return target._replace(subfolder=f"{subfolder}/{slug(name)}")

    steps = [Step(record.id, turn) for record in data.records for turn in record.prompted_turns]
    subjects = []
    for file in dict.fromkeys(settings.predictions):
        path = Path(file)
        answers = read_predictions_file(path, steps, data.all_records)
        if len(answers) < len(steps):
            console.notice(
                f"eval: {len(steps) - len(answers)} of {len(steps)} steps have no row in {file}: "
                "they score 0"
            )
        inputs = {"data": data.digest, "predictions": file_digest(path)}
        plan = plan_of("eval", settings, inputs, ANSWER_SETTINGS, protocol=data.protocol)
        subjects.append(EvalSubject(path.stem, plan, target_of(path.stem), answers=answers))
    names = settings.model or (() if settings.predictions else (DEFAULT_MODEL,))
    if not settings.endpoint and not (run / "base").exists():  # the model that prep was run for
        names = tuple(str(data.prep.settings["model"]) if n == "base" else n for n in names)
    for name in dict.fromkeys(names):
        if settings.endpoint:
            source = remote_source(name, settings, data.model)
            name = source.name  # model@host:port
        else:
            old_plan = target_of(name).old_plan
            source = lookup.find_checkpoint(name, run) or lookup.find_model(name, run, old_plan)
        inputs = {"data": data.digest, "model": source.digest}
        keys = (*ANSWER_SETTINGS, *MODEL_SETTINGS)
        plan = plan_of("eval", settings, inputs, keys, protocol=data.protocol, model=source.name)
        subjects.append(EvalSubject(name, plan, target_of(name), source))
    folders = [subject.target.folder.name for subject in subjects]
    if len(set(folders)) < len(folders):
        raise UserError(
            f"two models share the folder {max(folders, key=folders.count)}.",
            "Evaluate them one by one, with --out.",
            location="--model",
        )
    return subjects


def read_predictions_file(
    path: Path, steps: Collection[Step], records: Mapping[str, Record]
) -> dict[Step, ExternalAnswer]:
    """Texts or calls from elsewhere, by step. `records`: all of the data, by id; `steps`: those
    that are asked.
    """
    answers: dict[Step, ExternalAnswer] = {}
    not_asked = 0
    for raw in read_raw(str(path), BytesIO()):
        row, problem, fix = raw.value, "", ROW_HINT
        if raw.error:
            raise UserError(f"{raw.error.reason}.", fix, location=raw.location)
        name = next((row[key] for key in ID_KEYS if isinstance(row.get(key), str)), "")
        turns = records[name].prompted_turns if name in records else ()
        # a record that is asked once needs no turn
        turn = turns[0] if row.get("turn") is None and len(turns) == 1 else row.get("turn")
        if name not in records:
            problem = f"names no record of the data ('{name}'): other data, or another --split?"
        elif not turns:
            not_asked += 1
            continue
        elif turn not in turns:
            problem = f"record {name} is not asked at turn {to_json(turn)}."
            fix = f"It is at: {', '.join(map(str, turns))}."
        elif (name, turn) in answers:
            problem, fix = f"record {name}, turn {turn} appears twice.", "Keep one of the two."
        if problem:
            raise UserError(problem, fix, location=raw.location)
        answers[Step(name, turn)] = _external_answer(row, raw.location)
    if not_asked:
        console.notice(
            f"{path}: {not_asked} rows are about records that are not asked: they have no tools, "
            "and no gold says that no call is expected"
        )
    return {step: answers[step] for step in steps if step in answers}


def _external_answer(row: Row, location: str) -> ExternalAnswer:
    """The words and calls of a row, or of its message."""
    message = row["message"] if isinstance(row.get("message"), dict) else {}
    fields = {**row, **{key: message[key] for key in CALL_KEYS if message.get(key) is not None}}
    text = message.get("content") or "" if message else row.get("text")
    key = next((key for key in CALL_KEYS if fields.get(key) is not None), None)
    raw_calls = [fields[key]] if key == "function_call" else fields.get(key or "", [])
    is_wrong = not isinstance(text, str | None) or not isinstance(raw_calls, list)
    if is_wrong or (text is None and key is None):
        raise UserError("has no text and no calls.", ROW_HINT, location=location)
    try:
        calls = tuple(replace(read_call(call), id="") for call in raw_calls)
    except RowError as error:
        raise UserError(f"{error.reason}.", error.hint or ROW_HINT, location=location) from error
    # a server lists no calls where it finds none in the text: the text is the answer
    is_only_text = not calls and key != "calls" and text is not None
    return ExternalAnswer(text or "", None if is_only_text else calls)


def data_folder(settings: EvalSettings) -> str:
    """The data, how its tools are chosen and in which protocols it is asked, as a folder: prep,
    prep-retrieve-5, prep-retrieve-5-bm25, prep-in-react.
    """
    name = settings.data
    if settings.retrieve:
        is_default = settings.retrieve_by == default("eval", "retrieve_by")
        name += f"-retrieve-{settings.retrieve}{'' if is_default else f'-{settings.retrieve_by}'}"
    if settings.protocol:
        protocols = slug(settings.protocol, ASCII)  # hermes=2,react -> hermes-2-react
        name += f"-in-{protocols[:LONGEST_PROTOCOLS]}"
    return slug(name)


def slug(name: str, letters: str = r"\w=") -> str:
    """A name as a folder: `Qwen/Qwen2.5-1.5B` -> `Qwen-Qwen2.5-1.5B`. Letters of any script and
    what a file system takes anywhere stay, so that no two cells of an ablation share one.
    """
    return re.sub(rf"[^{letters}.-]+", "-", name).strip("-.") or "model"
