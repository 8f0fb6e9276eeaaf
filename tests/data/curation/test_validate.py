"""agentlite.data.curation.validate: what is refused, with which code, and what a refusal names."""

import re
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import (
    ANY_ARGUMENTS,
    Call,
    Gold,
    GoldCall,
    Message,
    Parsed,
    Record,
    Tool,
)
from agentlite.data.curation.validate import check_dialog, validate
from agentlite.scoring.metrics.step_metrics import format_compliance

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "number"},
        "hours": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["city"],
}
WEATHER = Tool("weather", "The weather to come.", CITY)
ASK, ANSWER = Message("user", "Is it wet in Oslo?"), Message("assistant", "Yes.")
CALL = Message("assistant", "", (Call("weather", {"city": "Oslo"}, "a"),))
RESULT = Message("tool", "4 mm", call_id="a")
GOOD = Record(messages=(ASK, CALL, RESULT, ANSWER), tools=(WEATHER,))
CLOCK = Tool("clock")


def calling(**arguments: Any) -> Message:
    return Message("assistant", "", (Call("weather", arguments, "a"),))


BAD = {
    "no messages": ((), "E201"),
    "unmatched id": ((ASK, CALL, Message("tool", "4", call_id="b"), ANSWER), "E205"),
    "two results of a call": ((ASK, CALL, RESULT, RESULT, ANSWER), "E205"),
    "ids twice": ((ASK, Message("assistant", "", CALL.calls * 2), RESULT, ANSWER), "E205"),
    "unknown tool": ((ASK, Message("assistant", "", (Call("wether", {}),))), "E209"),
    "missing argument": ((ASK, calling(days=3)), "E210"),
    "unknown argument": ((ASK, calling(city="Oslo", town="Oslo")), "E210"),
    "wrong type": ((ASK, calling(city=3)), "E210"),
    "a bool is not a number": ((ASK, calling(city="Oslo", days=True)), "E210"),
    "an integer that is none": ((ASK, calling(city="Oslo", hours=[2.5])), "E210"),
    "a wrong type inside": ((ASK, calling(city="Oslo", hours=["noon"])), "E210"),
    "says nothing": ((ASK, Message("assistant", " \n")), "E216"),
    "asks nothing": ((Message("user", ""), ANSWER), "E216"),
    "nul": ((ASK, Message("assistant", "a\0b")), "E112"),
    "nul in an argument": ((ASK, calling(city="a\0b")), "E112"),
}


def test_a_record_that_cannot_be_learned_from_is_refused() -> None:
    for name, (messages, code) in BAD.items():
        with pytest.raises(RowError) as caught:
            validate(replace(GOOD, messages=messages))
        assert caught.value.code == code, name


GOOD_MESSAGES = {
    "a call and its result": GOOD.messages,
    "an int for a number": (ASK, calling(city="Oslo", days=3)),
    "a whole number for an integer": (ASK, calling(city="Oslo", hours=[3.0, 4])),
    "an empty result": (ASK, CALL, Message("tool", "", call_id="a"), ANSWER),
    "an id used again in another turn": (*GOOD.messages, *GOOD.messages),
}


def test_a_record_that_can_be_learned_from_passes() -> None:
    for messages in GOOD_MESSAGES.values():
        record = replace(GOOD, messages=messages)
        validate(record)
        assert all(format_compliance(Parsed("", m.calls), Gold(), record.tools) for m in messages)


def test_a_call_that_is_not_learned_is_checked_as_well_unless_it_failed_in_a_rollout() -> None:
    wrong = replace(CALL, calls=(Call("weather", {"city": 3}, "a"),), loss=False)
    record = replace(GOOD, messages=(ASK, wrong, RESULT, ANSWER))
    with pytest.raises(RowError) as caught:
        validate(record)
    assert caught.value.code == "E210"
    validate(replace(record, meta={"rollout": "x"}))


def test_only_the_gold_of_bfcl_may_accept_what_the_schema_does_not() -> None:
    record = Record(
        messages=(ASK, calling(city=3)),
        tools=(WEATHER,),
        gold={1: Gold((GoldCall("weather", {"city": [3]}),))},
    )
    with pytest.raises(RowError) as caught:
        validate(record)
    assert caught.value.code == "E210"
    validate(replace(record, meta={"bfcl_id": "simple_python_0"}))


