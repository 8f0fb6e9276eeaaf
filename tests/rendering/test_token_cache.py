"""Text cut in chunks from memory has the ids that the tokenizer gives for the whole."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from agentlite.rendering.template import Template
from agentlite.rendering.token_cache import KNOWN_SPLITS, TokenCache, make_encode

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
SPLITS = [
    pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rule), "isolated"), BYTES])
    for rule in sorted(KNOWN_SPLITS)
]
RULES = [
    "smollm2",
    *((split, normalizer) for split in SPLITS for normalizer in (None, normalizers.NFC())),
]
SIGNS = "a Zoe 09 3 ' 's 'LL \" , { } < _ | - é 中 🙂 ½ ٣ ſ <|im_end|> <|im_start|> <tool_call>"
BLANKS = [" ", "  ", "\n", "\r\n", "\t", ": ", "\u00a0", "\u3000", "\u200d", "\x00"]
MARKS = ["e\u0301", "\u0338"]  # of the letter before
pieces = st.sampled_from([*SIGNS.split(), *BLANKS, *MARKS])
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
    encode = make_encode(tokenizer)
    assert isinstance(encode.__self__, TokenCache)
    expected = tokenizer.encode(text, add_special_tokens=False).ids
    assert encode(text) == expected
    assert encode(text) == expected  # from memory


def split(rule, behavior="isolated", invert=False):
    return pre_tokenizers.Split(rule, behavior, invert)


WORDS = Regex(sorted(KNOWN_SPLITS)[0])
OTHER = Regex(r"\w+\W")
WITH_REGEX = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
WITH_PREFIX = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
DIGITS = pre_tokenizers.Digits(individual_digits=True)


def small(added=("<|im_end|>",), rules=None, normalizer=None):
    """A tokenizer of single bytes and a few pairs, so that it is made at once."""
    pairs = [("i", "n"), (",", "Ġ"), ("4", "2"), ("a", "a"), ("'", "s")]
    letters = [*pre_tokenizers.ByteLevel.alphabet(), *map("".join, pairs)]
    tokenizer = Tokenizer(models.BPE({text: n for n, text in enumerate(sorted(letters))}, pairs))
    tokenizer.pre_tokenizer = rules or WITH_REGEX
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in added])
    return tokenizer


@pytest.mark.parametrize(
    ("before", "last"),
    [
        ((), pre_tokenizers.Metaspace()),
        ((), pre_tokenizers.ByteLevel(add_prefix_space=True)),
        ((), BYTES),
        ((DIGITS,), BYTES),
        ((split(OTHER),), BYTES),
        ((split(OTHER),), WITH_REGEX),
        ((split(","),), WITH_REGEX),
        ((split(WORDS), split(OTHER)), BYTES),
        ((split(OTHER), split(WORDS)), BYTES),
        ((split(WORDS, "removed"),), WITH_REGEX),
        ((split(WORDS, "merged_with_next"),), WITH_REGEX),
        ((split(WORDS, invert=True),), WITH_REGEX),
        ((pre_tokenizers.Whitespace(),), WITH_REGEX),
        ((split(WORDS),), WITH_PREFIX),
        ((split(WORDS),), pre_tokenizers.Metaspace()),
        ((BYTES,), split(WORDS)),
    ],
)
def test_tokenizers_with_other_rules_are_left_to_themselves(before, last):
    tokenizer = small(rules=pre_tokenizers.Sequence([*before, last]) if before else last)
    encode = make_encode(tokenizer)
    assert not hasattr(encode, "__self__")
    for text in ("Rain, wind: 42 mm.", "a <mask> b"):
        assert encode(text) == tokenizer.encode(text, add_special_tokens=False).ids
