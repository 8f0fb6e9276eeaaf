"""The name of a stage or of a model -> where it is, what made it, and whether it can be used."""

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

import msgspec
from msgspec import Struct

from agentlite.config import pipeline
from agentlite.config.resolve import UserSettings
from agentlite.config.settings import default, option_words
from agentlite.config.this_machine import AUTO
from agentlite.core.console import redact
from agentlite.core.errors import LOCKED, MODEL, OTHER_PLAN, USAGE, UserError, suggest
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import to_json
from agentlite.workspace import hub, input_files

# Nothing else in the package names these files: whoever needs them asks this module.
PLAN, DONE = "plan.json", "done.json"
FAILED = "failed.json"  # plan.json renamed: the folder was given up, and the next run starts over
COMMAND_LINE = ".command"  # the command line that has begun the stage, or carried it on
LOCK = ".lock"
HOLDER = ".holder"  # who holds the lock: there from lock to release, and after a kill
# in a folder that `agentlite export` wrote: its kind, and the settings that a reader needs
EXPORT = "export.json"
DEFAULT_RUN = "runs/default"
MANIFESTS = "checkpoints/checkpoint-*/manifest.json"  # each is written last: the rest is whole
MODEL_FOLDER = "model"  # the folder in a finished stage that holds the model it trained
Content = TypeVar("Content")
Outcome = Literal["done", "up to date", "dry run", "compared"]


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stage is about to do: written first, compared when the command is run again."""

    command: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str] = {}

    def pinned_commit(self, name: str) -> str:
        """The commit that the hub id `name` of a model or a teacher stood for; "" if there is none.

        {"model": "org/name"} among the settings, {"model": COMMIT} among the inputs."""
        digests = (value for key, value in self.inputs.items() if self.settings.get(key) == name)
        return next(filter(hub.COMMIT.fullmatch, digests), "")


class Done(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stage has done: written last, so that its presence proves the rest.

    `outputs`: the sha256 of each file that was written, by its name in the folder."""

    outputs: dict[str, str]
    figures: dict[str, Any]
    seconds: float


class Result(Struct, frozen=True):
    """What a command answers: the one JSON object of `--json`."""

    command: str
    status: Outcome
    folder: str
    figures: dict[str, Any]
    outputs: list[str]
    seconds: float
    next: str = ""
    failed: list[str] = []  # conditions of a gate, in words
    sentences: list[str] = []  # the result in words


class RunTarget(NamedTuple):
    """Where a command writes, whether it may start over or only plans, and the settings as the user
    gave them, for a stage that runs others.
    """

    run: Path
    out: str
    force: bool = False
    dry_run: bool = False
    user_settings: UserSettings = UserSettings()
    subfolder: str = ""  # of several stages that one command makes: where this one is in `out`

    @property
    def folder(self) -> Path:
        return self.run / self.out / self.subfolder

    @property
    def old_plan(self) -> Plan | None:
        """The plan of the stage that is in the folder, if it is to be carried on."""
        stored = read_stage(self.folder)
        return None if self.force or stored.given_up else stored.plan

    def next(self, command: str) -> str:
        """A further command, in the same workspace."""
        run = str(self.run)
        return command if run == DEFAULT_RUN else f"{command} --run {shlex.quote(run)}"

    def command_line(self, command: str) -> str:
        """The command line that the user gave, or that says the same."""
        settings = self.user_settings
        flags = {**settings.flags}
        sources, what = flags.pop("sources", ()), flags.pop("what", None)
        options = (
            option_words(command, key, [*value] if isinstance(value, tuple) else value)
            for key, value in flags.items()
        )
        words = [
            *("agentlite", *pipeline.full_command(command).split()),
            *([sources] if isinstance(sources, str) else sources),
            *([] if what is None else [what]),
            *([] if self.out == command else ["--out", self.out]),
            *chain.from_iterable(options),
            *(word for text in settings.sets for word in ("--set", text)),
            *(word for file in settings.files for word in ("--config", file)),
            *([] if settings.profile == AUTO else ["--profile", settings.profile]),
        ]
        return redact(self.next(shlex.join(words)))


