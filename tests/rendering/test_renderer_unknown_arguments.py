"""Arguments that the data does not say are written in every protocol and template, and learned in
none.
"""

import pytest
from msgspec.structs import replace
from support.unknown_arguments import RECORD

from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Message, Record
from agentlite.rendering import PROTOCOLS, encode_row, encoding, mark_trained, render
from agentlite.rendering.template import Template

PARALLEL = Record(
    messages=(
        Message("user", "Is it wet in Oslo and in Rome?"),
        Message(
            "assistant",
            calls=(
                Call("forecast_001", {}, "call_0"),
                Call("tide_002", {"port": "Brest"}, "call_1"),
                Call("forecast_001", {}, "call_2"),
            ),
        ),
        *(Message("tool", "4 mm", call_id=f"call_{number}") for number in range(3)),
        Message("assistant", "Yes."),
    ),
    tools=RECORD.tools,
    gold={
        1: Gold(
            (
                GoldCall("forecast_001", ANY_ARGUMENTS),
                GoldCall("tide_002", {"port": ["Brest"]}),
                GoldCall("forecast_001", ANY_ARGUMENTS),
            )
        )
    },
)
# templates write an empty object in other ways, or nothing at all
FORMS = {
    "spaced": '{"name": "{{ call.function.name }}", "arguments": {{ args | tojson(indent=2) }}}',
    "text": '{"name": "{{ call.function.name }}", "arguments": {{ args | tojson | tojson }}}',
    "tags": "<f>{{ call.function.name }}{% for key in args %}<p>{{ key }}</p>{% endfor %}</f>",
    "left out": "<f>{{ call.function.name }}{% if args %} {{ args | tojson }}{% endif %}</f>",
}
NATIVE = """{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls %}{% set args = call.function.arguments %}
FORM{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def native(form: str, smollm2: Template) -> Template:
    text = NATIVE.replace("FORM", FORMS[form])
    return Template(form, smollm2.tokenizer, text, smollm2.special)


def trained(record: Record, name: str, template: Template) -> list[str]:
    """The texts of what is trained, cut wherever something is not."""
    found = []
    for row in encode_all(record, name, template):
        texts = [""]
        for token, label in zip(row.input_ids, row.labels, strict=True):
            texts += [""] if label == encoding.IGNORED else []
            texts[-1] += "" if label == encoding.IGNORED else template.decode([token])
        found += [text for text in texts if text]
    return found


def encode_all(record: Record, name: str, template: Template) -> list[encoding.Encoded]:
    return [encode_row(row, template) for row in render(record, PROTOCOLS[name], template)]


WRITTEN = [name for name, protocol in PROTOCOLS.items() if not protocol.native]


@pytest.mark.parametrize("name", WRITTEN)
def test_unknown_arguments_are_not_trained_in_any_protocol(name: str, smollm2: Template) -> None:
    record = PARALLEL if PROTOCOLS[name].parallel_calls else RECORD
    known = replace(record, gold={})
    ids = [row.input_ids for row in encode_all(record, name, smollm2)]
    assert ids == [row.input_ids for row in encode_all(known, name, smollm2)]
    texts = trained(record, name, smollm2)
    calls = "".join(text for text in texts if "task_complete" not in text)
    assert "{}" not in calls and calls.count("forecast_001") == len(record.unknown_arguments(1))
    assert ('"Brest"' in calls) == (record is PARALLEL)
    assert "{}" in "".join(trained(known, name, smollm2)).replace("task_complete", "")


@pytest.mark.parametrize("form", FORMS)
def test_unknown_arguments_are_not_trained_under_any_template(form: str, smollm2: Template) -> None:
    template = native(form, smollm2)
    calls = trained(PARALLEL, "chat", template)[:-1]
    if form in ("spaced", "text"):
        assert "".join(calls).count("forecast_001") == 2 and "Brest" in "".join(calls)
        assert not [text for text in calls if "{}" in text]
    else:  # the end of the call says that there are no arguments: from there on nothing is trained
        assert [text.strip() for text in calls] == ["<f>forecast_001"]
    assert trained(PARALLEL, "chat", template)[-1] == "Yes.<|im_end|>"


def test_what_is_not_trained_is_shown_so(smollm2: Template) -> None:
    (row,) = render(PARALLEL, PROTOCOLS["hermes"], smollm2)
    shown = mark_trained(row, lambda piece: f"[{piece}]")
    assert '{"name": "forecast_001", "arguments":] {}[}' in shown
    assert '{"name": "tide_002", "arguments": {"port": "Brest"}}' in shown
    assert shown.replace("[", "").replace("]", "") == row.text.replace("[", "").replace("]", "")
