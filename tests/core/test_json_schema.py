"""agentlite.core.json_schema: schemas as data sets write them, and the values that fit them."""

import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from agentlite.core.json_schema import (
    DEEPEST,
    TYPES,
    allows_key,
    fits,
    is_of_types,
    is_too_deep,
    schema_at,
    schema_problem,
    types_of,
    value_problem,
)

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


def structures(depth: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of nothing but types, properties, items and what is required."""
    inner = structures(depth - 1) if depth else st.just({})
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(
                st.sampled_from([*TYPES, "any"]), st.lists(st.sampled_from([*TYPES]), max_size=2)
            ),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), max_size=2),
            "items": inner,
            "additionalProperties": st.booleans(),
        },
    )


def fits_by_hand(value: object, schema: dict[str, Any]) -> bool:
    """What a structure says, read without a library."""
    types = types_of(schema)
    whole = int in types and type(value) is float and value.is_integer()
    if types and not whole and not is_of_types(value, types):
        return False
    if isinstance(value, dict):
        return all(name in value for name in schema.get("required", ())) and all(
            allows_key(schema, name) and fits_by_hand(inner, schema_at(schema, "properties", name))
            for name, inner in value.items()
        )
    return not isinstance(value, list) or all(
        fits_by_hand(element, schema_at(schema, "items")) for element in value
    )


@pytest.mark.long
@given(VALUES, structures())
@settings(max_examples=examples(300))
def test_the_structure_of_a_schema_is_held_to_as_read_by_hand(
    value: object, schema: dict[str, Any]
) -> None:
    assert fits(value, schema) == fits_by_hand(value, schema) == (not value_problem(value, schema))
    assert not schema_problem(schema)


CLOSED = {"properties": {"a": {}}}
KEYWORDS = (
    *("type", "properties", "required", "items", "enum", "pattern", "minimum", "anyOf", "not"),
    *("$ref", "const", "description", "default", "additionalProperties", "format", "nullable"),
)


@pytest.mark.long
@given(VALUES, st.dictionaries(st.sampled_from(KEYWORDS), VALUES, max_size=5))
@settings(max_examples=examples(300))
def test_no_schema_however_broken_raises(value: object, schema: dict[str, Any]) -> None:
    assert fits(value, schema) == (not value_problem(value, schema))


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "reason"),
    [
        ({"enum": ["a", "b"]}, "a", "c", 'v: "c" is not one of'),
        ({"enum": ["雨"]}, "雨", "Grüße", 'v: "Grüße" is not one of'),
        ({"type": "integer", "minimum": 1}, 1, 0, "v: 0 is less than the minimum of 1"),
        ({"type": "integer", "exclusiveMinimum": 1}, 2, 1, "v: 1 is less than or equal to"),
        ({"pattern": "^\\d{4}$"}, "2024", "20x4", 'v: "20x4" does not match'),
        ({"format": "date"}, "2026-02-28", "2026-02-31", 'v: "2026-02-31" is not a "date"'),
        ({"format": "date-time"}, "2026-02-28 18:30", "tomorrow", 'v: "tomorrow" is not a'),
        ({"format": "time"}, "18:30", "25:00", 'v: "25:00" is not a "time"'),
        ({"format": "email"}, "ana@mail.org", "ana at mail", 'v: "ana at mail" is not a "email"'),
        ({"format": "uri"}, "https://a.org", "a b", 'v: "a b" is not a "uri"'),
        ({"type": "string", "maxLength": 2}, "ab", "abc", 'v: "abc" is longer than 2'),
        ({"type": "array", "minItems": 1}, [1], [], "v: [] has less than 1 item"),
        ({"items": {"type": "integer"}}, [1], [1, "x"], 'v.1: "x" is not of type "integer"'),
        ({"items": [{"type": "integer"}]}, [1], ["x"], 'v.0: "x" is not of type'),  # draft 7
        ({"minimum": 1, "exclusiveMinimum": True}, 2, 1, "v: 1 is less than or equal to"),  # 4
        ({"properties": {"a": {"enum": [1]}}}, {"a": 1}, {"a": 2}, "v.a: 2 is not one of"),
        ({"properties": {"a": {}}}, {"a": 1}, {"b": 1}, "v: Additional properties"),
        ({"items": CLOSED}, [{"a": 1}], [{"b": 1}], "v.0: Additional properties"),
        ({"prefixItems": [CLOSED]}, [{"a": 1}], [{"b": 1}], "v.0: Additional properties"),
        ({"additionalProperties": CLOSED}, {"x": {"a": 1}}, {"x": {"b": 1}}, "v.x: Additional"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, "x", 'v: "x" is not valid'),
        ({"type": "string", "nullable": True}, None, 3, "v: 3 is not valid"),
        ({"$ref": "#/$defs/id"}, 1, "x", 'v: "x" is not of type "integer"'),
    ],
)
def test_a_keyword_is_checked_and_the_reason_names_the_path(
    schema: dict[str, Any], right: object, wrong: object, reason: str
) -> None:
    whole = {"properties": {"v": schema}, "$defs": {"id": {"type": "integer"}}}
    assert value_problem({"v": right}, whole) == "" == schema_problem(whole)
    assert value_problem({"v": wrong}, whole).startswith(reason)


@pytest.mark.parametrize(
    "broken", [{"pattern": "("}, {"minimum": "0"}, {"enum": "a, b"}, {"$ref": "#/nowhere"}]
)
def test_an_invalid_schema_is_held_to_its_structure_and_says_why(broken: dict[str, Any]) -> None:
    schema = {"properties": {"a": {"type": "string", **broken}}, "required": ["a"]}
    assert schema_problem(schema)
    assert fits({"a": "anything"}, schema)
    assert not fits({"a": 1}, schema) and not fits({}, schema)
    assert not allows_key(schema, "b")


def test_a_schema_elsewhere_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connects"))
    for address in ("http://127.0.0.1:9/a.json", "file:///etc/hostname"):
        assert schema_problem({"$ref": address})
        assert fits(1, {"$ref": address})


def test_nothing_fits_that_is_nested_too_deep_to_be_read_back() -> None:
    value: object = 1
    for _ in range(DEEPEST):
        value = [value]
    assert fits(value, {}) and not is_too_deep(value)
    assert not fits([value], {}) and is_too_deep({"a": value})
    assert value_problem([value], {}) == f"is nested deeper than {DEEPEST}"
