"""Rows of agentlite's own that were edited by hand are looked at as any other row."""

import json

import pytest

from agentlite.core.errors import RowError
from agentlite.data.formats import FORMATS, to_record

ROW = json.loads(FORMATS["agentlite"].example)


def tools(**parameters: object) -> str:
    return json.dumps([{"type": "function", "function": {"name": "f", "parameters": parameters}}])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"meta": '{"joined": 3}'}, "E201"),
        ({"meta": '{"joined": ["a", 3]}'}, "E201"),
        ({"meta": "[]"}, "E201"),
        ({"meta": "{"}, "E201"),
        ({"meta": '{"a": ' + "[" * 70 + "]" * 70 + "}"}, "E119"),
        ({"gold": '{"x": {}}'}, "E201"),
        ({"tools": tools(required="city")}, "E211"),
        ({"tools": '[{"name": "f"}]'}, "E201"),
    ],
)
def test_a_field_that_is_not_as_prep_writes_it_is_refused(
    fields: dict[str, str], code: str
) -> None:
    with pytest.raises(RowError) as refused:
        to_record({**ROW, **fields}, "agentlite")
    assert refused.value.code == code


def test_what_prep_writes_is_read_and_a_schema_is_brought_into_form() -> None:
    row = {**ROW, "meta": '{"joined": ["a", "b"]}', "tools": tools(type="dict", properties={})}
    record = to_record(row, "agentlite")
    assert record.meta["joined"] == ["a", "b"]
    assert record.tools[0].parameters == {"type": "object", "properties": {}}
