"""Export targets: merged weights, an adapter, a GGUF file, an Ollama folder; and their proofs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import MODEL, UserError, need
from agentlite.deploy.export.exported_model import CONTEXT, ExportedModel, refuse_quantized
from agentlite.deploy.export.proof import (
    Proof,
    goldens,
    minijinja_writer,
    prove,
    prove_tokens,
    prove_tools,
)
from agentlite.engine.load import weight_files
from agentlite.engine.merge import TransformersWriter, merge
from agentlite.workspace import hub
from agentlite.workspace.model_source import copy_tokenizer, load_template

# beside the tokenizer's own files, those that a converter may look for
ALSO = [f"{name}.json" for name in ("special_tokens_map", "added_tokens", "vocab")]
ALSO += ["tokenizer.model", "merges.txt"]
GGUF, MODELFILE = "model.gguf", "Modelfile"
SCRIPT, QUANTIZE, SERVER = "convert_hf_to_gguf.py", "llama-quantize", "llama-server"
GET = "git clone --depth 1 https://github.com/ggml-org/llama.cpp"
BUILD = "cmake -B {0}/build {0} && cmake --build {0}/build --target llama-quantize"


class ExportRequest(NamedTuple):
    """What to write, where, with which llama.cpp, and how many test records are asked of it."""

    model: str
    kind: str
    target: Path
    run: Path
    llama_cpp: str = ""
    outtype: str = "f16"
    quantize: str = ""
    force: bool = False
    check: int = 0
    merge_base: str = "trained"


class Exported(NamedTuple):
    """`weights`: what they are, in words; `facts`: what only this kind has to tell; `forms`: what
    can be asked, by name.
    """

    weights: str
    proof: Proof
    facts: dict[str, Any]
    forms: dict[str, Path]


Write = Callable[[Path], Exported]  # fills an empty folder


def _merged(request: ExportRequest, subject: ExportedModel) -> Write:
    refuse_quantized(subject.source)
    trained = subject.stages[-1].plan.settings if subject.stages else {}
    rounded = trained.get("load_in_4bit") and request.merge_base == "trained"
    rounded_by = trained["engine"] if rounded else None
    if rounded:
        what = "merging into weights of 4 bits (or else --merge-base plain)"
        need(what, ["bitsandbytes"], "pip install bitsandbytes", in_set=False)

    def write(folder: Path) -> Exported:
        source, whole = subject.source, Path(subject.source.base)
        if source.adapter is None and any(whole.glob("*.safetensors")):
            for path in weight_files(whole)[1]:
                shutil.copyfile(path, folder / path.name)
            weights = "all its weights, as they are."
        else:
            precision = merge(source, folder, rounded_by)
            merged = "the adapter merged into " if source.adapter else ""
            weights = f"{merged}the base's weights, in their own {precision}."
        if rounded_by:
            weights += " They were rounded to 4 bits and back before, as training had them."
        elif trained.get("load_in_4bit") or trained.get("load_in_8bit"):
            weights += " Training had them rounded to fewer bits."
        # an answer ends with the end of a turn, and with what else the model says ends one
        end = subject.template.token_id(subject.template.turn_end)
        for path in (folder / "generation_config.json", folder / "config.json"):
            content = json.loads(path.read_bytes()) if path.exists() else {}
            own = content.get("eos_token_id")
            ends = [end, *(own if isinstance(own, list) else [own])]
            ends = [token for token in dict.fromkeys(ends) if token is not None]
            content["eos_token_id"] = ends if len(ends) > 1 else end
            _write_json(path, content)
        return Exported(weights, _put_tokenizer(subject, folder), {}, {"merged": folder})

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
        return Exported(weights, _put_tokenizer(subject, folder), {"base": subject.origin}, {})

    return write


def _gguf(request: ExportRequest, subject: ExportedModel) -> Write:
    """The file must hold the very template that was proved: by it llama.cpp writes the dialogs."""
    write_merged, template = _merged(request, subject), subject.written
    llama = _find_llama_cpp(request.llama_cpp, request.quantize)

    def write(folder: Path) -> Exported:
        aside = folder / request.target.stem  # llama.cpp takes the folder's name as the model's
        aside.mkdir()
        made = write_merged(aside)
        _convert(llama, aside, folder / GGUF, request.outtype, request.quantize)
        facts = read_facts(folder / GGUF)
        if facts.chat_template != template.chat_template:
            raise UserError(
                "its chat template is not the one of training.",
                "Nothing was exported. Another llama.cpp may do better.",
                location=GGUF,
                exit_code=MODEL,
            )
        kind = request.quantize or request.outtype
        weights = f"{made.weights.removesuffix('.')}; then written as {kind} by llama.cpp."
        told = {"type": kind, "architecture": facts.architecture}
        return Exported(weights, made.proof, told, {**made.forms, kind: folder / GGUF})

    return write


def _ollama(request: ExportRequest, subject: ExportedModel) -> Write:
    subject = subject._replace(mention=mention(subject.written.chat_template))
    if not subject.takes_tools:
        console.notice("export: Ollama does not read this model's calls: they come as text")
    write_gguf = _gguf(request, subject)

    def write(folder: Path) -> Exported:
        made = write_gguf(folder)
        if (architecture := made.facts["architecture"]) in OWN_CODE:
            raise UserError(
                f"Ollama writes the dialogs of {architecture} models by code of its own.",
                "Export --gguf instead, for `llama-server --jinja`.",
                location="--ollama",
                exit_code=MODEL,
            )
        text = modelfile(GGUF, subject.stops, subject.max_length or CONTEXT)
        (folder / MODELFILE).write_text(text, encoding="utf-8")
        return made

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
    written = subject.written
    copy_tokenizer(subject.source.base, folder, ALSO)
    jinja = folder / "chat_template.jinja"
    jinja.write_text(written.chat_template, encoding="utf-8", newline="")
    settings = json.loads(config.read_bytes())
    if "chat_template" in settings:  # it may hold several: training takes one
        _write_json(config, {**settings, "chat_template": written.chat_template})
    transformers = TransformersWriter(folder)
    writers: dict[str, Any] = {"transformers": transformers}
    if second := minijinja_writer(load_template(str(folder))):
        writers["minijinja"] = second
    else:
        console.notice("export: only one renderer was tried: pip install minijinja")
    dialogs = goldens(subject.mixture)
    prove_tokens(template, dialogs, transformers.ids)
    proof = prove(template, dialogs, writers)
    if subject.with_tools:
        prove_tools(template, written, dialogs, writers)
    return proof


def _write_json(path: Path, content: object) -> None:
    """As transformers writes it."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- llama.cpp: the user's own writes the GGUF file


