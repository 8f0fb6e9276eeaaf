"""A result is a text or JSON, the same in every process."""

import enum
import math
from dataclasses import dataclass
from typing import Any

import pytest
from support.hostile_code import AS_RESULTS, HOSTILE

from agentlite.core.call_results import as_text


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
    ({Colour.RED: Level.LOW, 1: None}, '{"red": "low", "1": null}'),
    ([Point(1.0)], '[{"x": 1.0, "colours": ["red"]}]'),
    (Point(math.inf), '{"x": null, "colours": ["red"]}'),
    (Model(), '{"mode": "json", "share": null}'),
    ({"b", "a"}, '["a", "b"]'),
    (object(), "<object object>"),
    ([object(), print], '["<object object>", "<built-in function print>"]'),
    ({(1, 2): 3}, "{(1, 2): 3}"),
    (b"a", "b'a'"),
    (ROUND, "[[...]]"),
]


@pytest.mark.parametrize(("result", "text"), RESULTS, ids=[text for _, text in RESULTS])
def test_a_result_is_text_or_json_without_an_address(result, text):
    assert as_text(result) == text


@pytest.mark.parametrize("name", AS_RESULTS)
def test_the_sweep_of_hostile_tools_expects_what_their_results_become(name):
    functions: dict[str, Any] = {}
    exec(HOSTILE, functions)
    assert AS_RESULTS[name] in as_text(functions[name]())
