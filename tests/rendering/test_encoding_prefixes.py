"""Tokenizers that put a prefix before a text: pieces of a row have the ids of the whole row."""

import pytest
from msgspec.structs import replace
from support.samples import WEATHER, with_template
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Message, Record
from agentlite.rendering import choose, encode_answer, encoding, render
from agentlite.rendering.template import Template

TEXTS = [
    "You are a helpful assistant. Be brief. It rains in Oslo, I look it up first.",
    "user assistant system tool Thought: Action: Action Input: Observation: Final Answer:",
    '{"name": "get_weather", "arguments": {"city": "Oslo"}} 4 mm. Yes, wet. Quite dry.',
]
MARKS = ["<|im_start|>", "<|im_end|>"]


def metaspace(scheme):
    def change(tokenizer):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)

    return change


def byte_level(prefix):
    def change(tokenizer):
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
        tokenizer.decoder = decoders.ByteLevel()

    return change


def legacy(tokenizer):
    """As Llama 2's: no pre-tokenizer, the blanks are made visible by normalizers."""
    steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Replace("▁", " ")


KINDS = {
    "metaspace first": metaspace("first"),
    "metaspace always": metaspace("always"),
    "metaspace never": metaspace("never"),
    "byte level": byte_level(False),
    "byte level with a blank": byte_level(True),
    "legacy": legacy,
}


def trained(kind):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    KINDS[kind](tokenizer)
    signs = sorted({sign for text in TEXTS for sign in text} | set("\n▁<>_/'#[]().,:;!?0123456789"))
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>"], initial_alphabet=signs, show_progress=False
    )
    # without the blank, "▁I" and "I" are two words: both are learned
    tokenizer.train_from_iterator([*TEXTS, *(f"\n{text}" for text in TEXTS)] * 3, trainer)
    marks = [AddedToken(mark, normalized=False, special=True) for mark in MARKS]
    tokenizer.add_special_tokens(marks)
    return tokenizer


@pytest.fixture(scope="module", params=KINDS)
def template(request, smollm2):
    other = with_template(smollm2, "tools")
    read = Tokenizer.from_str(trained(request.param).to_str())  # as from tokenizer.json
    return Template(request.param, read, other.chat_template, other.special)


CALL = Call("get_weather", {"city": "Oslo"}, "call00000")
RECORD = Record(
    messages=(
        Message("system", "Be brief."),
        Message("user", "It rains in Oslo?"),
        Message("assistant", "I look it up first.", calls=(CALL,)),
        Message("tool", "4 mm", call_id=CALL.id),
        Message("assistant", "Yes, wet."),
        Message("user", "Quite?"),
        Message("assistant", "Quite dry."),
    ),
    tools=(WEATHER,),
)


@pytest.mark.parametrize("name", ["hermes", "chat", "react", "modelscope", "toolllama"])
def test_a_row_has_the_ids_of_its_whole_text_and_prompts_are_its_beginning(name, template):
    protocol = choose(name, template).protocols[name]
    for row in render(RECORD, protocol, template):
        encoded = encoding.encode_row(row, template)
        tokens = template.tokenizer.encode(row.text, add_special_tokens=False)
        edges = {edge for span in row.spans for edge in (span.start, span.end)}
        crossed = [(a, b) for a, b in tokens.offsets if any(a < edge < b for edge in edges)]
        if not crossed:  # a token over an edge must be cut there
            assert encoded.input_ids == tokens.ids
        for turn in RECORD.turns:
            prompt = encoding.encode_prompt(row, turn, template)
            assert encoded.input_ids[: len(prompt)] == prompt
    assert name in ("react", "modelscope") or not crossed


def test_an_answer_behind_its_prompt_has_the_ids_that_were_trained(template):
    protocol = choose("react", template).protocols["react"]
    (row,) = render(RECORD, protocol, template)
    ids = encoding.encode_row(row, template).input_ids
    for prompt in encoding.prompts_of([RECORD], lambda _: protocol, template):
        both = prompt.ids + encode_answer(prompt.answer, prompt.ended, template, prompt.ids)
        assert ids[: len(both)] == both


def test_unknown_arguments_are_left_out_and_nothing_else_is(template):
    unknown = {2: Gold((GoldCall(CALL.name, ANY_ARGUMENTS),))}
    turn = replace(RECORD.messages[2], calls=(replace(CALL, arguments={}),))
    messages = (*RECORD.messages[:2], turn, *RECORD.messages[3:])
    record = replace(RECORD, messages=messages, gold=unknown)
    protocol = choose("hermes", template).protocols["hermes"]
    learned = {}
    for name, one in (("unknown", record), ("known", replace(record, gold={}))):
        (row,) = render(one, protocol, template)
        labels = encoding.encode_row(row, template).labels
        learned[name] = template.decode([label for label in labels if label >= 0])
    assert learned["known"].count("{}") == 1 and CALL.name in learned["unknown"]
    blanks = str.maketrans("", "", " \n")
    known, left = (learned[name].translate(blanks) for name in ("known", "unknown"))
    start = next(place for place, sign in enumerate(known) if left[place] != sign)
    end = start + len(known) - len(left)
    assert left == known[:start] + known[end:]
    # without a pre-tokenizer a token may hold a blank: the one that holds a part of `{}` is out
    assert (
        known[start:end].endswith("{}") if template.name == "legacy" else known[start:end] == "{}"
    )
