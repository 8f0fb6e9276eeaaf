"""Export targets: merged weights, an adapter, a GGUF file, an Ollama folder; and their proofs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import MODEL, UserError
from agentlite.deploy.export.exported_model import ExportedModel, refuse_quantized
from agentlite.deploy.export.golden_dialogs import goldens
from agentlite.deploy.export.llama_cpp import convert, find_llama_cpp, read_facts
from agentlite.deploy.export.ollama import (
    TurnMarks,
    modelfile,
    not_turnwise,
    system_text,
    turns_of,
    with_results,
    without_bos,
)
from agentlite.deploy.export.verify import Proof, minijinja_writer, prove, prove_tokens
from agentlite.deploy.tool_results import read_toolbox
from agentlite.engine.load import weight_files
from agentlite.engine.merge import Written, merge
from agentlite.rendering.template import Template
from agentlite.workspace import hub
from agentlite.workspace.model_source import copy_tokenizer, load_template

# beside the tokenizer's own files, those that a converter may look for
ALSO = (
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
GGUF, MODELFILE = "model.gguf", "Modelfile"
IN_THE_MODELFILE = "the texts in the Modelfile"


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


class ExportTarget(NamedTuple):
    """`check`: whatever can be said before there is work."""

    check: Callable[[ExportRequest, ExportedModel], object]
    make: Callable[[ExportRequest, ExportedModel, Path], Exported]


def _merged(request: ExportRequest, subject: ExportedModel, folder: Path) -> Exported:
    source, whole = subject.source, Path(subject.source.base)
    if source.adapter is None and any(whole.glob("*.safetensors")):
        for path in weight_files(whole)[1]:
            shutil.copyfile(path, folder / path.name)
        weights = "all its weights, as they are."
    else:
        precision = merge(source, folder)
        what = (
            "the adapter merged into the base's weights" if source.adapter else "the base's weights"
        )
        weights = f"{what}, in their own {precision}."
    if any(
        stage.settings.get("load_in_4bit") or stage.settings.get("load_in_8bit")
        for stage in subject.stages
    ):
        weights += (
            " It was trained on weights rounded to 4 or 8 bits; these are the plain ones, "
            "so answers may differ."
        )
    _end_at(folder, subject.template)
    return Exported(weights, _proved(subject, folder), {})


def _check_adapter(request: ExportRequest, subject: ExportedModel) -> None:
    if subject.source.adapter is None:
        raise UserError(
            "has no adapter: it is a whole model.",
            "Export it with --merged FOLDER.",
            location=request.model,
        )


def _adapter(request: ExportRequest, subject: ExportedModel, folder: Path) -> Exported:
    """With its base named as others know it: in the stage's folder it may be a path of this
    machine's cache.
    """
    assert subject.source.adapter is not None
    for path in weight_files(subject.source.adapter)[1]:
        shutil.copyfile(path, folder / path.name)
    config = json.loads((folder / "adapter_config.json").read_bytes())
    config["base_model_name_or_path"] = subject.origin
    if commit := hub.commit_of(subject.source.base):
        config["revision"] = commit
    _write_json(folder / "adapter_config.json", config)
    return Exported(
        f"an adapter (LoRA) on `{subject.origin}`.",
        _proved(subject, folder),
        {"base": subject.origin},
    )


def _check_gguf(request: ExportRequest, subject: ExportedModel) -> None:
    refuse_quantized(subject.source)
    find_llama_cpp(request.llama_cpp, request.quantize)


def _gguf(request: ExportRequest, subject: ExportedModel, folder: Path) -> Exported:
    """The file must hold the very template that was proved: by it llama.cpp writes the dialogs."""
    aside, template = (
        folder / request.target.stem,
        subject.template,
    )  # llama.cpp takes the folder's name as the model's
    aside.mkdir()
    made = _merged(request, subject, aside)
    convert(
        find_llama_cpp(request.llama_cpp, request.quantize),
        aside,
        folder / GGUF,
        request.outtype,
        request.quantize,
    )
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


def _check_ollama(request: ExportRequest, subject: ExportedModel) -> None:
    _turns(subject)
    _system(request, subject)
    _check_gguf(request, subject)


def _ollama(request: ExportRequest, subject: ExportedModel, folder: Path) -> Exported:
    made, turns = _gguf(request, subject, folder), _turns(subject)
    if made.facts["adds_bos"]:
        turns = without_bos(turns, subject.template.special.get("bos_token", ""))
    text = modelfile(GGUF, turns, subject.stops, _system(request, subject), subject.context)
    (folder / MODELFILE).write_text(text, encoding="utf-8")
    return made._replace(
        proof=made.proof._replace(renderers=[*made.proof.renderers, IN_THE_MODELFILE])
    )


KINDS: dict[str, ExportTarget] = {
    "merged": ExportTarget(lambda request, subject: refuse_quantized(subject.source), _merged),
    "adapter": ExportTarget(_check_adapter, _adapter),
    "gguf": ExportTarget(_check_gguf, _gguf),
    "ollama": ExportTarget(_check_ollama, _ollama),
}


def _end_at(folder: Path, template: Template) -> None:
    """An answer ends with the end of a turn, and with what else the model itself says ends one."""
    end = template.token_id(template.turn_end)
    for name in ("generation_config.json", "config.json"):
        content = json.loads((folder / name).read_bytes()) if (folder / name).exists() else {}
        own = content.get("eos_token_id")
        others = [
            token for token in (own if isinstance(own, list) else [own]) if token not in (None, end)
        ]
        _write_json(folder / name, {**content, "eos_token_id": [end, *others] if others else end})


def _proved(subject: ExportedModel, folder: Path) -> Proof:
    """Puts the tokenizer beside the weights, with the template of training, and renders with what
    stands there.
    """
    template, config = subject.template, folder / "tokenizer_config.json"
    copy_tokenizer(subject.source.base, folder, ALSO)
    (folder / "chat_template.jinja").write_text(
        template.chat_template, encoding="utf-8", newline=""
    )
    if "chat_template" in (
        settings := json.loads(config.read_bytes())
    ):  # it may hold several: training takes one
        _write_json(config, {**settings, "chat_template": template.chat_template})
    writers = {"transformers": (transformers := Written(folder))}
    second = minijinja_writer(load_template(str(folder)))
    if second is None:
        console.notice(
            "export: minijinja is not installed, so no second renderer was tried (pip install "
            "minijinja)"
        )
    dialogs = goldens(subject.mixture)
    prove_tokens(template, dialogs, transformers.ids)
    return prove(template, dialogs, {**writers, **({"minijinja": second} if second else {})})


def _turns(subject: ExportedModel) -> TurnMarks:
    """The texts that Ollama puts around turns. Tools are not among them: SYSTEM lists them. It does
    not trim.
    """
    turns = turns_of(subject.template)
    for protocol in subject.mixture.protocols.values():
        turns = with_results(turns, protocol, subject.template)
    plain = [
        one
        for one in goldens(subject.mixture)
        if not (one.protocol.native and one.record.tools)
        and all(message.content == message.content.strip() for message in one.record.messages)
    ]
    try:
        prove(subject.template, plain, {"Ollama": turns.write})
    except UserError as error:
        raise not_turnwise(subject.template) from error
    return turns


def _system(request: ExportRequest, subject: ExportedModel) -> str:
    """What the Modelfile's SYSTEM says of the tools of --tools."""
    if not request.tools:
        return ""
    tools = read_toolbox(request.tools)
    return system_text(tools, next(iter(subject.mixture.protocols.values())), subject.template)


def _write_json(path: Path, content: object) -> None:
    """As transformers writes it."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
