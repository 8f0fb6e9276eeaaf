"""The helper that reads a tokenizer's files once gives each reader an object of its own."""

from pathlib import Path

import pytest
from support.shared_tokenizers import OWN

pytestmark = pytest.mark.torch


def test_what_one_reader_sets_is_not_seen_by_the_next(tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    from agentlite.workspace.model_source import embedded_folder

    AutoTokenizer.from_pretrained(str(embedded_folder("smollm2-135m")))  # of the same files
    reads_files = AutoTokenizer.from_pretrained.reads_files
    given = {"model_max_length": 99, "padding_side": "left"}
    assert given.keys() == OWN
    first = AutoTokenizer.from_pretrained(str(tiny_model), **given)
    plain = reads_files(str(tiny_model), **given)
    assert (first.model_max_length, first.padding_side) == (99, "left")
    assert first.init_kwargs == plain.init_kwargs
    first.pad_token, first.chat_template = "<|im_end|>", "another"
    first.add_tokens(["<a_new_token>"])
    second = AutoTokenizer.from_pretrained(str(tiny_model))
    plain = reads_files(str(tiny_model))
    for name in ("padding_side", "pad_token", "chat_template", "model_max_length", "vocab_size"):
        assert getattr(second, name) == getattr(plain, name), name
    assert len(second) == len(plain) and second.encode("Oslo <|im_end|>") == plain.encode(
        "Oslo <|im_end|>"
    )
