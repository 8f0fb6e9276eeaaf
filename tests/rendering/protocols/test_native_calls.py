"""Calls in the forms of chat templates read back, whole, or are no calls."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.examples import examples
from support.shipped_templates import shipped, with_marks

from agentlite.core.errors import RowError
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.rendering import PROTOCOLS, check_reading, choose, reading_problem, render
from agentlite.rendering.protocol_mix import adapt_protocol
from agentlite.rendering.renderer import PROBE, span_text

DIALOG = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|{{ m.role }}|>"
    "{{ m.content }}{% if m.tool_calls %}@before{% for c in m.tool_calls %}"
    "{% set f = c.function %}@call{% if not loop.last %}@separator{% endif %}{% endfor %}@after"
    "{% endif %}</s>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ARGUMENTS = "{% for k, v in f.arguments.items() %}@argument{% endfor %}"
PLAIN = "{{ v if v is string else v | tojson }}"
JSON = "{{ f.arguments | tojson }}"
PARTS = ("before", "call", "separator", "after")
# name -> what stands before the calls, a call, what stands between calls, behind them, an argument
FORMS = {
    "mistral": (
        "[TOOL_CALLS] [",
        f'{{"name": "{{{{ f.name }}}}", "arguments": {JSON}, "id": "{{{{ c.id }}}}"}}',
        ", ",
        "]",
    ),
    "devstral": ("", f"[TOOL_CALLS]{{{{ f.name }}}}[ARGS]{JSON}", "", ""),
    "cohere": (
        "<|START_ACTION|>[\n",
        '    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ f.name }}", "parameters": '
        f"{JSON}}}",
        ",\n",
        "\n]<|END_ACTION|>",
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜>",
        f"<｜tool▁call▁begin｜>{{{{ f.name }}}}<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜>",
        "",
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek, in fences": (
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n```json\n"
        f"{JSON}\n```<｜tool▁call▁end｜>",
        "\n",
        "<｜tool▁calls▁end｜>",
    ),
    "deepseek, typed tags": (
        "\n\n<｜DSML｜function_calls>\n",
        f'<｜DSML｜invoke name="{{{{ f.name }}}}">\n{ARGUMENTS}</｜DSML｜invoke>\n',
        "",
        "</｜DSML｜function_calls>",
        "<｜DSML｜parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">"
        f"{PLAIN}</｜DSML｜parameter>\n",
    ),
    "kimi, with names": (
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>functions.{{ f.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
        f"{JSON}<|tool_call_end|>",
        "",
        "<|tool_calls_section_end|>",
    ),
    "minimax": (
        "\n<minimax:tool_call>\n",
        f'<invoke name="{{{{ f.name }}}}">\n{ARGUMENTS}</invoke>\n',
        "",
        "</minimax:tool_call>",
        f'<parameter name="{{{{ k }}}}">{PLAIN}</parameter>\n',
    ),
    "glm": (
        "",
        f"<tool_call>{{{{ f.name }}}}{ARGUMENTS}</tool_call>",
        "",
        "",
        f"<arg_key>{{{{ k }}}}</arg_key><arg_value>{PLAIN}</arg_value>",
    ),
    "hy3": (
        "",
        f"<calls>{{{{ f.name }}}}<sep>{ARGUMENTS}</calls>",
        "",
        "",
        f"<key>{{{{ k }}}}</key><value>{PLAIN}</value>",
    ),
    "seed": (
        "",
        "\n<seed:tool_call>\n<function={{ f.name }}>\n"
        f"{ARGUMENTS}</function>\n</seed:tool_call>",
        "\n",
        "",
        f"<parameter={{{{ k }}}}>{PLAIN}</parameter>\n",
    ),
}


def source_of(form):
    source, parts = DIALOG, dict(zip(PARTS, FORMS[form], strict=False))
    for name, text in (*parts.items(), ("argument", FORMS[form][-1])):
        source = source.replace(f"@{name}", text)
    if form == "hy3":  # an answer's end is written by the next user turn, and that of calls at once
        source = source.replace("</s>", "{% if m.tool_calls %}</s>{% endif %}")
        ending = "{% if m.role == 'user' and not loop.first %}</s>{% endif %}"
        source = source.replace("<|{{ m", f"{ending}<|{{{{ m", 1)
    return source


SOURCES = {form: source_of(form) for form in FORMS} | dict(shipped())
SHIPPED = ("trl/qwen3_8", "trl/nemotron_3_nano", "trl/glm4moe", "trl/lfm2_2_5")
FAMILIES = [*FORMS, *(name for name in SHIPPED if name in SOURCES)]
TEXTS = st.text(max_size=9) | st.sampled_from(["2", "true", "null", "[1]", " x\n", "it's", '"'])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
TYPES |= {dict: "object", type(None): "null"}


def read_back(template, protocol, *calls):
    """What a turn with these calls reads as, its text, and its tools."""
    calls = [Call("get_rain", given, f"call0000{index}") for index, given in enumerate(calls)]
    properties = {k: {"type": TYPES[type(v)]} for call in calls for k, v in call.arguments.items()}
    tool = Tool("get_rain", "Rain.", {"type": "object", "properties": properties})
    results = (Message("tool", "4 mm", call_id=call.id) for call in calls)
    turns = (Message("user", "Wet?"), Message("assistant", "I look.", tuple(calls)), *results)
    record = Record(messages=(*turns, Message("assistant", "Yes.")), tools=(tool,))
    rows = render(record, protocol, template)
    check_reading(record, rows, protocol, template)
    row, span = next((row, span) for row in rows for span in row.spans if span.turn == 1)
    text = span_text(row, span, template)
    return protocol.read(text, record.tools), text, record


@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_reads_back_or_its_row_is_rejected(family, smollm2):
    template = with_marks(family, SOURCES[family], smollm2.tokenizer)
    assert choose("auto", template).setting == "chat"
    protocol = adapt_protocol(PROTOCOLS["chat"], template)

    @given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), min_size=1, max_size=3))
    @hypothesis_settings(max_examples=examples(60))
    def check(calls):
        try:
            read, _, _ = read_back(template, protocol, *calls)
        except RowError:  # a text that holds the quotes or the tags of the form
            return
        assert [call.arguments for call in read.calls] == calls and not read.problem

    check()
    read, text, record = read_back(template, protocol, {"a": "2", "b": [1]}, {"a": "  x\n"}, {})
    assert [call.arguments for call in read.calls] == [{"a": "2", "b": [1]}, {"a": "  x\n"}, {}]
    assert read.content.endswith("I look.")
    for length in range(len(text)):  # a call that is cut is not another one
        cut = protocol.read(text[:length], record.tools)
        assert cut.problem or cut.calls == read.calls[: len(cut.calls)]
    assert protocol.read(f"{text} Done.", record.tools).problem


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in FORMS])
def test_the_form_of_a_template_is_read_back_or_auto_takes_another_protocol(name, smollm2):
    template = with_marks(name, SOURCES[name], smollm2.tokenizer)
    protocol = adapt_protocol(PROTOCOLS["chat"], template)
    if choose("auto", template).setting == "chat":
        given = {"a": "2", "b": 'say "x"\n or:\n  y', "c": [1, {"d": "e"}], "f": True}
        assert read_back(template, protocol, given, given)[0].calls[1].arguments == given


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in FORMS])
def test_a_call_without_words_has_none(name, smollm2):
    template = with_marks(name, SOURCES[name], smollm2.tokenizer)
    protocol = adapt_protocol(PROTOCOLS["chat"], template)
    if template.prints_calls and not reading_problem(protocol, template):
        spans = [(row, span) for row in render(PROBE, protocol, template) for span in row.spans]
        texts = [span_text(row, span, template) for row, span in spans if span.turn == 1]
        assert not protocol.read(texts[0], PROBE.tools).content