class StoredStage(Struct, frozen=True):
    """A stage's folder as it lies on disk. All readers trust the same: a plan and a done that can
    be read, and outputs that still have the digests in done."""

    folder: Path
    plan: Plan | None  # None: there is none, or it cannot be trusted
    done: Done | None  # None: the stage is not finished, or its done.json cannot be trusted
    refusal: UserError | None = None  # why one of the two cannot be trusted
    given_up: bool = False  # the plan is that of failed.json

    @property
    def command(self) -> str:
        return self.plan.command if self.plan else ""

    @property
    def settings(self) -> dict[str, Any]:
        return self.plan.settings if self.plan else {}

    @property
    def inputs(self) -> dict[str, str]:
        return self.plan.inputs if self.plan else {}

    @property
    def outputs(self) -> dict[str, str]:
        return self.done.outputs if self.done else {}

    @property
    def figures(self) -> dict[str, Any]:
        return self.done.figures if self.done else {}

    @property
    def command_line(self) -> str:
        """The command line that has begun it; "" where it is not known."""
        path = self.folder / COMMAND_LINE
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def started_at(self) -> float:
        """When its plan was written: seconds since the epoch. Of one that is lost: its done."""
        file = FAILED if self.given_up else PLAN if is_stage(self.folder) else DONE
        return (self.folder / file).stat().st_mtime

    def trusted(self) -> Self:
        """The same. Raises UserError 3 where the plan or the done cannot be trusted."""
        if self.refusal:
            raise self.refusal
        return self

    def changed_outputs(self, names: Iterable[str] | None = None) -> list[str]:
        """Outputs of the finished stage, of `names` or of all, that are gone or were changed."""
        return [
            name
            for name in (self.outputs if names is None else names)
            if name in self.outputs
            and not (
                (self.folder / name).exists()
                and input_files.file_digest(self.folder / name) == self.outputs[name]
            )
        ]

    def is_unchanged(self, name: str) -> bool:
        """Whether the stage is finished and has this file, as it left it."""
        exists = (self.folder / name).exists()
        return bool(self.done) and exists and not self.changed_outputs([name])

    def problem(self, names: Iterable[str] | None = None) -> str:
        """What is wrong with the folder or with its outputs `names`, in words; "" if nothing is."""
        if self.refusal:
            return f"{Path(self.refusal.location).name} {self.refusal.problem.rstrip('.')}"
        changed = self.changed_outputs(names)
        return f"{changed[0]} has changed since the stage wrote it" if changed else ""


def is_stage(folder: Path, *, given_up: bool = False) -> bool:
    """Whether a stage was begun there; only on request one that was given up."""
    return (folder / PLAN).exists() or (given_up and (folder / FAILED).exists())


def is_finished(folder: Path) -> bool:
    """Whether a done.json is there, be it to be trusted or not."""
    return (folder / DONE).exists()


def find_stage(name: str, run: Path) -> Path:
    """A stage's folder: its name in the workspace, or a path."""
    # a stage wins over a folder of the same name in the current one: `--model sft` is runs/x/sft
    is_path = not (run / name).exists() and Path(name).is_dir()
    return without_detours(Path(name) if is_path else run / name)


def without_detours(path: Path) -> Path:
    """`runs/prep` for `runs/ablate/../prep`, unless a link on the way makes them two."""
    direct = Path(os.path.normpath(path))
    return path if path.exists() and not (direct.exists() and direct.samefile(path)) else direct


def stages_in(run: Path, pattern: str = "*", *, given_up: bool = False) -> list[Path]:
    """The folders below `run` that match and hold a stage, by name; only on request those given up,
    and those whose plan is lost."""
    names = (PLAN, FAILED, DONE) if given_up else (PLAN,)
    return sorted({path.parent for name in names for path in run.glob(f"{pattern}/{name}")})


