"""The example of each format with one thing wrong in it: refused by its code, and named."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentlite.core.errors import RowError
from agentlite.core.records import GoldCall
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, to_record

Row = dict[str, Any]
USER = {"role": "user", "content": "Is it wet in Oslo?"}
ANSWER = {"role": "assistant", "content": "Yes."}
RESULT = "<tool_response>\n{}\n</tool_response>"


def changed(name: str, change: Callable[[Row], object]) -> Row:
    row: Row = json.loads(FORMATS[name].example)
    change(row)
    return row


def text_of(turn: int, change: Callable[[str], str]) -> Callable[[Row], object]:
    def apply(row: Row) -> None:
        row["conversations"][turn]["value"] = change(row["conversations"][turn]["value"])

    return apply


def accepted(**arguments: object) -> Callable[[Row], object]:
    return lambda row: row["gold"][0].update(arguments=arguments)


@pytest.mark.parametrize(
    ("name", "change", "code", "reason"),
    [
        ("openai", lambda row: row.update(messages={}), "E201", "messages are not a list"),
        ("openai", lambda row: row.update(messages=["q"]), "E201", "message 1 is not an object"),
        (
            "openai",
            lambda row: row.update(messages=[USER, {"role": "assistant", "tool_calls": "weather"}]),
            "E206",
            "tool_calls are not a list of objects (message 2)",
        ),
        (
            "openai",
            lambda row: row.update(messages=[USER, {"role": "assistant", "tool_calls": [3]}]),
            "E206",
            "tool_calls are not a list of objects (message 2)",
        ),
        ("sage_sft", lambda row: row.update(candidate_tools="x"), "E201", "are not a list"),
        (
            "hermes_fc",
            text_of(2, lambda call: f"{call}\nAnd {RESULT} and {RESULT}"),
            "E214",
            "a result without a call",
        ),
        ("hermes_fc", text_of(2, lambda call: RESULT + call), "E214", "a result without a call"),
        (
            "hermes_fc",
            text_of(2, lambda call: f"{call}{call}{RESULT} and {RESULT}"),
            "E214",
            "a result without a call",
        ),
        (
            "ms_agent",
            text_of(0, lambda system: system.replace("1. weather: Call", "weather Call")),
            "E211",
            "without numbered APIs",
        ),
        (
            "ms_agent",
            text_of(0, lambda system: system.replace("Parameters:", "Arguments:")),
            "E211",
            "the API weather has no Parameters",
        ),
        (
            "ms_agent",
            text_of(2, lambda chain: f"{chain}\nObservation: 5 mm"),
            "E214",
            "Observation: behind the final answer",
        ),
        (
            "ms_agent",
            text_of(2, lambda chain: chain.replace("Thought:", "Action: weather\nThought:")),
            "E214",
            "the action 'weather' has no input",
        ),
        ("prompts", lambda row: row.update(gold={}), "E201", "gold is not a list of calls"),
        (
            "prompts",
            lambda row: row.update(prompt=None, messages=[USER, ANSWER]),
            "E201",
            "the last message is not a question to it",
        ),
        (
            "prompts",
            lambda row: row["gold"].append(3),
            "E201",
            "gold: an object is expected, and this is a whole number",
        ),
        ("prompts", accepted(town=["Oslo"]), "E210", "accepts values of town, which the tool does"),
        ("prompts", accepted(city=[]), "E210", "it accepts no value of city"),
        ("prompts", accepted(city=[3]), "E210", "no value it accepts of city fits the schema"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(
    name: str, change: Callable[[Row], object], code: str, reason: str
) -> None:
    validate(to_record(changed(name, lambda row: None), name))
    with pytest.raises(RowError) as refused:
        validate(to_record(changed(name, change), name))
    assert refused.value.code == code and reason in refused.value.reason


def test_gold_may_say_that_an_argument_may_be_left_out_or_has_one_value() -> None:
    row = changed("prompts", accepted(city="Oslo", town=["", "Oslo"]))
    record = to_record(row)
    validate(record)
    gold = record.gold[1].calls
    assert gold == (GoldCall("weather", {"city": ["Oslo"], "town": ["", "Oslo"]}),)


def test_without_gold_calls_the_answer_is_a_refusal_to_call() -> None:
    record = to_record(changed("prompts", lambda row: row.update(gold=[])))
    assert record.task == "timing_decision"
    assert record.messages[-1].calls == () == record.gold[1].calls
