"""agentlite.data.curation.optional_parameters: questions give what their calls have, and gold holds
for them.
"""

import importlib.util
import io
import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.samples import DATA

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import RowError
from agentlite.core.json_schema import fits, schema_at
from agentlite.core.records import (
    ANY_ARGUMENTS,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Tool,
    to_row,
)
from agentlite.data.augment import kinds
from agentlite.data.curation.hard_negatives import with_masked_names
from agentlite.data.curation.optional_parameters import with_optional_wanted, with_required_relaxed
from agentlite.data.curation.validate import validate
from agentlite.data.curation.variants import variants_of
from agentlite.data.formats import read_raw, to_record
from agentlite.rendering import choose, render, renderer
from agentlite.rendering.template import Template
from agentlite.scoring.metrics.tool_calls import calls_problem

OPTIONAL: dict[str, dict[str, Any]] = {
    "unit": {"type": "string", "enum": ["metric", "imperial"], "default": "metric"},
    "mode": {"type": "string", "description": "Either 'static' or 'dynamic'. Default is 'static'."},
    "include_wind": {"type": "boolean", "description": "Whether to add it. Defaults to false."},
    "hourly": {"type": "boolean", "default": True},
    "limit": {"type": "integer", "description": "How many. Default is 5."},
    "scale": {"type": "number"},
    "year": {"type": "integer", "default": 2023},
    "fields": {"type": "array", "items": {"type": "string", "enum": ["rain", "snow", "fog"]}},
    "kinds": {"type": "array", "items": {"type": "string"}, "description": "'gale', 'breeze'"},
}
NEVER_WANTED: dict[str, dict[str, Any]] = {
    "day": {"type": "string", "description": "In the form 'YYYY-MM-DD'."},
    "nested": {"type": "object"},
    "free": {"type": "string", "description": "Any text."},
    "one": {"type": "string", "enum": ["only"], "default": "only"},
    "天": {"type": "boolean"},
}


def record_of(
    optional: dict[str, Any], question: str = "Is it wet in Oslo?", **accepted: list[Any]
) -> Record:
    """A question about Oslo, of a tool with these optional parameters."""
    properties = {"city": {"type": "string"}, **optional}
    tool = Tool(
        "weather", "Tells it.", {"type": "object", "properties": properties, "required": ["city"]}
    )
    messages = (
        Message("user", question),
        Message("assistant", "", (Call("weather", {"city": "Oslo"}, "call_0"),)),
        Message("tool", "4 mm", call_id="call_0"),
        Message("assistant", "It is."),
    )
    gold = {1: Gold((GoldCall("weather", {"city": ["Oslo"], **accepted}),))} if accepted else {}
    return Record(messages=messages, tools=(tool,), gold=gold, task="tool_selection", split="train")


def made(record: Record | str) -> Record:
    assert isinstance(record, Record), record
    return record


def spoken(value: Any) -> str:
    return " and ".join(value) if isinstance(value, list) else str(value)


@given(
    st.sets(st.sampled_from([*OPTIONAL]), min_size=1), st.integers(0, 99), st.sampled_from("?.! ")
)
def test_the_question_gives_what_the_call_has_besides(names: set[str], seed: int, end: str) -> None:
    parent = record_of({name: OPTIONAL[name] for name in sorted(names)}, f"Is Oslo wet{end}")
    record = made(with_optional_wanted(parent, seed))
    validate(record)
    assert (record.parent, record.messages[2:]) == (parent.id, ())
    assert record.tools == parent.tools
    (call,), question = record.messages[1].calls, record.messages[0].content
    added = {name: value for name, value in call.arguments.items() if name != "city"}
    assert 1 <= len(added) <= 2 and added.keys() <= names
    assert question.startswith("Is Oslo wet") and question[-1] in ".?!"
    for name, value in added.items():
        inner = OPTIONAL[name]
        assert fits(value, inner)
        assert value != inner.get("default") and value not in ("static", 5)
        assert name.split("_")[-1] in question.lower()
        if not isinstance(value, bool):
            assert spoken(value).lower() in question.lower()
    assert not calls_problem((call,), record.expected(1), record.tools)
    for name in added:
        fewer = {key: value for key, value in call.arguments.items() if key != name}
        assert calls_problem((replace(call, arguments=fewer),), record.expected(1), record.tools)
    order = [*schema_at(record.tools[0].parameters, "properties")]
    assert [*call.arguments] == sorted(call.arguments, key=order.index)
    assert with_optional_wanted(parent, seed) == record


def test_every_parameter_is_wanted_in_turn_and_sometimes_two() -> None:
    wanted = [
        {*made(with_optional_wanted(record_of(OPTIONAL), seed)).messages[1].calls[0].arguments}
        for seed in range(100)
    ]
    assert set().union(*wanted) == {"city", *OPTIONAL}
    assert {len(names) for names in wanted} == {2, 3}


