"""What a step asks for, by the calls that its question needs and the tools on offer."""

import pytest
from support.samples import TIME, WEATHER

from agentlite.core.records import Call, Gold, GoldCall, Message, Record
from agentlite.data.curation.task_labels import FORMAT, SEVERAL, SINGLE, level

CALL = Call("get_weather", {"city": "Oslo"}, "a")
USER, WORDS = Message("user", "Is it wet?"), Message("assistant", "Yes.")
CALLS = Message("assistant", "", (CALL,))
RESULT = Message("tool", "4 mm", call_id="a")
BOTH = (WEATHER, TIME)


@pytest.mark.parametrize(
    ("messages", "tools", "expected"),
    [
        ((USER, WORDS), (), FORMAT),
        ((USER, CALLS), (WEATHER,), FORMAT),
        ((USER, CALLS), BOTH, SINGLE),
        ((USER, WORDS), BOTH, SINGLE),
        ((USER, CALLS, RESULT, WORDS), (WEATHER,), FORMAT),
        # two questions with one call each are as easy as one
        ((USER, CALLS, RESULT, WORDS, USER, CALLS), BOTH, SINGLE),
        # a plan: call after call for one question
        ((USER, CALLS, RESULT, CALLS, RESULT, WORDS), (WEATHER,), SEVERAL),
        ((USER, Message("assistant", "", (CALL, Call("get_time", {}, "b")))), BOTH, SEVERAL),
    ],
)
def test_a_level_is_of_the_calls_for_one_question(messages, tools, expected):
    record = Record(messages=messages, tools=tools)
    assert level(record, record.turns) == expected


def test_only_the_given_turns_count_and_gold_counts_for_them():
    messages = (USER, CALLS, RESULT, CALLS)
    record = Record(messages=messages, tools=BOTH)
    assert level(record, [1]) == level(record, [3]) == SINGLE
    two = Gold((GoldCall("get_weather", {}), GoldCall("get_time", {})))
    prompt = Record(messages=(USER, WORDS), tools=BOTH, gold={1: two})
    assert level(prompt, [1]) == SEVERAL and level(prompt, []) == SINGLE