class GgufFacts(NamedTuple):
    """The metadata of a GGUF file about its prompts."""

    architecture: str
    chat_template: str


def _find_llama_cpp(named: str, quantize: str) -> Path:
    """The folder of --llama-cpp, or of the variable LLAMA_CPP. Raises UserError 2."""
    need("looking into a GGUF file", ["gguf"], "pip install gguf")
    folder = Path(named).expanduser().resolve()
    if not named or not (folder / SCRIPT).is_file():
        raise UserError(
            f"there is no {SCRIPT}: a GGUF file is made by llama.cpp.",
            f"Get it, and name its folder; agentlite installs nothing:\n  {GET}\n"
            "  agentlite export ... --llama-cpp llama.cpp        # or LLAMA_CPP=llama.cpp",
            location=named or "--llama-cpp",
        )
    if quantize and not program(named, QUANTIZE):
        raise UserError(
            f"holds no {QUANTIZE}, and none is on the PATH.",
            f"Build it, or leave --quantize out:\n  {BUILD.format(folder)}",
            location=named,
        )
    return folder


def program(named: str, name: str) -> Path | None:
    """One of llama.cpp's, as it was built in its folder, or as it is installed."""
    folder = Path(named).expanduser().resolve()
    places = (folder / "build" / "bin", folder / "build" / "bin" / "Release", folder)
    paths = (place / f"{name}{end}" for place in places for end in ("", ".exe"))
    installed = shutil.which(name)
    return next(filter(Path.is_file, paths), Path(installed) if installed else None)


def _convert(llama: Path, model: Path, target: Path, outtype: str, quantize: str) -> None:
    """Writes `target`. Raises UserError 5 with the last words of the program that failed."""
    plain = target.with_name(f"{outtype}.gguf") if quantize else target
    options = ["--outfile", str(plain), "--outtype", outtype]
    _run(llama / SCRIPT, [sys.executable, str(llama / SCRIPT), str(model), *options], plain)
    if quantize and (quantizer := program(str(llama), QUANTIZE)):
        _run(quantizer, [str(quantizer), str(plain), str(target), quantize], target)
        plain.unlink()


def _run(program: Path, command: list[str], written: Path) -> None:
    console.notice(f"export: {program.name} writes {written.name}")
    process = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if process.returncode or not written.exists():
        last = (process.stdout + process.stderr).strip().split("\n")[-20:]
        console.notice("\n".join(last))
        raise UserError(
            f"ended with code {process.returncode}: {last[-1]}",
            "Its last words stand above. A model that it does not know may need a newer llama.cpp.",
            location=program.name,
            exit_code=MODEL,
        )


def read_facts(path: Path) -> GgufFacts:
    """Raises UserError 5 for a file that is not GGUF."""
    from gguf import GGUFReader

    try:
        fields = GGUFReader(str(path)).fields
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise UserError(
            f"is not a GGUF file ({error}).",
            "Another llama.cpp may do better.",
            location=path.name,
            exit_code=MODEL,
        ) from error

    def fact(name: str) -> str:
        return str(fields[name].contents()) if name in fields else ""

    return GgufFacts(fact("general.architecture"), fact("tokenizer.chat_template"))


REQUIRES = "0.30.0"  # the first Ollama that takes a file's own chat template
# architectures of GGUF whose dialogs Ollama 0.33 writes and reads by code of its own
OWN_CODE = ("gemma4", "laguna", "nemotron_h", "nemotron_h_moe", "nemotron_h_omni")
# Ollama has llama.cpp write and read dialogs by the file's own chat template where it finds one of
# these words in it; a comment is enough
TOOL_WORDS = ("tools", "tool_call")
MENTION = "{# tools #}"


def mention(chat_template: str) -> str:
    """What has to stand before a chat template, so that Ollama takes it."""
    return "" if any(word in chat_template for word in TOOL_WORDS) else MENTION


def modelfile(weights: str, stops: Sequence[str], context: int) -> str:
    lines = [
        f"FROM ./{weights}",
        f"REQUIRES {REQUIRES}",
        *(f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops),
        f"PARAMETER num_ctx {context}",
        "PARAMETER temperature 0",
        # 1.1 in Ollama 0.30: a name that stands in the prompt would be less likely in the call
        "PARAMETER repeat_penalty 1",
    ]
    return "\n".join(lines) + "\n"