def stages_below(folder: Path) -> list[Path]:
    """The folders at any depth that a stage wrote, finished or not. There are none for a folder
    that is a stage, or lies in one. A plan.json of another program is no stage's.
    """
    absolute = folder.resolve()
    if any(read_stage(parent).plan for parent in (absolute, *absolute.parents)):
        return []
    folders = {path.parent for name in (PLAN, FAILED) for path in folder.rglob(name)}
    return sorted(folder for folder in folders if read_stage(folder).plan)


def read_stage(folder: Path) -> StoredStage:
    """The one reader of stages' folders. It refuses nothing: what is wrong is in the value."""
    given_up = not is_stage(folder) and (folder / FAILED).exists()
    plan = done = refusal = None
    try:
        if given_up or is_stage(folder):
            plan = decode_file(folder / (FAILED if given_up else PLAN), Plan)
        if is_finished(folder):
            done = decode_file(folder / DONE, Done)
        if done and not plan:
            refusal = plan_error(
                folder / PLAN,
                "is missing, and without it nobody knows how the stage was made.",
                "Put it back from a copy; or remove the folder, and run its command again.",
            )
    except UserError as error:
        refusal = error
    except FileNotFoundError:  # another process has just removed it
        pass
    return StoredStage(folder, plan, done, refusal, given_up)


def read_plan(folder: Path) -> Plan:
    """Raises UserError 3 for a plan that cannot be read."""
    return decode_file(folder / PLAN, Plan)


def find_finished_stage(name: str, run: Path, command: str = "") -> StoredStage:
    """A stage that another one names. Raises what `finished_stage` raises."""
    return finished_stage(find_stage(name, run), command)


def finished_stage(folder: Path, command: str = "") -> StoredStage:
    """A stage of this command, or of any, whole and as it was left. Raises UserError 2 or 3 for a
    folder that is missing, half done or changed, 75 for one that is being made.
    """
    stored = read_stage(folder).trusted()
    problem, fix, code = "", "", USAGE
    command = command or stored.command
    rerun = RunTarget(folder.parent, "").next(f"agentlite {command}")
    if stored.given_up:
        problem = "has failed."
        fix = f"Correct what its message named, and run `{rerun}` as before."
    elif not stored.plan:
        problem, run = "no such stage.", os.path.realpath(folder.parent)
        fix = suggest(
            folder.name,
            [path.name for path in stages_in(folder.parent)],
            fallback=f"Run `{rerun}` first, or name another one. Looked for it in {run}.",
        )
    elif not stored.done and (process := holder(folder)):
        problem, code = f"is running: {process}.", LOCKED
        fix = "Wait until it is done: `agentlite runs` says how far it is."
    elif not stored.done:
        problem, fix = "is not finished.", "Run the same command again: it carries on."
    elif stored.command != command:
        problem = f"is a stage of `agentlite {stored.command}`, not of `{command}`."
    elif changed := stored.changed_outputs():
        problem = f"{changed[0]} has changed since the stage wrote it."
        fix = f"Run `{rerun}` again with --force."
    if problem:
        raise UserError(problem, fix, location=str(folder), exit_code=code)
    return stored


def holder(folder: Path) -> str:
    """The process that holds a stage's folder now, in words; "" if none does, or it was killed."""
    from filelock import FileLock, Timeout

    try:
        # first: it is removed at the release, so once the lock is free it may be gone
        process = (folder / HOLDER).read_text(encoding="utf-8")
        # a killed holder has left its file, but the system has released its lock
        FileLock(folder / LOCK).acquire(timeout=0).lock.release()
    except Timeout:
        return process
    except OSError:  # nobody holds it, or the folder belongs to somebody else
        return ""
    return ""


