"""agentlite.data.formats.json_decode: what a text means, and nothing it does not
say.
"""

import json
import math
from typing import Any

import pytest
from support.damaged_rows import refused
from support.examples import sample

from agentlite.data.formats import json_decode
from agentlite.data.formats.json_decode import json_value, literal_value, repair


@pytest.mark.parametrize("blank", ["", " "], ids=["as msgspec writes it", "otherwise"])
def test_nesting_is_counted_by_levels_and_not_by_brackets(blank: str) -> None:
    def nested(levels: int) -> str:
        return "[" * levels + blank + "]" * levels

    assert json_value(f"[{blank}{','.join([nested(63)] * 3)}]")  # 64 levels, many brackets
    assert json_value(nested(65)) and refused(lambda: json_value(nested(66))) == "E119"
    objects = '{"a":' * 66 + "1" + "}" * 66
    assert refused(lambda: json_value(objects.replace(":", f":{blank}"))) == "E119"
    wide = [{"a": [n]} for n in range(100)]
    assert json_value(json.dumps(wide)) == wide
    text = "[{" * 50
    assert json_value(json.dumps(text)) == text


def test_large_numbers_and_pairs_of_surrogates_are_read() -> None:
    assert json_value("[1e308, 12345678901234567890123]") == [1e308, 12345678901234567890123]
    assert json_value('["\\ud83d\\ude00"]') == ["😀"]
    assert math.copysign(1, json_value("-0.0")) == -1


def test_a_literal_is_read_up_to_64_kibibytes_and_nothing_is_run() -> None:
    assert literal_value(" {'a': (1, None, True)} ") == {"a": [1, None, True]}
    fitting = "'" + "x" * ((64 << 10) - 2) + "'"
    assert literal_value(fitting) == "x" * ((64 << 10) - 2)
    for text in (f"{fitting} ", "{1, 2}", "f()", "b'x'", "1j", "'a' 1", "{'a': 1e999}"):
        assert refused(lambda text=text: literal_value(text)) == "E206"


# --- repairs ---


def repaired(text: str) -> Any:
    return repair(text.encode())


def test_a_row_is_repaired_by_the_first_reader_that_reads_it() -> None:
    literal, broken = "{'a': True}", '{"a": "say "yes" now"}'
    assert repaired(literal) == ({"a": True}, ["literal"])
    value, used = repaired(broken)
    assert (value["a"].replace('"', ""), used) == ("say yes now", ["json"])
    assert repaired(f"\ufeff{literal}") == ({"a": True}, ["literal"])


@pytest.mark.parametrize("key", json_decode.JSON_KEYS)
def test_a_text_that_should_be_json_is_repaired_at_any_depth(key: str) -> None:
    value, used = repaired(json.dumps({"x": [{key: " {'a': True}"}, {key: "['b']"}]}))
    assert value == {"x": [{key: '{"a": true}'}, {key: '["b"]'}]}
    assert used == ["literal"]
    assert repaired(json.dumps({key: "{a}"})) is None
    # one that cannot be read stays as it is beside one that can
    value, _ = repaired(json.dumps({"x": [{key: "{a}"}, {key: "['b']"}]}))
    assert value == {"x": [{key: "{a}"}, {key: '["b"]'}]}
    assert repaired(json.dumps({key: "'text'", "other": "{'a': 1}"})) is None


@pytest.mark.parametrize("key", json_decode.USER_KEYS)
def test_what_stands_in_arguments_is_the_users(key: str) -> None:
    assert repaired(json.dumps({"x": {key: {"tools": "{'a': 1}"}}})) is None


ROW = {
    "messages": [
        {"role": "user", "content": 'What\'s 1.50 + 2? Say "hi", then (C:\\new) ½\n — ok'},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "f", "arguments": {"x": 1.5}}],
        },
    ],
    "tools": [{"name": "f", "parameters": {}}, {"name": "g", "strict": True, "max": None}],
}


@pytest.mark.parametrize("end", sample(12, range(1, len(json.dumps(ROW)))))
def test_a_row_cut_anywhere_is_never_repaired(end: int) -> None:
    """json-repair closes what is open, and the tools behind the cut would be lost silently."""
    assert repaired(json.dumps(ROW)[:end]) is None


@pytest.mark.parametrize(
    "text",
    [
        repr(ROW),
        repr({**ROW, "tools": tuple(ROW["tools"])}),
        json.dumps(ROW, indent=1).replace("\n  }", ",\n  }"),  # a comma too many
        json.dumps(ROW).replace('", "', '" "'),  # commas too few
        json.dumps(ROW).replace('"role":', "role:").replace("true", "True"),
    ],
)
def test_a_repair_changes_how_a_row_is_written_and_nothing_else(text: str) -> None:
    value, _ = repaired(text)
    assert value == ROW


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1 "a": 2}',  # one of the two would be kept
        "{'a': 1, 'a': 2}",
        "{'b': [{'a': 1, 'a': 1}]}",
        "{'a': 1}  # a remark",
        '{"a": 1, // a remark\n "b": 2}',
        'Sure: {"a": 1, "b" 2}',
        '```json\n{"a": 1, "b" 2}\n```',
        '{"a": 1 "b": 2}}',
        '{"a": [1, 2, "b": 3}',
        '{"a" 1} {"b" 2}',
        '{"a": 1, "b": 2, ...}',
    ],
)
def test_a_repair_that_drops_or_adds_anything_is_none(text: str) -> None:
    assert repaired(text) is None
