"""Edits of the correct turn: exactly one kind of mistake, the same for the same seed."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples
from support.unknown_arguments import RECORD

from agentlite.core.json_schema import fits
from agentlite.core.records import Call, Gold, GoldCall, Message, Parsed, Record, Tool
from agentlite.scoring.gold_edits import EDITS, REFUSAL, EditStep, applies, edited_turns, elsewhere
from agentlite.scoring.metrics.wrong_answers import WrongKind, wrong_kind

TYPES: dict[str, list[Any]] = {
    "string": ["Oslo", "Rome, Italy", "a b c", "北京"],
    "integer": [2, 23, 1500],
    "number": [0.05, 2.5],
    "boolean": [True, False],
    "array": [["bed", "cot"], []],
    "object": [{"low": 1, "high": 9}],
}
OTHER = Tool("other", "", {"type": "object", "properties": {"city": {"type": "string"}}})


def tool_of(number: int, types: dict[str, str], required: list[str]) -> Tool:
    properties = {name: {"type": kind} for name, kind in types.items()}
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(f"tool_{number}", "", schema)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A dialog whose last turn is asked: one call, several or none, arguments that are required,
    asked for or free.
    """
    tools, calls = [OTHER], []
    for number in range(draw(st.integers(0, 2))):
        names = st.sampled_from(["city", "b", "c"])
        types = draw(st.dictionaries(names, st.sampled_from([*TYPES]), max_size=3))
        required = sorted(draw(st.sets(st.sampled_from([*types])))) if types else []
        tools.append(tool_of(number, {**types, "free": "integer"}, required))
        values = {name: draw(st.sampled_from(TYPES[kind])) for name, kind in types.items()}
        calls.append(Call(f"tool_{number}", values, f"call0000{number}"))
    answer = Message("assistant", "" if calls else "It is fine.", tuple(calls))
    asked = Message("user", "Is it wet in Bonn, at 7 or 8.5 degrees?")
    return Record(messages=(asked, answer), tools=tuple(tools))


def step(record: Record, seed: int = 0, others: tuple[Record, ...] = ()) -> EditStep:
    known = elsewhere([record, *others])
    return EditStep(record, len(record.messages) - 1, known, Random(seed))


ELSEWHERE = Record(
    messages=(
        Message("user", "And in Lima?"),
        Message("assistant", calls=(Call("tool_0", {"city": "Lima", "b": 4, "c": "x"}),)),
        Message("tool", "dry"),
        Message("assistant", "It is dry in Lima."),
    ),
    tools=(OTHER,),
)


def test_of_other_records_only_what_they_say_themselves_is_taken() -> None:
    """No stand-in for what nobody knows, no empty text, and no words where no tool is on offer."""
    user = Message("user", "And in Lima?")
    of_none = [
        RECORD,
        Record(
            messages=(user, Message("assistant", "?")), tools=(OTHER,), gold={1: Gold(known=False)}
        ),
        Record(messages=(user, Message("assistant", " ")), tools=(OTHER,)),
        Record(messages=(user, Message("assistant", "Hello!"))),
    ]
    known = elsewhere([*of_none, ELSEWHERE, ELSEWHERE])
    assert known.answers == ["Yes.", "It is dry in Lima."]
    (call,) = ELSEWHERE.messages[1].calls
    assert known.arguments == {call.name: [call.arguments]}
    assert known.values == {
        (tool, name): [value] for name, value in call.arguments.items() for tool in (call.name, "")
    }


@settings(max_examples=examples(60))
@given(records(), st.sampled_from([*EDITS]), st.integers(0, 9))
def test_an_edit_is_wrong_in_the_one_way_that_was_asked_for(
    record: Record, kind: WrongKind, seed: int
) -> None:
    found = list(edited_turns(kind, step(record, seed, (ELSEWHERE,))))
    assert found == list(edited_turns(kind, step(record, seed, (ELSEWHERE,))))
    gold = record.expected(1)
    for message in found:
        assert wrong_kind(Parsed(message.content, message.calls), gold, record.tools) == kind
        assert message.role == "assistant" and message != record.messages[1]
        changed = [call for call in message.calls if call not in record.messages[1].calls]
        assert len(changed) <= 1  # every other call stays as it is


