"""The limits of a rendering at their edges, and what a template may call."""

import json
import string
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentlite.rendering import chat_template
from agentlite.rendering.chat_template import (
    GROWTH,
    LONGEST_SOURCE,
    LONGEST_TEXT,
    LONGEST_TOTAL,
    SECONDS,
    Compiled,
    Printed,
    _size,
    to_json,
)


def rendered(source, **values):
    return Compiled(source).render(**values)


def test_the_limits_are_those_that_the_messages_name():
    assert (SECONDS, LONGEST_SOURCE, LONGEST_TEXT, LONGEST_TOTAL) == (10, 2**20, 2**26, 2**30)


@pytest.mark.parametrize(("seconds", "given_up"), [(9.9, False), (10.0, False), (10.1, True)])
@pytest.mark.parametrize(
    "source",
    [
        "{% for x in [1] %}{% endfor %}",
        "{{ 'a' | upper }}",
        "{{ 'a'.upper() }}",
        "{% macro m() %}{% endmacro %}{{ m() }}",
    ],
    ids=["loop", "filter", "method", "macro"],
)
def test_a_rendering_has_ten_seconds_from_its_beginning(source, seconds, given_up, monkeypatch):
    template, now = Compiled(source), iter([100.0])
    clock = SimpleNamespace(thread_time=lambda: next(now, 100.0 + seconds))
    monkeypatch.setattr(chat_template, "time", clock)
    if given_up:
        with pytest.raises(TemplateError, match="longer than 10 s"):
            template.render()
    else:
        template.render()


def test_a_long_loop_looks_at_the_clock_at_each_value(monkeypatch):
    template, ticks = Compiled("{% for x in values %}{% endfor %}"), iter(range(2000))
    clock = SimpleNamespace(thread_time=lambda: next(ticks) / 50)
    monkeypatch.setattr(chat_template, "time", clock)
    template.render(values=[0] * 400)
    ticks = iter(range(2000))
    with pytest.raises(TemplateError, match="longer than"):
        template.render(values=[0] * 1000)


def test_a_text_and_all_texts_together_have_a_limit_of_their_own(monkeypatch):
    monkeypatch.setattr(chat_template, "LONGEST_TEXT", 100)
    monkeypatch.setattr(chat_template, "LONGEST_TOTAL", 250)
    assert rendered("{{ ('a' * n)|length }}", n=100) == "100"
    with pytest.raises(TemplateError, match="writes a text of more than"):
        rendered("{{ ('a' * n)|length }}", n=101)
    twice = "{% set x = 'a' * n %}{% set y = 'a' * n %}{% set z = 'a' * m %}"
    assert rendered(twice, n=100, m=50) == ""
    with pytest.raises(TemplateError, match=r"makes texts of more than .* in all"):
        rendered(twice, n=100, m=51)
    template = Compiled(twice)
    for _ in range(3):  # each rendering starts again
        assert template.render(n=100, m=50) == ""


def test_what_is_printed_counts_as_a_text_too(monkeypatch):
    monkeypatch.setattr(chat_template, "LONGEST_TEXT", 1000)
    assert len(rendered("{{ x }}" * 10, x="a" * 100)) == 1000
    with pytest.raises(TemplateError, match="writes a text of more than"):
        rendered("{{ x }}" * 10 + "b", x="a" * 100)


@pytest.mark.parametrize("length", [2**20, 2**20 + 1])
def test_a_source_may_have_a_mebibyte(length):
    source = "x" * length
    if length > 2**20:
        with pytest.raises(TemplateError, match="its source is longer than 1 MiB"):
            Compiled(source)
    else:
        assert rendered(source) == source


texts = st.text("ab\t\n X", max_size=20)
widths = st.integers(0, 50)
MADE = {
    "ljust": st.tuples(texts, widths),
    "rjust": st.tuples(texts, widths),
    "center": st.tuples(texts, widths),
    "zfill": st.tuples(texts, widths),
    "replace": st.tuples(texts, st.sampled_from(["a", "X", "ab"]), texts),
    "join": st.tuples(st.lists(texts), texts),
    "expandtabs": st.tuples(texts, widths),
}
OF_PYTHON = {"join": lambda values, text: text.join(values)}