WITH_SCHEMA = [
    ({"required": ["a"]}, {"a": 1}, None),
    ({"properties": {}}, {"a": 1}, "E210"),
    ({"properties": {}, "additionalProperties": True}, {"a": 1}, None),
    ({"properties": {}, "additionalProperties": False}, {"a": 1}, "E210"),
    ({"properties": {}, "additionalProperties": {"type": "string"}}, {"a": 1}, "E210"),
    ({"properties": {}, "additionalProperties": {"type": "string"}}, {"a": "1"}, None),
    ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": None}, None),
    ({"properties": {"a": {"type": "integer"}}}, {"a": None}, "E210"),
    ({"properties": {"a": {}}}, {"a": None}, None),
    ({"properties": {"a": {}}, "required": ["a"]}, {}, "E210"),
    ({}, {"a": 1}, None),
    ({"properties": {}, "patternProperties": {"^a": {"type": "integer"}}}, {"a": 1}, None),
    ({"properties": {}, "patternProperties": {"^a": {"type": "integer"}}}, {"a": "1"}, "E210"),
    ({"properties": {}, "allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": 1}, None),
    ({"properties": {}, "allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"a": ""}, "E210"),
    ({"properties": {}, "anyOf": [{}], "additionalProperties": False}, {"a": 1}, "E210"),
]


def test_arguments_are_held_to_the_schema_and_to_no_more() -> None:
    for schema, arguments, code in WITH_SCHEMA:
        call = Message("assistant", "", (Call("f", arguments, "a"),))
        record = Record(messages=(ASK, call), tools=(Tool("f", "", schema),))
        found = None
        try:
            validate(record)
        except RowError as error:
            found = error.code
        assert found == code, (schema, arguments)


def called(*calls: Call, gold: tuple[GoldCall, ...] = ()) -> Record:
    messages = (ASK, Message("assistant", "", calls))
    return Record(messages=messages, tools=(WEATHER, CLOCK), gold={1: Gold(gold)} if gold else {})


def code(record: Record) -> str:
    with pytest.raises(RowError) as refused:
        validate(record)
    return refused.value.code


def test_only_arguments_that_are_known_are_held_to_the_schema() -> None:
    unknown, known = Call("weather", {}, "a"), Call("weather", {"city": "Oslo"}, "b")
    any_gold = GoldCall("weather", ANY_ARGUMENTS)
    validate(called(unknown, gold=(any_gold,)))
    validate(called(unknown, known, gold=(any_gold, any_gold)))
    assert code(called(unknown)) == "E210"
    assert code(called(unknown, gold=(GoldCall("weather", {"city": ["Oslo"]}),))) == "E210"
    wrong = Call("clock", {"zone": "x"}, "c")
    assert code(called(unknown, wrong, gold=(any_gold, GoldCall("clock", {})))) == "E210"


MESSAGES = {
    "s": Message("system", "Be brief."),
    "u": ASK,
    "a": ANSWER,
    "c": Message("assistant", "", (Call("clock", {}, "one"),)),
    "t": Message("tool", "4", call_id="one"),
}


def test_a_result_before_its_call_is_not_called_a_turn_too_many() -> None:
    with pytest.raises(RowError, match="a result before its call") as refused:
        validate(replace(GOOD, messages=(ASK, RESULT, CALL, ANSWER)))
    assert refused.value.code == "E203"


@pytest.mark.parametrize("length", range(1, 6))
def test_a_dialog_is_questions_each_with_calls_and_their_results_and_an_answer(length: int) -> None:
    """All orders of a system turn, questions, answers, calls and results."""
    for letters in map("".join, product(MESSAGES, repeat=length)):
        number, messages = 0, []
        for letter in letters:
            number += letter == "c"
            message = MESSAGES[letter]
            calls = tuple(replace(call, id=f"call_{number}") for call in message.calls)
            call_id = f"call_{number}" if message.call_id else ""
            messages.append(replace(message, calls=calls, call_id=call_id))
        try:
            validate(Record(messages=tuple(messages), tools=(CLOCK,)))
        except RowError as refused:
            found = refused.code
        else:
            found = ""
        is_dialog = re.fullmatch("s?(u(ct)*a)*u(ct)*(a|c)", letters)
        assert (found == "") == bool(is_dialog), (letters, found)
        assert found in ("", "E201", "E203", "E204", "E205"), (letters, found)


@pytest.mark.parametrize("place", ["question", "argument", "tool", "meta"])
def test_half_a_surrogate_pair_is_refused_wherever_it_stands(place: str) -> None:
    half = "x\ud83d"
    call = Call("weather", {"city": half if place == "argument" else "Oslo"}, "a")
    record = Record(
        messages=(
            Message("user", half if place == "question" else "Wet?"),
            Message("assistant", "", (call,)),
        ),
        tools=(Tool("weather", half if place == "tool" else "", CITY),),
        meta={"note": half} if place == "meta" else {},
    )
    with pytest.raises(RowError) as refused:
        check_dialog(record)
    assert (refused.value.code, refused.value.at) == ("E113", "\\ud83d")