@settings(max_examples=examples(60))
@given(records(), st.integers(0, 9))
def test_what_a_turn_has_can_be_left_out_retyped_or_changed(record: Record, seed: int) -> None:
    """Which edits are possible follows from what is there to be edited."""
    calls = record.messages[1].calls
    values = [value for call in calls for value in call.arguments.values()]
    required = [name for call in calls for name in tool_named(record, call).parameters["required"]]
    possible = {
        "unwanted_call": not calls,
        "no_call": bool(calls),
        "wrong_tool": bool(calls),
        "number_of_calls": bool(calls),
        "missing_required": bool(required),
        "missing_optional": len(values) > len(required),
        "extra_parameter": bool(calls),
        "wrong_type": bool(values),
        "other_text": any(isinstance(value, str) for value in values),
        "other_value": any(not isinstance(one, str) and one != [] for one in values),
    }
    assert possible.keys() == EDITS.keys()
    for kind, is_possible in possible.items():
        found = next(edited_turns(kind, step(record, seed, (ELSEWHERE,))), None)
        if kind == "other_value" and [] in values:
            continue  # another list may be taken for an empty one
        assert (found is not None) == is_possible, kind


def tool_named(record: Record, call: Call) -> Tool:
    return next(tool for tool in record.tools if tool.name == call.name)


CITY = tool_of(0, {"city": "string", "days": "integer", "unit": "string"}, ["city"])
CITY.parameters["properties"]["unit"]["enum"] = ["C", "F"]
RIGHT = Call("tool_0", {"city": "Oslo", "days": 2, "unit": "C"}, "a")
ASKED = Record(
    messages=(
        Message("user", "Is it wet in Oslo or in Bonn in 2 days, or in 7?"),
        Message("assistant", "I look.", (RIGHT,)),
    ),
    tools=(CITY, OTHER),
)


def arguments(kind: WrongKind, record: Record = ASKED) -> list[dict[str, Any]]:
    return [message.calls[0].arguments for message in edited_turns(kind, step(record))]


def test_other_values_are_of_the_dialog_the_schema_the_rows_or_the_value_in_another_unit() -> None:
    texts = arguments("other_text")
    assert {**RIGHT.arguments, "unit": "F"} in texts
    assert {**RIGHT.arguments, "city": "Bonn"} in texts
    assert all(fits(one, CITY.parameters) for one in texts)
    numbers = [one["days"] for one in arguments("other_value")]
    assert {7, 200, 14} <= {*numbers} and all(isinstance(one, int) for one in numbers)
    found = list(edited_turns("other_text", step(ASKED, 0, (ELSEWHERE,))))
    assert "Lima" in {message.calls[0].arguments["city"] for message in found}


def test_the_other_tool_takes_the_arguments_that_it_has_too() -> None:
    [message, *_] = edited_turns("wrong_tool", step(ASKED))
    assert message.calls == (Call("other", {"city": "Oslo"}, "a"),) and message.content == "I look."


@pytest.mark.parametrize("place", range(3))
def test_the_other_tool_is_the_one_that_is_most_like_the_expected_one(place: int) -> None:
    far = Tool("send", "", {"type": "object", "properties": {"x": {"type": "string"}}})
    near = replace(CITY, name="tool_9")
    more = {**CITY.parameters["properties"], **{name: {"type": "string"} for name in "abcdef"}}
    wide = Tool("tool_8", "", {"type": "object", "properties": more})
    tools = [wide, OTHER, far]
    tools.insert(place, near)
    record = replace(ASKED, tools=(CITY, *tools))
    found = [message.calls[0].name for message in edited_turns("wrong_tool", step(record))]
    assert [*dict.fromkeys(found)] == ["tool_9", "tool_8", "other", "send"]


def test_a_call_that_is_not_wanted_fits_its_tool() -> None:
    """Neither a call of it elsewhere that does not fit, nor one that nothing can fill, is made."""
    words = (Message("user", "Is it wet in Bonn?"), Message("assistant", "I cannot know."))
    needs = {"type": "object", "properties": {"z": {}}, "required": ["z"]}
    empty = Tool("empty", "", {"type": "object", "properties": {"x": needs}, "required": ["x"]})
    record = Record(messages=words, tools=(CITY, empty))
    found = [one.calls[0] for one in edited_turns("unwanted_call", step(record, 0, (ELSEWHERE,)))]
    assert {call.name for call in found} == {"tool_0"}
    assert all(fits(call.arguments, CITY.parameters) for call in found)


def test_arguments_of_a_call_elsewhere_are_taken_unless_some_of_the_right_ones_can_be_kept() -> (
    None
):
    (known,) = (call.arguments for call in ELSEWHERE.messages[1].calls)
    tool = tool_of(0, {"city": "string", "b": "integer", "c": "string"}, ["b"])
    words = (Message("user", "Is it wet in Bonn?"), Message("assistant", "I cannot know."))
    unwanted = edited_turns(
        "unwanted_call", step(Record(messages=words, tools=(tool,)), 0, (ELSEWHERE,))
    )
    assert known in [message.calls[0].arguments for message in unwanted]
    for own in ({"city": "Oslo"}, {"city": "Oslo", "b": 3}, {"place": "Oslo"}):
        right = Message("assistant", calls=(Call("other", own, "a"),))
        asked = Message("user", "Is it wet in Bonn?")
        record = Record(messages=(asked, right), tools=(OTHER, tool))
        found = edited_turns("wrong_tool", step(record, 0, (ELSEWHERE,)))
        made = [message.calls[0].arguments for message in found]
        kept = {name: value for name, value in own.items() if name != "place"}
        assert made and all(kept.items() <= one.items() for one in made)
        assert (known in made) == (not kept)


