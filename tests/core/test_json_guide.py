"""What may follow the beginning of a JSON text: what fits gets through, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.json_guide import behind
from agentlite.core.json_schema import fits

WORDS = st.text(max_size=8)
NAMES = st.text(st.characters(exclude_categories=["C"], exclude_characters='"\\'), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(-1e60, 1e60).map(lambda number: round(number, 9))
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 9},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f", 1, None]},
        "where": {"$ref": "#/$defs/place"},
        "hours": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2},
        "wind": {"anyOf": [{"type": "boolean"}, {"const": "calm"}]},
        '"quoted"': {"type": ["string", "null"]},
    },
    "required": ["city"],
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"at": {"$ref": "#/$defs/place"}},
            "additionalProperties": {"type": "number"},
        }
    },
}
SCHEMAS = {
    "anything": {},
    "an object": {"type": "object"},
    "weather": WEATHER,
    "a list of lists": {"type": "array", "items": {"type": "array", "items": {}}},
    "no more than is listed": {"type": "object", "properties": {}, "additionalProperties": False},
    "one of two": {"oneOf": [{"type": "integer"}, {"type": "object", "required": ["a"]}]},
    "nullable": {"type": "string", "nullable": True},
    "all of one": {"allOf": [{"type": "boolean"}]},
    "never": False,
}


def gets_through(text: str, schema: Any) -> bool:
    guide = behind({"": schema}).after(text)
    return guide is not None and guide.may_end


@given(value=VALUES, indent=st.sampled_from([None, 0, 2]))
def test_every_json_value_gets_through(value, indent):
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    assert gets_through(text, {})
    assert gets_through(text, {"type": "object"}) == isinstance(value, dict)
    if isinstance(value, dict | list | str):
        assert behind({"": {}}).after(text).is_over
        assert not gets_through(text[:-1], {}) and not gets_through(text + "x", {})


@given(st.text(alphabet='{}[]",:\\ntrue01.eE-u 5d', max_size=12))
def test_what_gets_through_is_json(text):
    """But for the escape of half a letter, which json takes, and numbers that are too long."""
    try:
        json.loads(text)
        is_json = True
    except ValueError:
        is_json = False
    if gets_through(text, {}):
        assert is_json
        assert not text.startswith(" ")


def test_a_schema_of_properties_without_a_type_is_that_of_an_object():
    schema = {"properties": {"city": {"type": "string"}}}
    assert gets_through('{"city": "Oslo"}', schema)
    assert not any(gets_through(text, schema) for text in ('"Oslo"', "[]", "1", "true", "null"))


FITTING = [
    '{"city": "Oslo"}',
    '{ "days":\n 3, "city": "Oslo" }',
    '{"city": "a", "unit": null, "wind": "calm"}',
    '{"city": "a", "unit": 1, "wind": true, "hours": [1, 2.5e1]}',
    '{"city": "a", "where": {"at": {"x": 1}, "y": -2}}',
    '{"\\"quoted\\"": null, "city": "a"}',
]
NOT_FITTING = [
    "{}",
    '{"city": ""}',
    '{"city": "ten letters"}',
    '{"city": "a", "days": 3.5}',
    '{"city": "a", "days": "3"}',
    '{"city": "a", "unit": "k"}',
    '{"city": "a", "hours": []}',
    '{"city": "a", "hours": [1, 2, 3]}',
    '{"city": "a", "wind": "strong"}',
    '{"city": "a", "where": {"x": "1"}}',
    '{"city": "a", "other": 1}',
    '{"city": "a", "city": "b"}',
    "[]",
]


@pytest.mark.parametrize("text", FITTING + NOT_FITTING)
def test_it_takes_what_the_schema_takes(text):
    assert gets_through(text, WEATHER) == (text in FITTING)
    if text.count('"city"') < 2:  # json.loads would take the last of the two
        assert fits(json.loads(text), WEATHER) == (text in FITTING)


@pytest.mark.parametrize("name", SCHEMAS)
@given(data=st.data())
def test_whatever_is_written_by_the_guide_fits(name, data):
    """A walk through the guide, one letter after the other, ended as soon as it may end."""
    guide, text = behind({"": SCHEMAS[name]}), ""
    letters = '"{}[]:,\\ truefalsn0123.-eEcityaqodhwxm'
    for _ in range(60):
        if guide.may_end:
            assert fits(json.loads(text), SCHEMAS[name])
            return
        start = data.draw(st.integers(0, len(letters) - 1))
        rotated = letters[start:] + letters[:start]
        letter = next((letter for letter in rotated if guide.after(letter)), "")
        if not letter:  # nothing may follow a text that may not end
            assert name == "never"
            return
        text, guide = text + letter, guide.after(letter)


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '"\\uDFFF"',
        '"\\x"',
        '"a\nb"',
        "01",
        "-",
        "1.",
        "1e",
        "+1",
        "NaN",
        "9" * 30,
        "[1,]",
        '{"a":1,}',
        "{,}",
        "[" + " " * 40 + "]",
        "[" * 128 + "]" * 128,
        '{"a":' * 128 + "1" + "}" * 128,
        '{"a": 1, "a": 2}',
        '{"a": 1, "b": 2, "a": 3}',
    ],
)
def test_what_is_no_json_or_without_end_is_stopped(text):
    assert not gets_through(text, {})


def test_one_of_several_texts_comes_first():
    guide = behind({"f(": {"type": "integer"}, "get(": {"type": "string"}})
    assert guide.after("f(1").may_end and guide.after('get("a"').is_over
    assert guide.after('f("a"') is None and guide.after("g1") is None and guide.after("") is guide


REFERENCES: dict[str, Any] = {
    "$ref": "#/$defs/a",
    "$defs": {
        "a": {"$ref": "#/$defs/b"},
        "b": {"$ref": "#/$defs/c~1d~01"},
        "c/d~1": {"type": "boolean"},
    },
}
