"""The tokenizer in a GGUF file -> tokenizer.json, its config and chat_template.jinja."""

from pathlib import Path
from typing import Any

from agentlite.core.errors import MODEL, UserError
from agentlite.core.row_files import replacing, write_json

CONTROL = 3  # GGUF's type of tokens such as turn marks
PAD, TURN_END = "<|endoftext|>", "<|im_end|>"


def convert(gguf_file: Path, folder: Path) -> None:
    """Writes a tokenizer of byte-level BPE with single digits, which is what the file means by
    `tokenizer.ggml.pre` = "smollm".

    The tokens for turn end and padding are those of SmolLM2: the file names `<|im_end|>` for both,
    and the turn end would not be trained if it were the padding as well.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    facts = _facts(gguf_file)
    if facts["tokenizer.ggml.pre"] != "smollm":
        raise UserError(
            f"tokenizers of kind {facts['tokenizer.ggml.pre']} are not supported.",
            "",
            location=str(gguf_file),
            exit_code=MODEL,
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


def _facts(gguf_file: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    reader = GGUFReader(str(gguf_file))
    return {
        name: value.contents()
        for name, value in reader.fields.items()
        if name.startswith("tokenizer.")
    }
