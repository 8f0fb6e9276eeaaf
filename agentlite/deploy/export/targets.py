"""Export targets: merged weights, an adapter, a GGUF file, an Ollama folder; and their proofs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import MODEL, UserError
from agentlite.deploy.chat_session import read_toolbox
from agentlite.deploy.export.exported_model import CONTEXT, ExportedModel, refuse_quantized
from agentlite.deploy.export.llama_cpp import convert, find_llama_cpp, read_facts
from agentlite.deploy.export.ollama import modelfile, proved_turns, system_text, without_bos
from agentlite.deploy.export.proof import (
    Proof,
    goldens,
    minijinja_writer,
    prove,
    prove_tokens,
)
from agentlite.engine.load import weight_files
from agentlite.engine.merge import TransformersWriter, merge
from agentlite.workspace import hub
from agentlite.workspace.model_source import copy_tokenizer, load_template

# beside the tokenizer's own files, those that a converter may look for
ALSO = [f"{name}.json" for name in ("special_tokens_map", "added_tokens", "vocab")]
ALSO += ["tokenizer.model", "merges.txt"]
GGUF, MODELFILE = "model.gguf", "Modelfile"


class ExportRequest(NamedTuple):
    """What to write, where, and with which llama.cpp."""

    model: str
    kind: str
    target: Path
    run: Path
    llama_cpp: str = ""
    outtype: str = "f16"
    quantize: str = ""
    tools: str = ""
    force: bool = False
    push_to_hub: str = ""


class Exported(NamedTuple):
    """`weights`: what they are, in words; `facts`: what only this kind has to tell."""

    weights: str
    proof: Proof
    facts: dict[str, Any]


Write = Callable[[Path], Exported]  # fills an empty folder


def _merged(request: ExportRequest, subject: ExportedModel) -> Write:
    refuse_quantized(subject.source)

    def write(folder: Path) -> Exported:
        source, whole = subject.source, Path(subject.source.base)
        if source.adapter is None and any(whole.glob("*.safetensors")):
            for path in weight_files(whole)[1]:
                shutil.copyfile(path, folder / path.name)
            weights = "all its weights, as they are."
        else:
            precision = merge(source, folder)
            merged = "the adapter merged into " if source.adapter else ""
            weights = f"{merged}the base's weights, in their own {precision}."
        if any(
            stage.settings.get("load_in_4bit") or stage.settings.get("load_in_8bit")
            for stage in subject.stages
        ):
            weights += (
                " It was trained on weights rounded to 4 or 8 bits; these are the plain ones, "
                "so answers may differ."
            )
        # an answer ends with the end of a turn, and with what else the model says ends one
        end = subject.template.token_id(subject.template.turn_end)
        for path in (folder / "generation_config.json", folder / "config.json"):
            content = json.loads(path.read_bytes()) if path.exists() else {}
            own = content.get("eos_token_id")
            ends = [end, *(own if isinstance(own, list) else [own])]
            ends = [token for token in dict.fromkeys(ends) if token is not None]
            content["eos_token_id"] = ends if len(ends) > 1 else end
            _write_json(path, content)
        return Exported(weights, _put_tokenizer(subject, folder), {})

    return write


def _adapter(request: ExportRequest, subject: ExportedModel) -> Write:
    """With its base named as others know it: in the stage's folder it may be a path of this
    machine's cache.
    """
    adapter = subject.source.adapter
    if adapter is None:
        raise UserError(
            "has no adapter: it is a whole model.",
            "Export it with --merged FOLDER.",
            location=request.model,
        )

    def write(folder: Path) -> Exported:
        for path in weight_files(adapter)[1]:
            shutil.copyfile(path, folder / path.name)
        config = json.loads((folder / "adapter_config.json").read_bytes())
        config["base_model_name_or_path"] = subject.origin
        if commit := hub.commit_of(subject.source.base):
            config["revision"] = commit
        _write_json(folder / "adapter_config.json", config)
        weights = f"an adapter (LoRA) on `{subject.origin}`."
        return Exported(weights, _put_tokenizer(subject, folder), {"base": subject.origin})

    return write


def _gguf(request: ExportRequest, subject: ExportedModel) -> Write:
    """The file must hold the very template that was proved: by it llama.cpp writes the dialogs."""
    write_merged, template = _merged(request, subject), subject.template
    llama = find_llama_cpp(request.llama_cpp, request.quantize)

    def write(folder: Path) -> Exported:
        aside = folder / request.target.stem  # llama.cpp takes the folder's name as the model's
        aside.mkdir()
        made = write_merged(aside)
        convert(llama, aside, folder / GGUF, request.outtype, request.quantize)
        shutil.rmtree(aside)
        facts = read_facts(folder / GGUF)
        if facts.chat_template != template.chat_template:
            raise UserError(
                "its chat template is not the one of training.",
                "Nothing was exported. Another llama.cpp may do better.",
                location=GGUF,
                exit_code=MODEL,
            )
        if facts.eos != template.token_id(template.turn_end):
            console.notice(
                f"export: the file's own end of text is token {facts.eos}: have it stop at "
                f"{template.turn_end}"
            )
        kind = request.quantize or request.outtype
        weights = f"{made.weights.removesuffix('.')}; then written as {kind} by llama.cpp."
        return Exported(weights, made.proof, {"type": kind, "adds_bos": facts.adds_bos})

    return write


def _ollama(request: ExportRequest, subject: ExportedModel) -> Write:
    """Its template holds no tools: SYSTEM lists those of --tools."""
    template, mixture = subject.template, subject.mixture
    turns = proved_turns(template, mixture)
    system = ""
    if request.tools:
        protocol = next(iter(mixture.protocols.values()))
        system = system_text(read_toolbox(request.tools), protocol, template)
    write_gguf = _gguf(request, subject)

    def write(folder: Path) -> Exported:
        made = write_gguf(folder)
        bos = template.special.get("bos_token", "") if made.facts["adds_bos"] else ""
        length = subject.max_length or CONTEXT
        text = modelfile(GGUF, without_bos(turns, bos), subject.stops, system, length)
        (folder / MODELFILE).write_text(text, encoding="utf-8")
        renderers = [*made.proof.renderers, "the texts in the Modelfile"]
        return made._replace(proof=made.proof._replace(renderers=renderers))

    return write


# each refuses what it can before there is work
KINDS: dict[str, Callable[[ExportRequest, ExportedModel], Write]] = {
    "merged": _merged,
    "adapter": _adapter,
    "gguf": _gguf,
    "ollama": _ollama,
}


def _put_tokenizer(subject: ExportedModel, folder: Path) -> Proof:
    """Puts the tokenizer beside the weights, with the template of training, and renders with what
    stands there.
    """
    template, config = subject.template, folder / "tokenizer_config.json"
    copy_tokenizer(subject.source.base, folder, ALSO)
    jinja = folder / "chat_template.jinja"
    jinja.write_text(template.chat_template, encoding="utf-8", newline="")
    settings = json.loads(config.read_bytes())
    if "chat_template" in settings:  # it may hold several: training takes one
        _write_json(config, {**settings, "chat_template": template.chat_template})
    transformers = TransformersWriter(folder)
    writers: dict[str, Any] = {"transformers": transformers}
    if second := minijinja_writer(load_template(str(folder))):
        writers["minijinja"] = second
    else:
        console.notice(
            "export: minijinja is not installed, so no second renderer was tried (pip install "
            "minijinja)"
        )
    dialogs = goldens(subject.mixture)
    prove_tokens(template, dialogs, transformers.ids)
    return prove(template, dialogs, writers)


def _write_json(path: Path, content: object) -> None:
    """As transformers writes it."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