@pytest.mark.parametrize("name", ["include_wind", "hourly", "use_metric", "verbose"])
@pytest.mark.parametrize("usual", [True, False])
def test_a_switch_is_asked_for_where_the_call_turns_it_on_and_declined_where_off(
    name: str, usual: bool
) -> None:
    declined = re.compile(r"\b(without|no|not|out)\b", re.IGNORECASE)
    for seed in range(60):
        parent = record_of({name: {"type": "boolean", "default": usual}}, "Is Oslo wet?")
        record = made(with_optional_wanted(parent, seed))
        (call,), question = record.messages[1].calls, record.messages[0].content
        assert call.arguments[name] is not usual
        assert bool(declined.search(question)) is usual, question


@pytest.mark.parametrize("name", NEVER_WANTED)
def test_a_value_that_nobody_can_know_is_not_wanted(name: str) -> None:
    for seed in range(20):
        reason = with_optional_wanted(record_of({name: NEVER_WANTED[name]}), seed)
        assert reason == "no optional parameter can be wanted"


@pytest.mark.parametrize(
    "question",
    ["Which units does Oslo use?", "Is it wet in Oslo, metric?", "Imperial rain of Oslo, please."],
)
def test_what_the_question_may_speak_of_is_not_wanted_again(question: str) -> None:
    record = record_of({"unit": OPTIONAL["unit"]}, question)
    assert with_optional_wanted(record, 0) == "no optional parameter can be wanted"


def test_gold_that_needs_a_value_and_gold_that_accepts_one_keep_it() -> None:
    needed = record_of({"unit": OPTIONAL["unit"]}, unit=["metric"])
    assert with_optional_wanted(needed, 0) == "no optional parameter can be wanted"
    accepts = record_of(
        {name: OPTIONAL[name] for name in ("unit", "limit")}, unit=["imperial", ""], limit=["", 5]
    )
    for seed in range(20):
        (call,) = made(with_optional_wanted(accepts, seed)).expected(1).calls
        assert call.arguments and call.arguments.keys() == {"city", "unit", "limit"}
        # the gold accepts one of the two units, and the other is the default
        assert call.arguments["unit"] == ["imperial", ""]
        (limit,) = call.arguments["limit"]
        assert limit > 5


RAINY = record_of(OPTIONAL)
CALL = RAINY.messages[1].calls[0]
NOT_MADE = {
    "no call is expected": replace(RAINY, gold={1: Gold()}),
    "not one call with its arguments": replace(
        RAINY, gold={1: Gold((GoldCall("weather", ANY_ARGUMENTS),))}
    ),
    "no question comes before the call": replace(
        RAINY, messages=(Message("user", "Hi"), Message("tool", "x"), *RAINY.messages[1:])
    ),
    "the question is not in Latin script": record_of(OPTIONAL, "奥斯陆下雨吗？"),
}


@pytest.mark.parametrize("reason", NOT_MADE)
def test_why_nothing_is_wanted(reason: str) -> None:
    assert with_optional_wanted(NOT_MADE[reason], 0) == reason


def test_two_calls_are_not_one() -> None:
    turn = replace(RAINY.messages[1], calls=(CALL, replace(CALL, id="call_1")))
    record = replace(RAINY, messages=(RAINY.messages[0], turn))
    assert with_optional_wanted(record, 0) == "not one call with its arguments"


@given(st.integers(0, 99))
def test_what_was_required_and_given_may_be_left_out_by_the_schema_alone(seed: int) -> None:
    tool = Tool(
        "book",
        "Books.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "nights": {"type": "integer", "description": "几晚"},
                "room": {"type": "string", "enum": ["single", "double"]},
                "smoke": {"type": "boolean"},
                "late": {"type": "boolean", "description": "Default is true."},
            },
            "required": ["city", "nights", "room", "smoke"],
        },
    )
    arguments = {"city": "Oslo", "nights": 5, "room": "double", "smoke": False}
    parent = Record(
        messages=(
            Message("user", "Oslo, 5 nights, a double room, no smoke."),
            Message("assistant", "", (Call("book", arguments, "call_0"),)),
        ),
        tools=(tool, Tool("other", "", {"type": "object", "properties": {}})),
        split="train",
    )
    record = made(with_required_relaxed(parent, seed))
    validate(record)
    assert (record.parent, record.messages, record.gold) == (parent.id, parent.messages, {})
    assert record.tools[1:] == parent.tools[1:]
    before, after = tool.parameters, record.tools[0].parameters
    relaxed = {*before["required"]} - {*after.get("required", ())}
    assert relaxed and after.get("required") != []
    assert [*after["properties"]] == [*before["properties"]]
    for name, inner in after["properties"].items():
        was = before["properties"][name]
        if name not in relaxed:
            assert inner == was
            continue
        added = inner.get("description", "").removeprefix(was.get("description", ""))
        assert {**inner, "description": ""} == {**was, "description": ""}
        assert str(arguments[name]) not in added.replace("'", "").split()
    assert not calls_problem(record.messages[1].calls, record.expected(1), record.tools)


