"""The tokenizer in a GGUF file, from a small vocabulary made by hand: no package is needed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.core.errors import MODEL, UserError
from agentlite.workspace import input_files
from agentlite.workspace.input_files import CONTROL, embedded_tokenizer, write_tokenizer

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"ab12Ġ", "ab", "12", "Ġa"]
TEMPLATE = "{{ messages }} é"


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the file says."""
    fields = {
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [1] * 8,
        "tokenizer.ggml.merges": ["a b", "1 2", "Ġ a"],
        "tokenizer.chat_template": TEMPLATE,
    }
    monkeypatch.setattr(input_files, "read_tokenizer", lambda file: fields)
    return fields


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("ab", ["ab"]),
        ("a ab", ["a", "Ġ", "ab"]),  # no blank is put before the first word
        ("12", ["1", "2"]),  # digits stand alone, whatever the merges say
        ("ab<|im_end|>a", ["ab", "<|im_end|>", "a"]),
        ("<|im_start|>", ["<|im_start|>"]),
    ],
)
def test_text_is_cut_as_the_file_means_it_and_comes_back(tmp_path, facts, text, tokens):
    from tokenizers import Tokenizer

    write_tokenizer(facts, tmp_path / "folder")
    tokenizer = Tokenizer.from_file(str(tmp_path / "folder/tokenizer.json"))
    encoded = tokenizer.encode(text)
    assert encoded.tokens == tokens and encoded.ids == [TOKENS.index(token) for token in tokens]
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text
    kept = "".join(token for token in tokens if not token.startswith("<|"))
    assert tokenizer.decode(encoded.ids) == kept.replace("Ġ", " ")


def test_a_turn_ends_otherwise_than_a_row_is_filled_up_and_nothing_is_added(tmp_path, facts):
    write_tokenizer(facts, tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_bytes())
    assert (config["eos_token"], config["pad_token"]) == ("<|im_end|>", "<|endoftext|>")
    assert not config["add_bos_token"] and not config["clean_up_tokenization_spaces"]
    assert config["model_max_length"] == 8192
    assert (tmp_path / "chat_template.jinja").read_text(encoding="utf-8") == TEMPLATE


def test_another_kind_of_tokenizer_is_refused_and_nothing_is_written(tmp_path, facts):
    facts["tokenizer.ggml.pre"] = "llama-bpe"
    with pytest.raises(UserError, match="llama-bpe") as refused:
        write_tokenizer(facts, tmp_path / "folder")
    assert refused.value.exit_code == MODEL and not (tmp_path / "folder").exists()


def test_a_folder_that_was_begun_is_made_whole(tmp_path: Path, monkeypatch, facts) -> None:
    """Its last file is the one that says so."""
    del facts["tokenizer.chat_template"]
    monkeypatch.setattr(input_files, "embedded_folder", lambda alias: tmp_path / "folder")
    monkeypatch.setattr(input_files, "embedded_file", lambda alias: tmp_path / "x.gguf")
    with pytest.raises(KeyError):
        embedded_tokenizer("smollm2-135m")
    assert not (tmp_path / "folder/tokenizer.json").exists()

    def encode(encoding: str) -> bytes:  # while another process makes it
        facts["tokenizer.chat_template"] = TEMPLATE
        embedded_tokenizer("smollm2-135m")
        return TEMPLATE.encode(encoding)

    facts["tokenizer.chat_template"] = SimpleNamespace(encode=encode)
    assert embedded_tokenizer("smollm2-135m") == tmp_path / "folder"
    names = ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == names
    facts.clear()  # it is made once
    embedded_tokenizer("smollm2-135m")