@pytest.mark.parametrize("name", MADE)
@given(data=st.data())
def test_a_text_is_never_longer_than_was_reckoned_before_it_was_made(name, data):
    arguments = data.draw(MADE[name])
    made = OF_PYTHON.get(name, getattr(str, name))(*arguments)
    # of padding only the width is reckoned, of tabs what they become: the text itself is there
    there = 0 if name in ("replace", "join") else len(arguments[0])
    assert len(made) <= GROWTH[name](*arguments) + there


@pytest.mark.parametrize(
    ("name", "arguments", "made"),
    [
        ("replace", ("aXbX", "X", "--"), 8),
        ("replace", ("aXbX", "X", "--", 1), 6),
        ("join", (["ab", "c"], ", "), 7),
        ("join", (["ab", "c"],), 3),
        ("indent", ("a\nb", 3), 9),
        ("indent", ("a\nb",), 11),
        ("indent", ("a\nb", "--"), 7),
        ("expandtabs", ("\t\t",), 16),
        ("ljust", ("a", 9), 9),
        ("batch", ([1], 9, "x"), 9),
        ("format", ("%9d", 1), 3 + 9 + 64),
        ("format", ("%*d", (9, 1)), 3 + 9 + 1 + 128),
        ("format", ("{:{}}", 1, 9), 5 + 9 + 1 + 128),
        ("translate", ("ab", {97: "xyz"}), 6),
        ("wordwrap", ("a b", 1, True, "xy"), 192),
    ],
)
def test_the_most_that_a_method_makes_is_reckoned(name, arguments, made):
    assert GROWTH[name](*arguments) == made


CALLS = [
    "'a'.ljust(3)",
    "'a'.rjust(3, '-')",
    "'a'.center(3)",
    "'7'.zfill(3)",
    "'{}, {b}'.format(1, b=2)",
    "'{a}'.format_map({'a': 1})",
    "'aXbX'.replace('X', '-')",
    "'aXbX'.replace('X', '-', 1)",
    "'ab'.translate({97: 'x'})",
    "', '.join(['a', 'b'])",
    "'a\\tb'.expandtabs(4)",
    "'a b'.split(' ')",
    "namespace(x=1).x",
    "range(3) | list",
    "'a b' | replace(' ', '-')",
    "'a' | indent(2, true)",
]
PLACES = {
    "alone": "{{ CALL }}",
    "a loop": "{% for n in [1, 2] %}{{ CALL }}{% endfor %}",
    "a loop with names": "{% for n in [1, 2] %}{% set s = n %}{{ CALL }}{{ s }}{% endfor %}",
    "a loop in a loop": "{% for n in [1, 2] %}{% for m in [3] %}{{ CALL }}{% endfor %}{% endfor %}",
    "a block": "{% block b %}{{ CALL }}{% endblock %}",
    "a loop in a block": "{% block b %}{% for n in [1] %}{{ CALL }}{% endfor %}{% endblock %}",
    "a macro": "{% macro m() %}{{ CALL }}{% endmacro %}{{ m() }}",
    "a macro in a loop": "{% macro m() %}{{ CALL }}{% endmacro %}{% for n in [1] %}{{ m() }}"
    "{% endfor %}",
    "an assignment in a loop": "{% for n in [1] %}{% set s = CALL %}{{ s }}{% endfor %}",
    "a condition in a loop": "{% for n in [1] %}{% if CALL %}{{ CALL }}{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_gives_what_jinja_gives_wherever_it_stands(call, place):
    """Jinja adds arguments of its own to a call in a loop or a block; a text takes none of them."""
    source = PLACES[place].replace("CALL", call)
    assert rendered(source) == ImmutableSandboxedEnvironment().from_string(source).render()


def test_every_method_whose_text_may_grow_is_called_above():
    methods = {name for name in GROWTH if hasattr(str, name)}
    assert methods == {name for name in methods if any(f".{name}(" in call for call in CALLS)}


printable = st.text(string.ascii_letters, max_size=8)
values = st.recursive(
    printable | st.integers(-(10**9), 10**9) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(printable, inner, max_size=4),
)


@pytest.mark.long
@given(values)
def test_a_value_is_about_as_long_as_its_text(value):
    assert len(str(value)) <= _size(value) + 2
    shown = [value, value]
    assert _size(shown) == 128 + 2 * _size(value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, '{"b": "é", "a": [1]}'),
        ({"ensure_ascii": True}, '{"b": "\\u00e9", "a": [1]}'),
        ({"sort_keys": True}, '{"a": [1], "b": "é"}'),
        ({"separators": (",", ":")}, '{"b":"é","a":[1]}'),
        ({"indent": 1}, '{\n "b": "é",\n "a": [\n  1\n ]\n}'),
        ({"indent": 0}, '{\n"b": "é",\n"a": [\n1\n]\n}'),
    ],
)
@pytest.mark.parametrize("kind", [dict, Printed])
def test_json_is_plain_unless_a_template_asks_for_more(options, text, kind):
    value = kind({"b": "é", "a": [1]})
    assert to_json(value, **options) == text
    assert rendered("{{ value|tojson }}", value=value) == '{"b": "é", "a": [1]}'