DEFAULTED = re.compile(r"[Dd]efaults? (?:is|to) '?([^' ]*?)'?(?: if not given)?\.$")


@pytest.mark.parametrize(
    ("value", "inner"),
    [
        ("metric", {"type": "string", "enum": ["metric", "imperial"]}),
        (True, {"type": "boolean"}),
        (0, {"type": "integer"}),
        (10, {"type": "integer"}),
        (100, {"type": "number"}),
        (1.5, {"type": "number"}),
    ],
)
def test_no_description_calls_the_value_of_the_call_its_default(
    value: Any, inner: dict[str, Any]
) -> None:
    """A model that left it out would be right, and the call would be wrong."""
    schema = {"type": "object", "properties": {"given": inner}, "required": ["given"]}
    turn = Message("assistant", "", (Call("f", {"given": value}, "call_0"),))
    parent = Record(messages=(Message("user", "Do it."), turn), tools=(Tool("f", "", schema),))
    defaults = list[str]()
    for seed in range(100):
        (tool,) = made(with_required_relaxed(parent, seed)).tools
        description = tool.parameters["properties"]["given"].get("description", "")
        if found := DEFAULTED.search(description):
            defaults.append(found[1])
    assert len(defaults) > 20
    assert str(value) not in defaults


@pytest.mark.parametrize(
    "make",
    [with_optional_wanted, with_required_relaxed, with_masked_names],
    ids=lambda f: f.__name__,
)
def test_another_seed_makes_another_variant_and_the_same_one_the_same(
    make: Callable[[Record, int], Record | str],
) -> None:
    parents = [record_of(OPTIONAL, f"Is it wet in Oslo at {hour}?") for hour in range(8)]
    by_seed = [[made(make(parent, seed)).id for parent in parents] for seed in (0, 1, 0)]
    assert by_seed[0] == by_seed[2] != by_seed[1]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (replace(RAINY, gold={1: Gold()}, messages=RAINY.messages[:2]), "no call is expected"),
        (
            replace(RAINY, tools=(replace(RAINY.tools[0], parameters={"type": "object"}),)),
            "no required parameter can be optional",
        ),
        (
            replace(RAINY, gold={1: Gold((GoldCall("weather", ANY_ARGUMENTS),))}),
            "no required parameter can be optional",
        ),
        (
            replace(RAINY, gold={1: Gold((GoldCall("weather", {"city": ["Oslo", ""]}),))}),
            "no required parameter can be optional",
        ),
    ],
    ids=["no call", "none required", "unknown arguments", "accepted without"],
)
def test_why_nothing_is_relaxed(record: Record, reason: str) -> None:
    assert with_required_relaxed(record, 0) == reason


@pytest.mark.skipif(not importlib.util.find_spec("bfcl_eval"), reason="bfcl-eval is not installed")
@pytest.mark.parametrize("category", ["live_simple", "multiple", "parallel"])
def test_variants_of_bfcl_are_valid_rendered_and_right(smollm2: Template, category: str) -> None:
    protocol = choose("hermes", smollm2).protocols["hermes"]
    rows = list(read_raw(f"bfcl:{category}", io.BytesIO()))
    random.Random(0).shuffle(rows)
    parents = list[Record]()
    for raw in rows[:60]:
        with suppress(RowError):
            parents.append(to_record(raw.value))
    settings = PrepSettings(want_optional=1, relax_required=1)
    variants = variants_of(parents, kinds(parents, settings), 0)
    assert [counter.total() for counter in variants.counts.values()] == [len(parents)] * 2
    assert len(variants.records) >= 20
    for record in variants.records:
        turn = record.turns[-1]
        assert not calls_problem(record.messages[turn].calls, record.expected(turn), record.tools)
        assert validate(to_record(to_row(record))) is None
        renderer.check_reading(record, render(record, protocol, smollm2), protocol, smollm2)


def test_rows_of_every_format_have_a_variant_or_a_reason() -> None:
    for path in sorted((DATA / "formats").glob("*.jsonl")):
        for raw in read_raw(str(path), io.BytesIO()):
            with suppress(RowError):
                record = to_record(raw.value)
                validate(record)
                for one in (with_optional_wanted(record, 1), with_required_relaxed(record, 1)):
                    assert isinstance(one, str) or one.parent == record.id