@pytest.mark.parametrize(
    ("kind", "value"), [("integer", 7), ("number", 8.5), ("string", "Bonn"), ("boolean", False)]
)
def test_what_a_parameter_lacks_is_taken_from_the_dialog_before_any_stand_in(
    kind: str, value: Any
) -> None:
    """And before the dialog from its schema, or a parameter of that name of any tool elsewhere."""
    earlier = (
        Message("user", "And in Bonn, at 7 or 8.5 degrees?"),
        Message("assistant", calls=(Call("other", {"city": "Bonn", "dry": False}, "a"),)),
        Message("tool", "dry", call_id="a"),
        Message("assistant", "It is dry."),
        Message("user", "Thank you."),
        Message("assistant", "You are welcome."),
    )
    lacks = {"type": "object", "properties": {"x": {"type": kind}}, "required": ["x"]}

    def made(schema: dict[str, Any], *others: Record) -> list[Any]:
        tool = Tool("needs", "", {**lacks, "properties": {"x": schema}})
        record = Record(messages=earlier, tools=(OTHER, tool))
        calls = [one.calls[0] for one in edited_turns("unwanted_call", step(record, 0, others))]
        return [call.arguments["x"] for call in calls if call.name == "needs"]

    among = {"integer": [7], "number": [7, 8.5], "string": ["Bonn"], "boolean": [False]}[kind]
    assert value in among and all(one in among for one in made({"type": kind}))
    assert made({"type": kind, "enum": [value]}) == [value]
    here = {"integer": 3, "number": 2.25, "string": "Rome", "boolean": True}[kind]
    answer = Message("assistant", calls=(Call("tool_5", {"x": here, "y": 9, "z": "no"}, "a"),))
    other = Record(messages=(Message("user", "Now?"), answer), tools=(tool_of(5, {"x": kind}, []),))
    assert made({"type": kind}, other) == [here]


def test_an_extra_parameter_may_have_its_default() -> None:
    schema = {"city": {"type": "string"}, "limit": {"type": "integer", "default": 77}}
    tool = Tool("tool_0", "", {"type": "object", "properties": schema})
    answer = Message("assistant", "", (Call("tool_0", {"city": "Oslo"}, "a"),))
    record = Record(messages=(Message("user", "Wet?"), answer), tools=(tool,))
    assert 77 in [one["limit"] for one in arguments("extra_parameter", record)]


@pytest.mark.parametrize(
    ("turn", "known"), [(1, {11, 22}), (3, {11, 22, 33, 44}), (5, {*range(11, 67, 11)})]
)
def test_a_value_is_taken_from_all_that_was_said_until_now_and_from_nothing_later(
    turn: int, known: set[int]
) -> None:
    said = [
        message
        for n in (1, 3, 5)
        for message in (
            Message("user", f"And {11 * n}?"),
            Message("assistant", "88!", (Call("tool_0", {"city": "", "days": 11 * n + 11}, "a"),)),
        )
    ]
    record = Record(messages=tuple(said), tools=(CITY,))
    one = EditStep(record, turn, elsewhere([]), Random(0))
    days = {message.calls[0].arguments["days"] for message in edited_turns("other_value", one)}
    own = record.messages[turn].calls[0].arguments["days"]
    assert days & {*range(11, 67, 11)} == known - {own}
    assert 88 not in days  # the user has not said it


def edited_values(kind: WrongKind, schema: dict[str, Any], value: Any) -> list[Any]:
    tool = Tool("tool_0", "", {"type": "object", "properties": {"x": schema}})
    answer = Message("assistant", "", (Call("tool_0", {"x": value}, "a"),))
    record = Record(messages=(Message("user", "Wet?"), answer), tools=(tool,))
    return [one["x"] for one in arguments(kind, record)]


def test_a_list_is_retyped_as_a_text_of_its_elements() -> None:
    value = ["bed", "Bücher", {"a": "ü", "b": None}]
    found = edited_values("wrong_type", {"type": "array"}, value)
    assert found == ['bed, Bücher, {"a": "ü", "b": null}', {"value": value}]


def test_one_value_of_an_object_is_changed_and_the_others_stay() -> None:
    found = edited_values("other_value", {"type": "object"}, {"low": 1, "name": "a b"})
    assert {"low": 2, "name": "a b"} in found and {"low": 1, "name": "a"} in found
    assert all(one.keys() == {"low", "name"} for one in found)


