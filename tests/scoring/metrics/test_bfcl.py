"""agentlite.scoring.metrics.bfcl: verdicts, v4's group scores."""

import importlib
import importlib.util

import pytest

from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, Tool
from agentlite.data.formats.bfcl import TUPLE
from agentlite.scoring.metrics.bfcl import GROUPS, SUBSET, group_scores, is_right
from agentlite.scoring.metrics.step_metrics import satisfies

needs_bfcl = pytest.mark.skipif(
    not importlib.util.find_spec("bfcl_eval"), reason="bfcl-eval is not installed"
)
FIELDS = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "radius": {"type": "number"},
    "hourly": {"type": "boolean"},
    "stations": {"type": "array", "items": {"type": "string"}},
    "levels": {"type": "array", "items": {"type": "number"}},
    "filters": {"type": "array", "items": {"type": "object"}},
    "place": {"type": "array", "items": {"type": "number"}, "format": TUPLE},
    "user": {"type": "object"},
    "note": {},
    "unit": {"type": "string"},
}
WEATHER = Tool("weather", "", {"type": "object", "properties": FIELDS, "required": ["city"]})
STOP = Tool("stop")
GOLD = GoldCall(
    "weather",
    {
        "city": ["Oslo, Norway", "Oslo"],
        "days": [3],
        "radius": [5.0],
        "hourly": [True],
        "stations": [["Blindern", "St. Hanshaugen"]],
        "levels": [[1.0, 1.5]],
        "filters": [
            [{"field": ["wind"], "above": [10, 10.0]}, {"field": ["rain"], "above": ["", 0]}]
        ],
        "place": [[59.9, 10.7]],
        "user": [{"name": ["Kari"], "age": ["", 30]}],
        "note": ["any text"],
        "unit": ["", "metric"],
    },
)
RIGHT = {
    "city": "Oslo",
    "days": 3,
    "radius": 5.0,
    "hourly": True,
    "stations": ["Blindern", "St. Hanshaugen"],
    "levels": [1.0, 1.5],
    "filters": [{"field": "wind", "above": 10}, {"field": "rain"}],
    "place": [59.9, 10.7],
    "user": {"name": "Kari"},
    "note": "any text",
}
ALSO_RIGHT = {
    "other case, blanks and stops": {"city": "OSLO Norway."},
    "int for a float": {"radius": 5},
    "what may be left out, given": {"unit": "Metric", "user": {"name": "KARI", "age": 30}},
    "elements spelled otherwise": {"stations": ["blindern", "St-Hanshaugen"]},
    "a tuple where one is declared": {"place": (59.9, 10.7)},
    "text for any, spelled otherwise": {"note": "Any-Text"},
}
WRONG = {
    "another value": {"city": "Bergen"},
    "number as text": {"days": "3"},
    "float for an int": {"days": 3.0},
    "int for a bool": {"hourly": 1},
    "bool for an int": {"days": True},
    "a float beyond all floats": {"radius": 10**400},
    "null": {"city": None},
    "a list around it": {"city": ["Oslo"]},
    "reordered list": {"stations": ["St. Hanshaugen", "Blindern"]},
    "shorter list": {"stations": ["Blindern"]},
    "int for a float in a list": {"levels": [1, 1.5]},
    "a tuple where a list is declared": {"levels": (1.0, 1.5)},
    "reordered objects": {"filters": RIGHT["filters"][::-1]},
    "no object in a list of objects": {"filters": ["wind", "rain"]},
    "unknown key": {"user": {"name": "Kari", "height": 180}},
    "missing key": {"user": {"age": 30}},
    "wrong value of a key": {"user": {"name": "Ola"}},
    "a number for any": {"note": 5},
    "extra parameter": {"language": "en"},
    "wrong value of what may be left out": {"unit": "kelvin"},
}


def verdict(change=None, gold=GOLD, category="multiple"):
    calls = [Call("weather", RIGHT | (change or {}))]
    return is_right(category, calls, Gold((gold,)), (WEATHER, STOP))


@pytest.mark.parametrize(
    "change", [{}, *ALSO_RIGHT.values()], ids=["as the gold has it", *ALSO_RIGHT]
)
def test_what_bfcl_accepts_is_right(change):
    assert verdict(change)


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_every_single_mutation_of_a_right_call_is_wrong(change):
    assert not verdict(change)


def test_a_number_of_more_digits_than_python_writes_is_wrong():
    assert not verdict({"radius": 16**4000})


SAME = [*RIGHT.keys() - {"note", "place"}]  # ours knows no tuples and takes anything for "any"
KINDER = ("int for a float in a list", "a tuple where a list is declared")


