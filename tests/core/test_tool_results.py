"""A result is a text or JSON, the same in every process."""

import enum
import math
from dataclasses import dataclass

import pytest

from agentlite.core.tool_results import result_text, says_error


class Colour(enum.Enum):
    RED = "red"


class Level(enum.StrEnum):
    LOW = "low"


@dataclass
class Point:
    x: float
    colours: tuple[Colour, ...] = (Colour.RED,)


class Model:
    """As a model of pydantic shows itself."""

    def model_dump(self, mode):
        return {"mode": mode, "share": math.nan}


ROUND: list[object] = []
ROUND.append(ROUND)


RESULTS = [
    ("wet", "wet"),
    ("NaN", "NaN"),
    (None, "null"),
    (3, "3"),
    (True, "true"),
    (math.nan, "null"),
    ({"v": math.nan, "w": [math.inf, -math.inf, 1.5]}, '{"v": null, "w": [null, null, 1.5]}'),
    (Colour.RED, "red"),
    (Level.LOW, "low"),
    ({"red": Level.LOW, 1: None}, '{"red": "low", "1": null}'),
    ([Point(1.0)], '[{"x": 1.0, "colours": ["red"]}]'),
    (Point(math.inf), '{"x": null, "colours": ["red"]}'),
    (Model(), '{"mode": "json", "share": null}'),
    ({"b", "a"}, '["a", "b"]'),
    ([{1, None, "a"}, frozenset({(2,), "b"})], '[["a", 1, null], ["b", [2]]]'),
    (object(), "<object object>"),
    ([object(), print], '["<object object>", "<built-in function print>"]'),
    ({(1, 2): 3}, "{(1, 2): 3}"),
    (b"a", "b'a'"),
    (ROUND, "[[...]]"),
]


@pytest.mark.parametrize(("result", "text"), RESULTS, ids=[text for _, text in RESULTS])
def test_a_result_is_text_or_json_without_an_address(result, text):
    assert result_text(result) == text and type(result_text(result)) is str


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("Error: no tool x.", True),
        (" \n Error", True),
        ("No Error", False),
        ("", False),
        ('{"error": "no such city"}', True),
        (' {"rain": 4, "error": ["x"]}\n', True),
        *((f'{{"error": {value}}}', False) for value in ("null", '""', "false", "0", "[]", "{}")),
        ('{"rain": 4}', False),
        ('{"rain": "Error: none"}', False),
        ('[{"error": "x"}]', False),
        ("{'error': 'x'}", False),
        ('{"error": "x"', False),
        ('{"a":' * 100_000, False),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_call_failed_where_its_result_says_so(result, failed):
    assert says_error(result) is failed
