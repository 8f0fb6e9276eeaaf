"""One answer at a step: how it is read, scored and sliced, and what comes back from files."""

import json

import pytest
from msgspec.structs import replace
from support.samples import TIME, WEATHER
from support.unknown_arguments import FORECAST

from agentlite.core.records import Call, Gold, GoldCall, GreedyAnswer, Message, Parsed, Record, Step
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.scoring.metrics.call_shares import count_calls
from agentlite.scoring.metrics.step_metrics import calls_right
from agentlite.scoring.predictions import prompt_key, read_answers, score_reading, to_prediction
from agentlite.scoring.rewards import COMPONENTS, Attempt

HERMES = PROTOCOLS["hermes"]
OSLO = Call("get_weather", {"city": "Oslo"})
RIGHT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def prompt(record, turn=2, ids=(1, 2)):
    return Prompt(record, turn, "hermes", [*ids], "", "turn")


def answer(text, ended="turn", key="key"):
    return GreedyAnswer("r", 2, key, text, ended, 7)


@pytest.mark.parametrize(
    ("given", "problem", "calls", "exact", "tool_n1", "new_tokens"),
    [
        (answer(RIGHT), "", 1, 1.0, 1.0, 7),
        (answer(RIGHT, "stop"), "", 1, 1.0, 1.0, 7),
        (answer(RIGHT, "cut"), "not finished within max_new_tokens", 1, 0.0, 0.0, 7),
        (answer(RIGHT[:-13], "cut"), "call not closed", 1, 0.0, 0.0, 7),
        (answer(RIGHT, key=""), "prompt longer than max_length", 0, 0.0, 0.0, 0),
    ],
)
def test_an_answer_that_was_cut_or_never_asked_is_no_right_one(
    given, problem, calls, exact, tool_n1, new_tokens, dialog
):
    found = to_prediction(prompt(dialog), given, HERMES)
    assert (found.problem, len(found.calls), found.new_tokens) == (problem, calls, new_tokens)
    assert (found.metrics["exact_call"], found.metrics["tool_n1"]) == (exact, tool_n1)
    assert found.text == (given.text if given.prompt else "")
    assert found.step == Step(dialog.id, 2) and found.slices["protocol"] == "hermes"


def with_calls(count, **changes):
    calls = tuple(Call("get_weather", {"city": "Oslo"}, f"c{n}") for n in range(count))
    messages = (Message("user", "x"), Message("assistant", calls=calls))
    return Record(messages=messages, tools=(WEATHER, TIME), **changes)


def test_answers_to_other_prompts_or_steps_are_left_out_and_a_torn_line_is_cut(tmp_path, dialog):
    keys = {Step("a", 1): prompt_key(prompt(dialog)), Step("b", 1): "other"}
    rows = [
        {"record_id": "a", "turn": 1, "prompt": keys["a", 1], "text": "1", "ended": "turn"},
        {"record_id": "b", "turn": 1, "prompt": "an old one", "text": "2", "ended": "turn"},
        {"record_id": "c", "turn": 1, "prompt": "other", "text": "3", "ended": "turn"},
    ]
    path = tmp_path / "answers.jsonl"
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(lines + '{"record_id": "a", "tu')
    assert {step: one.text for step, one in read_answers(path, keys).items()} == {("a", 1): "1"}
    assert path.read_text() == lines
    unasked = {**rows[1], "prompt": "", "ended": "cut"}
    path.write_text(json.dumps(unasked) + "\n")
    assert [*read_answers(path, keys)] == [("b", 1)]
    assert read_answers(tmp_path / "none.jsonl", keys) == {}
    assert len({prompt_key(prompt(dialog, ids=ids)) for ids in ((1, 2), (12,), (2, 1), (1,))}) == 4


@pytest.mark.parametrize(
    ("category", "count", "parsed", "right"),
    [
        ("simple_python", 1, Parsed("", (OSLO,)), 1.0),
        ("simple_python", 1, Parsed("", (OSLO,), "torn"), 0.0),
        ("irrelevance", 0, Parsed("", (OSLO,)), 0.0),
        ("irrelevance", 0, Parsed("", (OSLO,), "torn"), 1.0),
        ("irrelevance", 0, Parsed("Hm."), 1.0),
    ],
)
def test_to_bfcl_a_text_that_cannot_be_read_has_made_no_calls(category, count, parsed, right):
    record = replace(
        with_calls(count), tools=(WEATHER,), meta={"category": category, "bfcl_id": "1"}
    )
    assert score_reading(prompt(record, 1), parsed, "", 0).metrics["bfcl"] == right


def test_a_call_with_known_arguments_is_matched_before_one_with_unknown_ones():
    known, unknown = GoldCall("forecast_001", {"town": ["Oslo"]}), GoldCall("forecast_001", None)
    calls = tuple(Call("forecast_001", {"town": town}) for town in ("Oslo", "Rome"))
    for gold in (Gold((unknown, known)), Gold((known, unknown))):
        for made in (calls, calls[::-1]):
            assert calls_right(made, gold, (FORECAST,))
            assert COMPONENTS["exact"](Attempt(Parsed("", made), gold, (FORECAST,))) == 1
            counts = count_calls(made, gold, (FORECAST,))
            assert (counts.supplied, counts.needed, counts.agreeing) == (1, 1, 1)
