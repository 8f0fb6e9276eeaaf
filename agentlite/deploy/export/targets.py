"""Export targets: merged weights, an adapter, a GGUF file, an Ollama folder; and their proofs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.core import console
from agentlite.core.errors import MODEL, UserError, require
from agentlite.deploy.export.exported_model import CONTEXT, ExportedModel, refuse_quantized
from agentlite.deploy.export.proof import Proof, goldens, minijinja_writer, prove, prove_tokens
from agentlite.engine.load import weight_files
from agentlite.engine.merge import TransformersWriter, merge
from agentlite.workspace import hub
from agentlite.workspace.input_files import copy_tokenizer, load_template

KINDS = ("merged", "adapter", "gguf", "ollama")
# beside the tokenizer's own files, those that a converter may look for
TOKENIZER_FILES = [f"{name}.json" for name in ("special_tokens_map", "added_tokens", "vocab")]
TOKENIZER_FILES += ["tokenizer.model", "merges.txt"]
GGUF, MODELFILE = "model.gguf", "Modelfile"
CONVERTER, QUANTIZE, SERVER = "convert_hf_to_gguf.py", "llama-quantize", "llama-server"
CLONE_COMMAND = "git clone --depth 1 https://github.com/ggml-org/llama.cpp"
BUILD_COMMAND = "cmake -B {0}/build {0} && cmake --build {0}/build --target llama-quantize"


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


class ExportResult(NamedTuple):
    """`weights`: what they are, in words; `facts`: what only this kind has to tell; `forms`: what
    can be asked, by name.
    """

    weights: str
    proof: Proof
    facts: dict[str, Any]
    forms: dict[str, Path]


def refuse(request: ExportRequest, subject: ExportedModel) -> None:
    """Raises UserError 2 or 5 for what can be refused before there is work."""
    if request.kind == "adapter":
        if subject.source.adapter is None:
            raise UserError(
                "has no adapter: it is a whole model.",
                "Export it with --merged FOLDER.",
                location=request.model,
            )
        return
    refuse_quantized(subject.source)
    if request.merge_base == "trained" and subject.training_settings.get("load_in_4bit"):
        require(
            "merging into weights of 4 bits (or else --merge-base plain)",
            ["bitsandbytes"],
            "pip install bitsandbytes",
            in_set=False,
        )
    if request.kind in ("gguf", "ollama"):
        _refuse_llama_cpp(request.llama_cpp, request.quantize)
    if request.kind == "ollama" and not subject.takes_tools:
        console.notice("export: Ollama does not read this model's calls: they come as text")


def write(request: ExportRequest, subject: ExportedModel, folder: Path) -> ExportResult:
    """Fills an empty folder."""
    if request.kind == "adapter":
        return _write_adapter(subject, folder)
    if request.kind == "merged":
        return _write_merged(request, subject, folder)
    if request.kind == "gguf":
        return _write_gguf(request, subject, folder / request.target.name)
    subject = subject._replace(mention=mention(subject.exported_template.chat_template))
    result = _write_gguf(request, subject, folder / GGUF)
    if (architecture := result.facts["architecture"]) in OWN_CODE:
        raise UserError(
            f"Ollama writes the dialogs of {architecture} models by code of its own.",
            "Export --gguf instead, for `llama-server --jinja`.",
            location="--ollama",
            exit_code=MODEL,
        )
    (folder / MODELFILE).write_text(
        modelfile(GGUF, subject.stops, subject.max_length or CONTEXT), encoding="utf-8"
    )
    return result


def _write_merged(request: ExportRequest, subject: ExportedModel, folder: Path) -> ExportResult:
    source, base, settings = subject.source, Path(subject.source.base), subject.training_settings
    is_rounded = settings.get("load_in_4bit") and request.merge_base == "trained"
    if source.adapter is None and any(base.glob("*.safetensors")):
        for path in weight_files(base)[1]:
            shutil.copyfile(path, folder / path.name)
        weights = "all its weights, as they are."
    else:
        precision = merge(source, folder, settings["engine"] if is_rounded else None)
        merged = "the adapter merged into " if source.adapter else ""
        weights = f"{merged}the base's weights, in their own {precision}."
    if is_rounded:
        weights += " They were rounded to 4 bits and back before, as training had them."
    elif settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        weights += " Training had them rounded to fewer bits."
    # an answer ends with the end of a turn, and with what else the model says ends one
    end = subject.template.token_id(subject.template.turn_end)
    for path in (folder / "generation_config.json", folder / "config.json"):
        content = json.loads(path.read_bytes()) if path.exists() else {}
        own_ends = content.get("eos_token_id")
        ends = [end, *(own_ends if isinstance(own_ends, list) else [own_ends])]
        ends = [token for token in dict.fromkeys(ends) if token is not None]
        content["eos_token_id"] = ends if len(ends) > 1 else end
        _write_json(path, content)
    return ExportResult(weights, _put_tokenizer(subject, folder), {}, {"merged": folder})


def _write_adapter(subject: ExportedModel, folder: Path) -> ExportResult:
    """With its base named as others know it: in the stage's folder it may be a path of this
    machine's cache.
    """
    assert subject.source.adapter
    for path in weight_files(subject.source.adapter)[1]:
        shutil.copyfile(path, folder / path.name)
    config = json.loads((folder / "adapter_config.json").read_bytes())
    config["base_model_name_or_path"] = subject.origin
    if commit := hub.commit_of(subject.source.base):
        config["revision"] = commit
    _write_json(folder / "adapter_config.json", config)
    return ExportResult(
        f"an adapter (LoRA) on `{subject.origin}`.",
        _put_tokenizer(subject, folder),
        {"base": subject.origin},
        {},
    )


def _write_gguf(request: ExportRequest, subject: ExportedModel, file: Path) -> ExportResult:
    """The file must hold the very template that was proved: by it llama.cpp writes the dialogs."""
    # llama.cpp takes the folder's name as the model's
    model_folder = scratch(file.parent, request.target) / request.target.stem
    model_folder.mkdir(parents=True)
    result = _write_merged(request, subject, model_folder)
    _convert(request, model_folder, file)
    architecture, chat_template = read_facts(file)
    if chat_template != subject.exported_template.chat_template:
        raise UserError(
            "its chat template is not the one of training.",
            "Nothing was exported. Another llama.cpp may do better.",
            location=file.name,
            exit_code=MODEL,
        )
    kind = request.quantize or request.outtype
    return ExportResult(
        f"{result.weights.removesuffix('.')}; then written as {kind} by llama.cpp.",
        result.proof,
        {"type": kind, "architecture": architecture},
        {**result.forms, kind: file},
    )


def _put_tokenizer(subject: ExportedModel, folder: Path) -> Proof:
    """Puts the tokenizer beside the weights, with the template of training, and renders with what
    stands there.
    """
    template, config = subject.template, folder / "tokenizer_config.json"
    served = subject.exported_template
    copy_tokenizer(subject.source.base, folder, TOKENIZER_FILES)
    (folder / "chat_template.jinja").write_text(served.chat_template, encoding="utf-8", newline="")
    settings = json.loads(config.read_bytes())
    if "chat_template" in settings:  # it may hold several: training takes one
        _write_json(config, {**settings, "chat_template": served.chat_template})
    transformers = TransformersWriter(folder)
    writers: dict[str, Any] = {"transformers": transformers}
    if minijinja := minijinja_writer(load_template(str(folder))):
        writers["minijinja"] = minijinja
    else:
        console.notice("export: only one renderer was tried: pip install minijinja")
    golden_dialogs = goldens(subject.mixture)
    prove_tokens(template, golden_dialogs, transformers.ids)
    return prove(template, golden_dialogs, writers, served if subject.tools_template else None)


def _write_json(path: Path, content: object) -> None:
    """As transformers writes it: a config may hold Infinity."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- llama.cpp: the user's own writes the GGUF file


