"""agentlite.data.augment: variants that are valid, say their parent and teach
nothing wrong.
"""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.samples import TIME, WEATHER

from agentlite.config.settings import PrepSettings, default
from agentlite.core.json_schema import fits
from agentlite.core.records import Call, Gold, GoldCall, Message, Record, Tool
from agentlite.data.augment import (
    hard_negatives,
    with_masked_names,
    without_right_tool,
)
from agentlite.data.curation.traits import expected_tools
from agentlite.data.curation.validate import validate
from agentlite.data.formats.sage import OPEN
from agentlite.rendering import choose, render, renderer
from agentlite.rendering.template import Template
from agentlite.scoring.metrics.tool_calls import calls_problem

RATE = Tool(
    "exchange_rate",
    "Converts money from one currency to another.",
    {
        "type": "object",
        "properties": {
            "pair": {"type": "object", "properties": {"from": {"type": "string"}}},
            "amount": {"type": "number"},
        },
        "required": ["amount"],
    },
)
LIGHT = Tool(
    "turn_on_light",
    "Switches a lamp on.",
    {"type": "object", "properties": {"room": {"type": "string"}}},
)
tool_lists = st.permutations([WEATHER, TIME, RATE, LIGHT]).flatmap(
    lambda tools: st.integers(1, 4).map(lambda count: tuple(tools[:count]))
)
NO_CALL_ANSWER, NO_CALL_ANSWER_ZH = (
    default("prep", name) for name in ("no_call_answer", "no_call_answer_zh")
)


def asking(query: str, tools: tuple[Tool, ...], **arguments: Any) -> Record:
    """A question that is answered by the first tool."""
    messages = (
        Message("user", query),
        Message("assistant", "", (Call(tools[0].name, arguments, "call_0"),)),
        Message("tool", "4", call_id="call_0"),
        Message("assistant", "Four."),
    )
    return Record(messages=messages, tools=tools, task="tool_selection", split="train")


@st.composite
def records(draw: st.DrawFn) -> Record:
    tools = draw(tool_lists)
    arguments: dict[str, Any] = {"amount": 3, "pair": {"from": "EUR"}} if tools[0] is RATE else {}
    if draw(st.booleans()) and tools[0] is not RATE:
        arguments = {
            next(iter(tools[0].parameters["properties"])): draw(st.text('ab天"{<', max_size=5))
        }
    record = asking(draw(st.text("abc 天", min_size=1).filter(str.strip)), tools, **arguments)
    if draw(st.booleans()):
        accepted = {
            name: [{"from": ["EUR"]}] if name == "pair" else [value, ""]
            for name, value in arguments.items()
        }
        record = replace(record, gold={1: Gold((GoldCall(tools[0].name, accepted),))})
    record = replace(record, parent=draw(st.sampled_from(["", "whole"])))
    validate(record)
    return record


@given(st.lists(records(), max_size=6), st.integers())
def test_what_is_made_is_valid_and_fits_its_schemas_and_its_gold(
    given_records: list[Record], seed: int
) -> None:
    settings = PrepSettings(remove_tool=1, mask_names=1, seed=abs(seed))
    made, counts = hard_negatives(given_records, settings)
    parents = {record.id: record for record in given_records}
    assert sum(counter["made"] for counter in counts.values()) == len(made)
    assert all(counter.total() == len(given_records) for counter in counts.values())
    for record in made:
        validate(record)
        parent = parents[record.parent]
        assert record.id != parent.id
        assert record.messages[0] == parent.messages[0]
        schemas = {tool.name: tool.parameters for tool in record.tools}
        for turn in record.turns:
            assert all(
                fits(call.arguments, schemas[call.name]) for call in record.messages[turn].calls
            )
            assert not calls_problem(
                record.messages[turn].calls, record.expected(turn), record.tools
            )
        if record.meta["made"] == "right tool removed":
            assert not expected_tools(record) and record.tools
            assert not expected_tools(parent) & schemas.keys()
            assert record.messages[-1].content in (NO_CALL_ANSWER, NO_CALL_ANSWER_ZH)
            assert record.task == "timing_decision"