def decode_file(path: Path, kind: type[Content]) -> Content:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fix = "Make the stage again: the command that made it, with --force."
        raise plan_error(path, f"cannot be read ({error}).", fix) from error


def plan_error(path: Path, problem: str, fix: str) -> UserError:
    return UserError(problem, fix, location=str(path), exit_code=OTHER_PLAN)


def stored_settings(name: str, run: Path) -> dict[str, Any]:
    """The settings in the plan of a stage or of its export; {} if `name` is neither."""
    folder = find_stage(name, run)
    if name and is_stage(folder):
        return read_plan(folder).settings
    if not name or not (folder / EXPORT).exists():
        return {}
    settings: dict[str, Any] = json.loads((folder / EXPORT).read_bytes())["settings"]
    return settings


def max_length_of(command: str, data: str, run: Path) -> dict[str, tuple[object, str]]:
    """`max_length` as the stage `data` has it, where `command` takes shorter rows by default."""
    length = stored_settings(data, run).get("max_length", 0)
    return {"max_length": (length, data)} if length > default(command, "max_length") else {}


def system_prompt_of(name: str, run: Path) -> str:
    """The system text that the prep of a model's records put before dialogs without one; "" if it
    put none, or the model was not trained here.
    """
    stage, visited = name, set[str]()
    while stage and stage not in visited:
        visited.add(stage)
        settings = stored_settings(stage, run)
        if text := settings.get("system"):
            return str(text)
        # from a trainer or pairs to its records, from a merged or exported model to nothing
        stage = str(settings.get("data") or "")
    return ""


def lineage(name: str, run: Path) -> list[str]:
    """From the base model to `name`: smollm2-135m, sft, dpo."""
    return [*earlier_models(name, run), name]


def earlier_models(name: str, run: Path) -> tuple[str, ...]:
    """The models that a stage was made from, which may be gone: the base model, then the stages."""
    model = str(stored_settings(name, run).get("model") or "")
    return (*earlier_models(model, run), model) if model not in ("", name) else ()


class Source(NamedTuple):
    """Where a model comes from: the folder of a whole model, its alias or its hub id with a commit
    (`org/model@commit`); an adapter on it; and a digest that names both.

    With `endpoints`, servers run the model, and prompts are counted by the template of `base`.
    `made_from`: from the base model to the one before it. `settings`: of the stage that trained it.
    """

    name: str
    base: str
    adapter: Path | None
    digest: str
    endpoints: tuple[Endpoint, ...] = ()
    made_from: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}

    def __hash__(self) -> int:  # a loaded model is kept by its source, and a dict has no hash
        return hash((self.name, self.base, self.adapter, self.digest))

    @property
    def lineage(self) -> list[str]:
        """From the base model to this one: smollm2-135m, sft, dpo."""
        return [*self.made_from, self.name]


def find_learner(command: str, settings: Any, target: RunTarget) -> Source:
    """The model that a trainer goes on from. Raises UserError 2 for one that was made from the
    stage, and for an adapter that would change its shape; see also `find_model`.
    """
    source = find_model(settings.model, target.run, target.old_plan)
    refuse_circle(source, target)
    for key, value in adapter_shape(source.settings).items():
        setting = to_json(getattr(settings, key))
        if setting != to_json(value):
            raise UserError(
                f"the adapter of {source.name} has {key} {to_json(value)}, not {setting}.",
                f"Leave {key} out, or start from the base model: --model "
                f"{shlex.quote(source.base)}.",
                location=f"{command}.{key}",
            )
    return source