def test_a_dict_that_is_printed_often_is_read_like_any_other():
    value = Printed({"items": 1, "name": "f"})
    assert value.as_json == json.dumps({"items": 1, "name": "f"})
    source = (
        "{{ v.name }} {{ v['items'] }} {% for k, x in v.items() %}{{ k }}{% endfor %} {{ v.no }}"
    )
    assert rendered(source, v=value) == rendered(source, v=dict(value)) == "f 1 itemsname "


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ strftime_now('%Y-%m-%d') }}", "2025-01-01"),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"),
        (
            "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
            "13",
        ),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{{ 'a' ~ 1 ~ none }}", "a1None"),
        ("{{ 2 ** 3 + 1 - 4 % 3 }} {{ [1] + [2] }} {{ [0] * 2 }}", "8 [1, 2] [0, 0]"),
        ("{{ lipsum is defined }}", "False"),
    ],
)
def test_a_template_can_do_what_templates_of_models_do(source, text):
    assert rendered(source) == text


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ [].append(1) }}", "is unsafe"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without end"),
    ],
)
def test_a_template_that_refuses_or_reaches_out_is_an_error(source, problem):
    with pytest.raises(TemplateError, match=problem):
        rendered(source)


@pytest.mark.parametrize("x", ["", "aba", [], [1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize(
    "expression",
    [
        "x + x",
        "y + x",
        "x + y",
        "x * 7",
        "7 * x",
        "'%s|%9d' % ('ab', 1)",
        "x ~ 7",
        "x | join('ab')",
    ],
)
def test_what_an_operation_makes_is_counted_before(expression, x):
    template = Compiled(f"{{% set made = {expression} %}}{{{{ made | length }}}}")
    length = int(template.render(x=x, y=x[:1]))
    assert template.environment.total >= length


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        ("x * y", (1 << 32767, 1 << 32767)),
        ("x ** y", (1 << 63, 1023)),
        ("x + y", (1 << 65533, 1)),
    ],
)
def test_an_integer_has_no_more_bits_than_its_limit(expression, most):
    x, y = most
    source = f"{{{{ ({expression}) is number }}}}"
    assert rendered(source, x=x, y=y) == "True"
    if expression != "x + y":  # a sum has hardly more digits than what is added
        with pytest.raises(TemplateError, match="integers of thousands of digits"):
            rendered(source, x=x, y=y + 1 if expression == "x ** y" else y << 1)
        with pytest.raises(TemplateError, match="integers of thousands of digits"):
            rendered(source, x=x << 1, y=y)