@given(records(), st.integers())
def test_masked_names_are_other_names_and_texts_are_untouched(record: Record, seed: int) -> None:
    masked = with_masked_names(record, seed)
    assert isinstance(masked, Record)
    assert not {tool.name for tool in masked.tools} & {tool.name for tool in record.tools}
    assert len({tool.name for tool in masked.tools}) == len(record.tools)
    assert [tool.description for tool in masked.tools] == [
        tool.description for tool in record.tools
    ]
    assert [(m.role, m.content, m.call_id) for m in masked.messages] == [
        (m.role, m.content, m.call_id) for m in record.messages
    ]
    for before, after in zip(record.tools, masked.tools, strict=True):
        assert not before.parameters["properties"].keys() & after.parameters["properties"].keys()
        assert [*before.parameters["properties"].values()] == [
            *after.parameters["properties"].values()
        ]
    (call,), (was,) = masked.messages[1].calls, record.messages[1].calls
    assert [*call.arguments.values()] == [*was.arguments.values()]


@given(records())
def test_what_is_made_is_rendered_and_reads_back(smollm2: Template, record: Record) -> None:
    protocol = choose("hermes", smollm2).protocols["hermes"]
    for made in hard_negatives([record], PrepSettings(remove_tool=1, mask_names=1))[0]:
        rows = render(made, protocol, smollm2)
        renderer.check_reading(made, rows, protocol, smollm2)


SEARCH = Tool(
    "web_search", "Finds pages.", {"type": "object", "properties": {"q": {"type": "string"}}}
)
FORECAST = Tool(
    "weather_forecast",
    "Next week.",
    {"type": "object", "properties": {"place": {"type": "string"}}},
)
SAME = Tool(
    "rain", "The weather of a city", {"type": "object", "properties": {"place": {"type": "string"}}}
)
STAYS = [
    (
        asking("Wet?", (WEATHER, TIME), city="Oslo"),
        "another tool could do it",
    ),  # takes all of its arguments
    (asking("Wet?", (WEATHER, SEARCH), city="Oslo"), "another tool could do it"),  # does much
    (
        asking("Wet?", (WEATHER, FORECAST), city="Oslo"),
        "another tool could do it",
    ),  # shares a word of the name
    (
        asking("Wet?", (WEATHER, SAME), city="Oslo"),
        "another tool could do it",
    ),  # is described alike
    (asking("Wet?", (WEATHER,), city="Oslo"), "no other tool on offer"),
    (replace(asking("Wet?", (WEATHER, LIGHT)), gold={1: Gold(), 3: Gold()}), "no call is expected"),
]


def test_no_right_tool_is_removed_where_another_might_do() -> None:
    for record, reason in STAYS:
        assert without_right_tool(record, (), "No.") == reason


@pytest.mark.parametrize("reason", ["a text names", "a schema names", "has a name only"])
def test_names_stay_where_one_of_the_tools_is_known_by_them(reason: str) -> None:
    schema = WEATHER.parameters
    tool = {
        "a text names": WEATHER,
        "a schema names": replace(
            WEATHER, parameters={**schema, "anyOf": [{"required": ["city"]}]}
        ),
        "has a name only": Tool(WEATHER.name, "", OPEN),
    }[reason]
    query = "Use get_weather for Oslo" if reason == "a text names" else "Wet?"
    record = asking(query, (tool,), city="Oslo")
    stays = with_masked_names(replace(record, tools=(RATE, tool)), 0)
    assert isinstance(stays, str) and reason in stays


# --- which records get a variant ---

RECORDS = [asking(f"Question {number}?", (WEATHER, LIGHT), city="Oslo") for number in range(60)]


def chosen(name: str, seed: int, share: float = 0.5) -> list[str]:
    """The ids of the records that get a variant, by the setting of its kind."""
    made, _ = hard_negatives(RECORDS, PrepSettings(**{"seed": seed, name: share}))
    return [record.parent for record in made]


def test_each_seed_and_each_kind_chooses_records_of_its_own() -> None:
    found = [chosen(name, seed) for name in ("mask_names", "remove_tool") for seed in (0, 1)]
    assert all(15 < len(ids) < 45 for ids in found)
    assert all(one != other for one, other in combinations(found, 2))
    assert chosen("mask_names", 1) == found[1]
    assert (chosen("mask_names", 0, 0.0), len(chosen("mask_names", 0, 1.0))) == ([], 60)
    assert {*chosen("mask_names", 0, 0.2)} < {*chosen("mask_names", 0, 0.6)}


def test_a_variant_that_prep_would_reject_is_counted_and_not_made() -> None:
    settings = PrepSettings(remove_tool=1.0, no_call_answer=" ")
    assert hard_negatives(RECORDS, settings) == ([], {"removed": {"E216 would reject it": 60}})