@pytest.mark.parametrize("change", [{}, *ALSO_RIGHT.values(), *WRONG.values()], ids=str)
def test_our_own_metric_judges_the_same(change):
    """And so does BFCL's own checker, where it can be imported."""
    if change.keys() - {*SAME, "unit", "language"} or change in map(WRONG.get, KINDER):
        pytest.skip("ours differs here")
    arguments = {name: RIGHT[name] for name in SAME} | change
    gold = GoldCall(
        "weather",
        {name: GOLD.arguments[name] for name in GOLD.arguments.keys() - {"note", "place"}},
    )
    expected_verdict = change not in WRONG.values()
    assert satisfies(Call("weather", arguments), gold, WEATHER) == expected_verdict
    checker = "bfcl_eval.eval_checker.ast_eval.ast_checker"
    try:
        theirs = importlib.import_module(checker)
    except ImportError:
        return
    names = {"object": "dict", "number": "float"}
    described = {"name": "weather", "parameters": in_their_words(WEATHER.parameters, names)}
    called, expected = {"weather": arguments}, {"weather": gold.arguments}
    python = theirs.Language.PYTHON
    found = theirs.simple_function_checker(described, called, expected, python, "gpt-4o-2024-11-20")
    assert found["valid"] == expected_verdict


def in_their_words(schema, names):
    if isinstance(schema, dict):
        return {key: in_their_words(inner, names) for key, inner in schema.items()}
    return names.get(schema, schema) if isinstance(schema, str) else schema


def test_an_object_inside_an_object_is_refused_even_as_the_gold_writes_it():
    gold = GoldCall("weather", GOLD.arguments | {"user": [{"home": [{"city": ["Oslo"]}]}]})
    assert not verdict({"user": {"home": {"city": "Oslo"}}}, gold)
    assert verdict({"user": {"home": {"city": ["Oslo"]}}}, gold)  # the letter of it


def test_each_category_wants_its_number_of_calls():
    right, stop = Call("weather", RIGHT), Call("stop")
    one, two = Gold((GOLD,)), Gold((GOLD, GoldCall("stop")))
    for category in ("simple_python", "live_simple", "multiple", "live_multiple"):
        assert is_right(category, [right], one, (WEATHER,))
        for calls in ([], [right, stop], [right, right], [stop]):
            assert not is_right(category, calls, one, (WEATHER, STOP))
    for category in ("parallel", "live_parallel_multiple"):
        assert is_right(category, [right, stop], two, (WEATHER, STOP))
        assert is_right(category, [stop, right], two, (WEATHER, STOP))
        for calls in ([], [right], [right, right], [stop, stop], [right, stop, stop]):
            assert not is_right(category, calls, two, (WEATHER, STOP))
    assert not is_right("multiple", [stop], Gold((GoldCall("stop"),)), (WEATHER,))


def test_where_no_call_is_due_any_is_wrong_and_where_any_is_due_none_is():
    for category in ("irrelevance", "live_irrelevance"):
        assert is_right(category, [], Gold(), (WEATHER,))
        assert not is_right(category, [Call("nothing")], Gold(), (WEATHER,))
    expected = Gold((GoldCall(ANY_TOOL),))
    assert not is_right("live_relevance", [], expected, (WEATHER,))
    assert is_right("live_relevance", [Call("x")], expected, (WEATHER,))


# --- groups ---


def mean(score):
    return None if score is None else pytest.approx(score.mean)


def means(scores):
    return {name: mean(scores["bfcl"][f"bfcl_{name}"]) for name in ("overall", *GROUPS)}


def test_group_scores_are_v4s_by_hand():
    verdicts = {
        "simple_python": [1, 1, 1, 0],  # .75
        "simple_java": [1, 0],  # .5
        "simple_javascript": [0.0],  # simple: 1.25 / 3
        "multiple": [1, 1],
        "parallel": [0, 1],
        "parallel_multiple": [0],
        "live_simple": [1, 1, 1],
        "live_multiple": [0, 0, 0, 0, 1],
        "live_parallel": [1],
        "live_parallel_multiple": [0],  # live: 5 of 10
        "irrelevance": [1, 1, 1, 1],
        "live_irrelevance": [0, 0, 1, 1, 1, 1, 1, 1, 1, 1],  # .8
        "live_relevance": [0],
    }
    scores = group_scores(verdicts, 0)
    non_live = (1.25 / 3 + 1 + 0.5 + 0) / 4
    assert means(scores) == {
        "overall": (non_live + 0.5 + 0.9) / 3,
        "non_live": non_live,
        "live": 0.5,
        "irrelevance": 0.9,
        "multi_turn": None,
        "agentic": None,
    }
    counts = {name: score.count for name, score in scores["bfcl"].items() if score}
    # live_relevance is in no group
    assert [*counts.values()][:4] == [36, 12, 10, 14]
    assert [*counts][4:] == sorted(verdicts) and counts["live_relevance"] == 1
    missing = scores["bfcl_not_measured"]
    assert scores["bfcl_is"] == SUBSET and "live_relevance" not in missing
    assert {name.split("_")[0] for name in missing} == {"multi", "web", "memory"}


def test_what_was_not_measured_is_neither_0_nor_1():
    scores = group_scores({"multiple": [1, 0], "parallel": []}, 0)
    assert means(scores) == {**dict.fromkeys(GROUPS), "overall": 0.5, "non_live": 0.5}
    assert "parallel" in scores["bfcl_not_measured"] and "parallel" not in scores["bfcl"]
    assert set(group_scores({}, 0)["bfcl"].values()) == {None}
