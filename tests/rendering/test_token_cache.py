"""Text cut in chunks from memory has the ids that the tokenizer gives for the whole."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

from agentlite.rendering.template import Template
from agentlite.rendering.token_cache import KNOWN, TokenCache, encoder

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
SPLITS = [
    pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rule), "isolated"), BYTES])
    for rule in sorted(KNOWN)
]
RULES = [
    "smollm2",
    *((split, normalizer) for split in SPLITS for normalizer in (None, normalizers.NFC())),
]
pieces = st.sampled_from(
    [
        "a",
        "Zoe",
        "09",
        "3",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'",
        "'s",
        "'LL",
        '"',
        ",",
        ": ",
        "{",
        "}",
        "<",
        "_",
        "|",
        "-",
        "é",
        "e\u0301",
        "\u0338",
        "中",
        "🙂",
        "½",
        "٣",
        "\u00a0",
        "\u3000",
        "\u200d",
        "ſ",
        "\x00",
        "<|im_end|>",
        "<|im_start|>",
        "<tool_call>",
    ]
)
texts = st.lists(pieces | st.text(max_size=3), max_size=14).map("".join)


def changed(tokenizer: Tokenizer, **parts: object) -> Tokenizer:
    copy = Tokenizer.from_str(tokenizer.to_str())
    for name, part in parts.items():
        setattr(copy, name, part)
    return copy


@pytest.fixture(scope="module", params=RULES, ids=str)
def tokenizer(request, smollm2: Template) -> Tokenizer:
    if request.param == "smollm2":
        return smollm2.tokenizer
    split, normalizer = request.param
    copy = changed(smollm2.tokenizer, pre_tokenizer=split, normalizer=normalizer)
    copy.add_tokens([AddedToken("<tool_call>", normalized=False)])
    return copy


@pytest.mark.long
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
def test_ids_are_those_of_the_whole_text(tokenizer, text):
    encode = encoder(tokenizer)
    assert isinstance(encode.__self__, TokenCache)
    expected = tokenizer.encode(text, add_special_tokens=False).ids
    assert encode(text) == expected
    assert encode(text) == expected  # from memory


@pytest.mark.parametrize(
    "parts",
    [
        {"pre_tokenizer": pre_tokenizers.Metaspace()},
        {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)},
        {"pre_tokenizer": BYTES},
        {
            "pre_tokenizer": pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(r"\w+\W"), "isolated"), BYTES]
            )
        },
        {"normalizer": normalizers.Replace(", ", "")},
    ],
    ids=str,
)
def test_tokenizers_with_other_rules_are_left_to_themselves(parts, smollm2):
    tokenizer = changed(smollm2.tokenizer, **parts)
    encode = encoder(tokenizer)
    assert not hasattr(encode, "__self__")
    assert (
        encode("Rain, wind: 4 mm.")
        == tokenizer.encode("Rain, wind: 4 mm.", add_special_tokens=False).ids
    )


def test_added_tokens_that_take_blanks_with_them_are_left_to_the_tokenizer(smollm2):
    tokenizer = changed(smollm2.tokenizer)
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    assert (
        encoder(tokenizer)("a <mask> b")
        == tokenizer.encode("a <mask> b", add_special_tokens=False).ids
    )


def test_memory_is_bounded(smollm2, monkeypatch):
    monkeypatch.setattr("agentlite.rendering.token_cache.MOST", 30)
    encode = encoder(smollm2.tokenizer)
    text = " ".join(f"word{number}" for number in range(200))
    assert encode(text) == smollm2.tokenizer.encode(text, add_special_tokens=False).ids
    assert len(encode.__self__) <= 30


@pytest.mark.parametrize("turned", [False, True])
def test_of_added_tokens_that_begin_alike_the_longest_is_taken(turned, smollm2):
    tokenizer = changed(smollm2.tokenizer)
    names = ["<tool", "<tool_call>", "<tool_call>s", "<|im_end|>", "<|im_end|><|im_start|>"]
    names = names[::-1] if turned else names
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in names])
    encode = encoder(tokenizer)
    assert isinstance(encode.__self__, TokenCache)
    for text in (
        "a<tool_call>b",
        "<tool_calls>",
        "<toolbox>",
        "x<|im_end|><|im_start|>y<|im_end|>",
    ):
        assert encode(text) == tokenizer.encode(text, add_special_tokens=False).ids