def adapter_shape(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The `lora_*` settings of the stage that is trained further; {} if it trained all weights."""
    shape = {key: value for key, value in settings.items() if key.startswith("lora_")}
    return {} if settings.get("full") else shape


def refuse_circle(source: Source, target: RunTarget) -> None:
    """Raises UserError 2 for a stage that would be made from a model that was made from it."""
    if target.out in source.lineage:
        raise UserError(
            f"{source.name} was made from it.",
            "Give another --out: both are kept.",
            location=str(target.folder),
        )


def find_model(name: str, run: Path, plan: Plan | None = None) -> Source:
    """A stage of the workspace, a folder, an embedded alias or a hub id, in this order; nothing is
    loaded. Raises UserError 2, 3, 5 or 8.

    A hub id stands for its newest commit; for a stage that is carried on, for the commit in its
    `plan`.
    """
    commit = plan.pinned_commit(name) if plan else ""
    folder, settings = find_stage(name, run), stored_settings(name, run)
    if name and is_stage(folder, given_up=True):
        stage, made_from = finished_stage(folder), earlier_models(name, run)
        return _stage_model(name, stage)._replace(made_from=made_from, settings=settings)
    if name and folder.is_dir():
        return _folder_model(name, folder)._replace(settings=settings)
    if name in input_files.EMBEDDED:
        return Source(name, name, None, input_files.file_digest(input_files.embedded_file(name)))
    if hub.is_hub_id(name):
        base = hub.pin_model(name, commit)
        return Source(name, base, None, hub.commit_of(base))
    stages = map(read_stage, stages_in(run))
    trained = [stage.folder.name for stage in stages if stage.command in pipeline.TRAINERS]
    # a stage that is still to be run is no fault of a model: exit code 2, as for data
    code, fix = MODEL, suggest(name, [*input_files.EMBEDDED, *trained], fallback="")
    if name in pipeline.TRAINERS:
        command = RunTarget(run, "").next(f"agentlite {name}")
        code, fix = USAGE, f"Run `{command}` first, or name another."
    known = ", ".join(
        [*input_files.EMBEDDED, "a hub id such as Qwen/Qwen2.5-1.5B-Instruct", "a folder"]
    )
    fix += f" Known: {known}, or a trained stage of {run} ({', '.join(trained) or 'none yet'})."
    raise UserError(
        f"there is no model '{name}'.", fix.lstrip(), location="--model", exit_code=code
    )


def _folder_model(name: str, folder: Path) -> Source:
    return Source(name, os.path.realpath(folder), None, input_files.model_digest(folder))


def is_served(digest: str) -> bool:
    """Whether the digest of a model names servers that have it, by their addresses."""
    return digest.startswith(("http://", "https://"))


def _stage_model(name: str, stage: StoredStage) -> Source:
    folder, outputs = stage.folder, stage.outputs
    if digest := output_digest(outputs, f"{MODEL_FOLDER}/"):
        return Source(name, os.path.realpath(folder / MODEL_FOLDER), None, digest)
    if not (adapter := output_digest(outputs, "adapter/")):
        raise UserError(
            f"is a stage of `agentlite {stage.command}`, which makes no model.",
            "Name a stage that trains one (sft, dpo, grpo), or a base model.",
            location=str(folder),
        )
    base = _base_model(stage)
    # "1f0c…+9b2e…,04ad…": the first of the base, and those of the adapter's files by name
    return Source(name, base.base, folder / "adapter", f"{base.digest[:16]}+{adapter}")


def output_digest(outputs: Mapping[str, str], prefix: str) -> str:
    """That of the files of a stage whose names begin with `prefix`; "" if there are none."""
    return ",".join(outputs[file][:16] for file in sorted(outputs) if file.startswith(prefix))


def find_checkpoint(name: str, run: Path) -> Source | None:
    """What a training had learned at a step, finished or not, for `sft@50`; None for other names.
    Only eval takes one: nothing can be trained further on what --force would remove.
    """
    stage, _, step = name.rpartition("@")
    folder = find_stage(stage, run)
    if not (step.isdecimal() and is_stage(folder)):
        return None
    by_step = {path.parent.name.rpartition("-")[2]: path.parent for path in folder.glob(MANIFESTS)}
    if not (checkpoint := by_step.get(step)):
        raise UserError(
            f"has no checkpoint of step {step}.",
            f"It has those of the steps {', '.join(sorted(by_step, key=int)) or '(none)'}.",
            location=str(folder),
        )
    if not (adapter := checkpoint / "adapter_model.safetensors").is_file():
        return _folder_model(name, checkpoint)
    base = _base_model(read_stage(folder).trusted())
    digest = f"{base.digest[:16]}+{input_files.file_digest(adapter)[:16]}"
    return Source(name, base.base, checkpoint, digest)


def _base_model(stage: StoredStage) -> Source:
    """The model that an adapter was trained on. Raises UserError if it is gone, or another."""
    name, folder = str(stage.settings["model"]), stage.folder
    try:
        base = find_model(name, folder.parent, stage.plan)
    except UserError as error:
        raise UserError(
            f"is an adapter on {name}, which cannot be found: {error.problem}",
            error.fix or "Put it back: an adapter cannot be used without its base.",
            location=str(folder),
            exit_code=error.exit_code,
        ) from error
    # an adapter means nothing on other weights than those it was trained on; if the base is a stage
    # with an adapter, only the weights under that adapter count
    old_digest, digest = stage.inputs.get("model", ""), base.digest
    if base.adapter:
        old_digest, digest = old_digest.partition("+")[0], digest.partition("+")[0]
    if old_digest not in ("", digest):
        raise plan_error(
            folder,
            f"was trained on other weights, or another tokenizer, than {base.base} has now.",
            "Put those back, or train it again: --force.",
        )
    return base


def model_of_prep(data: str, run: Path) -> Source:
    """The model that prep was run for, whose template the records of servers are written in. Raises
    UserError 2, 5 or 8.
    """
    prep = read_stage(find_stage(data, run))
    name = prep.settings.get("model")
    if not name:
        raise UserError(
            "needs a finished prep.",
            "Run prep on those rows, and name it: --data.",
            location=data,
        )
    return find_model(str(name), run, prep.plan)


def find_encoder(name: str, run: Path, plan: Plan | None = None) -> Source:
    """A stage of `agentlite retriever`, a folder, the embedded alias or a hub id, in this order.
    Raises UserError. `plan`: as for `find_model`.
    """
    folder, commit = find_stage(name, run), plan.pinned_commit(name) if plan else ""
    if name and is_stage(folder, given_up=True):
        return stage_encoder(name, finished_stage(folder, "retriever"), run)
    if name and folder.is_dir():
        return Source(name, os.path.realpath(folder), None, input_files.encoder_digest(folder))
    if name in input_files.ENCODERS:
        folder = input_files.package_folder(name, input_files.ENCODERS[name]) / "model"
        return Source(name, str(folder), None, input_files.encoder_digest(folder))
    if hub.is_hub_id(name):
        base = hub.pin_model(name, commit)
        return Source(name, base, None, hub.commit_of(base))
    raise hub.model_error(
        "--model",
        f"there is no sentence encoder '{name}'.",
        f"{suggest(name, input_files.ENCODERS, fallback='')} Known: "
        f"{', '.join(input_files.ENCODERS)}, a folder, a hub id such as BAAI/bge-small-en-v1.5, or "
        "a stage of `agentlite retriever`.",
    )


def stage_encoder(name: str, stage: StoredStage, run: Path) -> Source:
    """The model that a stage trained, or that of a stage which only made an index. Raises UserError
    5 if that model has changed since.
    """
    if digest := output_digest(stage.outputs, MODEL_FOLDER):
        return Source(name, os.path.realpath(stage.folder / MODEL_FOLDER), None, digest)
    source = find_encoder(str(stage.settings["model"]), run, stage.plan)
    if source.digest != stage.inputs["model"]:
        raise hub.model_error(
            stage.folder,
            f"was made with {source.name}, which has changed since.",
            "Run `agentlite retriever` again with --force.",
        )
    return source
