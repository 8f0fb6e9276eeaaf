"""Prompts and what was said to them, and the files that a template is read from."""

import pytest
from msgspec.structs import replace
from support.samples import WEATHER

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, Record
from agentlite.rendering import choose, encoding, parse_mixture, render, training_rows
from agentlite.rendering.renderer import Rendered, Span
from agentlite.rendering.template import Template


def chosen(name, template):
    return choose(name, template).protocols[name]


def written(record, name, template):
    return list(encoding.prompts_of([record], lambda _: chosen(name, template), template))


@pytest.mark.parametrize(
    ("name", "ended"), [("hermes", ["turn"] * 3), ("react", ["stop", "turn", "turn"])]
)
def test_a_prompt_knows_what_was_said_to_it_and_how_that_ended(name, ended, smollm2, dialog):
    found = written(dialog, name, smollm2)
    assert [(one.turn, one.protocol, one.record) for one in found] == [
        (turn, name, dialog) for turn in (2, 4, 6)
    ]
    assert [one.step for one in found] == [(dialog.id, turn) for turn in (2, 4, 6)]
    assert [one.ended for one in found] == ended
    (row,) = render(dialog, chosen(name, smollm2), smollm2)
    whole = encoding.encode_row(row, smollm2).input_ids
    for one in found:
        assert "<|im_end|>" not in one.answer
        assert smollm2.decode(one.ids).endswith(("<|im_start|>assistant\n", ' {"rain_mm": 4}\n'))
        # prompt and answer are the beginning of the row that is trained
        ids = one.ids + encoding.encode_answer(one.answer, one.ended, smollm2, one.ids)
        assert whole[: len(ids)] == ids
    assert [one.answer.split("\n")[-1] for one in found] == (
        ["</tool_call>", "Yes, about 4 mm.", "Quite sure."]
        if name == "hermes"
        else ["Observation:", "Final Answer: Yes, about 4 mm.", "Final Answer: Quite sure."]
    )


def test_only_turns_that_are_learned_are_asked_and_a_protocol_that_cannot_hold_a_record_is_told(
    smollm2, dialog
):
    kept_out = replace(dialog.messages[4], loss=False)
    record = replace(dialog, messages=(*dialog.messages[:4], kept_out, *dialog.messages[5:]))
    assert [one.turn for one in written(record, "hermes", smollm2)] == [2, 6]
    assert written(replace(dialog, tools=()), "hermes", smollm2) == []
    calls = (Call("get_weather", {}, "a"), Call("get_weather", {}, "b"))
    double = Record(
        messages=(Message("user", "x"), Message("assistant", calls=calls)), tools=(WEATHER,)
    )
    with pytest.raises(UserError, match=f"record {double.id}: .*holds 2 calls") as refused:
        written(double, "react", smollm2)
    assert refused.value.fix


@pytest.mark.parametrize("written_text", ['{"a": {}}\n</x>', "f {} g{ }  h", "{}{}"])
def test_a_token_is_left_out_exactly_where_it_has_part_of_what_is_left_out(written_text, smollm2):
    before = "Rain?\n"
    whole = before + written_text
    tokens = smollm2.encoder.offsets(written_text, smollm2.encode(before))
    for first in range(len(written_text)):
        for last in range(first + 1, len(written_text) + 1):
            out = (len(before) + first, len(before) + last)
            span = Span(1, len(before), len(whole), True, left_out=(out,))
            labels = encoding.encode_row(Rendered(whole, (span,)), smollm2).labels[-len(tokens) :]
            assert [label == encoding.IGNORED for label in labels] == [
                bool({*range(start, end)} & {*range(first, last)}) for start, end in tokens
            ]


def test_a_rewritten_history_gives_a_row_a_step_and_only_its_own_step_is_trained(templates):
    template = templates["forgets"]
    record = Record(
        messages=(
            Message("user", "a"),
            Message("assistant", "<think>w</think> first"),
            Message("user", "b"),
            Message("assistant", "<think>v</think> second"),
        )
    )
    rows = training_rows(record, chosen("hermes", template), template)
    trained = [template.decode([label for label in row.labels if label >= 0]) for row in rows]
    assert trained == ["<think>w</think> first<|im_end|>", "<think>v</think> second<|im_end|>"]
    given = [
        template.decode(
            [i for i, label in zip(row.input_ids, row.labels, strict=True) if label < 0]
        )
        for row in rows
    ]
    assert "b" not in given[0] and "\nfirst<|im_end|>" in given[1] and "<think>" not in given[1]
    rendered = render(record, chosen("hermes", template), template)
    again = training_rows(record, chosen("hermes", template), template, rows=rendered[:1])
    assert again == rows[:1]


BARE = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>"
    "{{ m.role }}\n{% if m.tool_calls %}{% for c in m.tool_calls %}{% if not loop.first %}; "
    '{% endif %}{"name": {{ c.function.name | tojson }}, "parameters": '
    "{{ c.function.arguments | tojson }}}{% endfor %}{% else %}{{ m.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_native_protocol_reads_the_syntax_that_its_template_writes(smollm2, templates):
    call = Call("get_weather", {"city": "Oslo"}, "c1")
    bare = Template("bare", smollm2.tokenizer, BARE, {})
    found = choose("chat", bare)
    text = '{"name": "get_weather", "parameters": {"city": "Oslo"}}'
    assert [one.name for one in found.protocols["chat"].parse(text).calls] == ["get_weather"]
    assert chosen("chat", templates["tools"]).parse(text).calls == ()  # that one writes tags
    record = Record(
        messages=(Message("user", "x"), Message("assistant", "", (call,))), tools=(WEATHER,)
    )
    (prompt,) = written(record, "chat", bare)
    assert prompt.answer == text
    odd = Template("odd", smollm2.tokenizer, BARE.replace("| tojson }}}", "| upper }}}"), {})
    with pytest.raises(UserError, match=r"protocol chat: .* does not read back") as refused:
        choose("chat", odd)
    assert refused.value.fix.startswith("With it these work: --protocol hermes or react or ")
    assert choose("auto", odd).setting == "hermes"


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("hermes=-1", "'-1' is not a weight for 'hermes'"),
        ("hermes=inf", "'inf' is not a weight"),
        ("hermes=nan", "'nan' is not a weight"),
        ("hermes,react,hermes=2", "'hermes' appears twice"),
        ("hermes,", "no protocol ''"),
        ("hermes,reakt", "no protocol 'reakt'"),
        ("hermes=0", "'0' is not a weight"),
        ("hermes=x", "'x' is not a weight"),
    ],
)
def test_a_weight_is_a_finite_number_above_0(setting, problem):
    with pytest.raises(UserError, match=problem) as refused:
        parse_mixture(setting)
    assert (refused.value.exit_code, refused.value.location) == (2, "--protocol")
