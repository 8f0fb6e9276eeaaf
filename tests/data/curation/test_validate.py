"""Calls whose arguments nobody knows, and what a refusal names; the rest is in test_curation.py."""

import re
from itertools import product

import pytest
from msgspec.structs import replace

from agentlite.core.errors import RowError
from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Message, Record, Tool
from agentlite.data.curation.validate import check_dialog, validate

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER, CLOCK = Tool("weather", "", CITY), Tool("clock")
ASK, ANSWER = Message("user", "Is it wet?"), Message("assistant", "Yes.")


def calling(*calls: Call, gold: tuple[GoldCall, ...] = ()) -> Record:
    messages = (ASK, Message("assistant", "", calls))
    return Record(messages=messages, tools=(WEATHER, CLOCK), gold={1: Gold(gold)} if gold else {})


def code(record: Record) -> str:
    with pytest.raises(RowError) as refused:
        validate(record)
    return refused.value.code


def test_only_arguments_that_are_known_are_held_to_the_schema() -> None:
    unknown, known = Call("weather", {}, "a"), Call("weather", {"city": "Oslo"}, "b")
    any_gold = GoldCall("weather", ANY_ARGUMENTS)
    validate(calling(unknown, gold=(any_gold,)))
    validate(calling(unknown, known, gold=(any_gold, any_gold)))
    assert code(calling(unknown)) == "E210"
    assert code(calling(unknown, gold=(GoldCall("weather", {"city": ["Oslo"]}),))) == "E210"
    wrong = Call("clock", {"zone": "x"}, "c")
    assert code(calling(unknown, wrong, gold=(any_gold, GoldCall("clock", {})))) == "E210"


MESSAGES = {
    "s": Message("system", "Be brief."),
    "u": ASK,
    "a": ANSWER,
    "c": Message("assistant", "", (Call("clock", {}, "one"),)),
    "t": Message("tool", "4", call_id="one"),
}


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


def test_the_call_without_a_result_and_the_message_that_shows_it_are_named() -> None:
    calls = (Call("clock", {}, "a"), Call("weather", {"city": "Oslo"}, "b"))
    messages = (ASK, Message("assistant", "", calls), Message("tool", "4", call_id="a"), ANSWER)
    with pytest.raises(RowError) as refused:
        check_dialog(Record(messages=messages, tools=(WEATHER, CLOCK)))
    assert (refused.value.code, refused.value.at) == ("E204", "b")
    assert "weather" in refused.value.reason and "message 4" in refused.value.reason
    assert '"tool_call_id": "b"' in refused.value.hint


def test_an_answer_beside_the_messages_is_pointed_out() -> None:
    beside = {"extra": {"response": "Yes."}}
    with pytest.raises(RowError) as refused:
        check_dialog(Record(messages=(ASK, ANSWER, ASK), meta=beside))
    assert (refused.value.code, refused.value.at) == ("E203", "response")


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