def scratch(folder: Path, target: Path) -> Path:
    """Where what is converted stands for a while."""
    return folder / f"{target.name}.merged"


def _refuse_llama_cpp(llama_cpp: str, quantize: str) -> None:
    """Raises UserError 2 where the folder of --llama-cpp, or of the variable LLAMA_CPP, lacks what
    is needed.
    """
    require("looking into a GGUF file", ["gguf"], "pip install gguf")
    if not llama_cpp or not (Path(llama_cpp).expanduser() / CONVERTER).is_file():
        raise UserError(
            f"there is no {CONVERTER}: a GGUF file is made by llama.cpp.",
            f"Get it, and name its folder; agentlite installs nothing:\n  {CLONE_COMMAND}\n"
            "  agentlite export ... --llama-cpp llama.cpp        # or LLAMA_CPP=llama.cpp",
            location=llama_cpp or "--llama-cpp",
        )
    if quantize and not program(llama_cpp, QUANTIZE):
        raise UserError(
            f"holds no {QUANTIZE}, and none is on the PATH.",
            f"Build it, or leave --quantize out:\n  {BUILD_COMMAND.format(llama_cpp)}",
            location=llama_cpp,
        )


def program(llama_cpp: str, name: str) -> Path | None:
    """One of llama.cpp's, as it was built in its folder, or as it is installed."""
    root = Path(llama_cpp).expanduser().resolve()
    folders = (root / "build" / "bin", root / "build" / "bin" / "Release", root)
    paths = (folder / f"{name}{end}" for folder in folders for end in ("", ".exe"))
    installed = shutil.which(name)
    return next(filter(Path.is_file, paths), Path(installed) if installed else None)


def _convert(request: ExportRequest, model: Path, file: Path) -> None:
    """Writes `file`. Raises UserError 5 with the last words of the program that failed."""
    script = Path(request.llama_cpp).expanduser().resolve() / CONVERTER
    plain_file = model.with_name(f"{request.outtype}.gguf") if request.quantize else file
    options = ["--outfile", str(plain_file), "--outtype", request.outtype]
    _run(script, [sys.executable, str(script), str(model), *options], plain_file)
    if request.quantize and (quantizer := program(request.llama_cpp, QUANTIZE)):
        _run(quantizer, [str(quantizer), str(plain_file), str(file), request.quantize], file)
        plain_file.unlink()


def _run(program: Path, command: list[str], file: Path) -> None:
    console.notice(f"export: {program.name} writes {file.name}")
    process = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if process.returncode or not file.exists():
        last_lines = (process.stdout + process.stderr).strip().split("\n")[-20:]
        console.notice("\n".join(last_lines))
        raise UserError(
            f"ended with code {process.returncode}: {last_lines[-1]}",
            "Its last words stand above. A model that it does not know may need a newer llama.cpp.",
            location=program.name,
            exit_code=MODEL,
        )


def read_facts(path: Path) -> tuple[str, str]:
    """The architecture that a GGUF file names, and its chat template. Raises UserError 5 for a file
    that is not GGUF.
    """
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
    names = ("general.architecture", "tokenizer.chat_template")
    architecture, chat_template = (
        str(fields[name].contents()) if name in fields else "" for name in names
    )
    return architecture, chat_template


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