def test_a_number_that_no_float_can_hold_is_left_as_it_is() -> None:
    assert edited_values("other_value", {"type": "integer"}, 10**400) == []
    assert 10**14 + 1 in edited_values("other_value", {"type": "integer"}, 10**14)


def test_another_seed_takes_the_words_of_another_answer() -> None:
    more = [
        replace(ELSEWHERE, messages=(*ELSEWHERE.messages[:3], Message("assistant", f"Dry {n}.")))
        for n in range(9)
    ]
    taken = [
        tuple(one.content for one in edited_turns("no_call", step(ASKED, seed, tuple(more))))
        for seed in range(6)
    ]
    assert len({*taken}) > 3
    assert all(len(texts) == 4 and texts[-1] == REFUSAL for texts in taken)


def test_no_call_takes_the_words_of_another_answer() -> None:
    texts = [one.content for one in edited_turns("no_call", step(ASKED, 0, (ELSEWHERE,)))]
    assert texts == ["It is dry in Lima.", REFUSAL]


@pytest.mark.parametrize("call_id", ["", "1", "call_0", "call_1", "000000001", "000000002"])
def test_a_call_that_is_made_twice_has_two_ids_of_one_length(call_id: str) -> None:
    call = Call("tool_0", RIGHT.arguments, call_id)
    record = Record(messages=(ASKED.messages[0], Message("assistant", "", (call,))), tools=(CITY,))
    [message, *_] = edited_turns("number_of_calls", step(record))
    assert [one.arguments for one in message.calls] == [RIGHT.arguments] * 2
    ids = [one.id for one in message.calls]
    assert len({*ids}) == (2 if call_id else 1) and {*map(len, ids)} == {len(call_id)}


def test_any_one_of_several_calls_is_left_out() -> None:
    calls = tuple(Call("tool_0", {"city": city}, city) for city in ("Oslo", "Rome", "Bonn"))
    record = Record(messages=(ASKED.messages[0], Message("assistant", "", calls)), tools=(CITY,))
    found = [message.calls for message in edited_turns("number_of_calls", step(record))]
    assert sorted([call.id for call in left] for left in found) == [
        ["Oslo", "Bonn"],
        ["Oslo", "Rome"],
        ["Rome", "Bonn"],
    ]


def test_beside_a_right_value_that_breaks_the_schema_others_are_changed_all_the_same() -> None:
    values = {"city": "Oslo", "days": 2, "unit": "K"}
    gold = Gold((GoldCall("tool_0", {name: [value] for name, value in values.items()}),))
    answer = Message("assistant", "", (Call("tool_0", values, "a"),))
    record = Record(messages=(ASKED.messages[0], answer), tools=ASKED.tools, gold={1: gold})
    assert {**values, "city": "Bonn"} in arguments("other_text", record)
    # a value of another type is another kind of mistake
    number = Message("assistant", calls=(Call("tool_0", {"city": 5, "days": "2"}),))
    other = Record(messages=(ASKED.messages[0], number), tools=ASKED.tools)
    for kind in ("other_text", "other_value"):
        found = list(edited_turns(kind, step(record, 0, (other,))))
        assert found and all(one.calls[0].arguments["city"] != 5 for one in found)
        assert all(one.calls[0].arguments["days"] != "2" for one in found)


@pytest.mark.parametrize("kind", EDITS)
def test_an_unwanted_call_is_of_a_turn_without_one_and_any_other_mistake_of_a_call(
    kind: WrongKind,
) -> None:
    assert applies(kind, ASKED.messages[1]) == (kind != "unwanted_call")
    assert applies(kind, Message("assistant", "Yes.")) == (kind == "unwanted_call")


def test_a_value_that_the_gold_accepts_as_well_is_never_taken() -> None:
    city = ["Oslo", "Bonn", "Oslo or"]
    gold = Gold((GoldCall("tool_0", {"city": city, "days": [2, ""], "unit": ["C", "F"]}),))
    record = Record(messages=ASKED.messages, tools=ASKED.tools, gold={1: gold})
    assert not {one["city"] for one in arguments("other_text", record)} & {"Oslo", "Bonn"}
    assert all(one["unit"] == "C" for one in arguments("other_text", record))
    left_out = [
        RIGHT.arguments.keys() - one.keys() for one in arguments("missing_optional", record)
    ]
    assert left_out == [{"unit"}]  # the days may be left out


@pytest.mark.parametrize("kind", EDITS)
def test_nothing_is_edited_where_no_tool_is_on_offer(kind: WrongKind) -> None:
    words = Record(messages=(Message("user", "Hello"), Message("assistant", "Hello!")))
    assert not list(edited_turns(kind, step(words)))
