"""agentlite.data.curation.hard_negatives: variants that are valid, say their parent and teach
nothing wrong.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.samples import TIME, WEATHER
from support.unknown_arguments import RECORD

from agentlite.config.settings import PrepSettings, default
from agentlite.core.json_schema import fits
from agentlite.core.records import Call, Gold, GoldCall, Message, Record, Tool
from agentlite.data.augment import kinds
from agentlite.data.curation.hard_negatives import (
    NAMING,
    with_masked_names,
    without_right_tool,
)
from agentlite.data.curation.traits import expected_tools
from agentlite.data.curation.validate import validate
from agentlite.data.curation.variants import Variants, variants_of
from agentlite.data.formats.sage_tools import OPEN
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


def hard_negatives(records: list[Record], *, removed: float, masked: float, seed: int) -> Variants:
    settings = PrepSettings(remove_tool=removed, mask_names=masked, seed=abs(seed))
    return variants_of(records, kinds(records, settings), seed)


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
    made, counts = hard_negatives(given_records, removed=1, masked=1, seed=seed)
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


def test_no_masked_name_stands_for_a_tool_in_all_records() -> None:
    """A name that did would be learned in place of the description."""
    call = Message("assistant", calls=(Call(WEATHER.name, {"city": "Oslo"}),))
    records = [
        Record(messages=(Message("user", f"Rain on day {day}?"), call), tools=(WEATHER,))
        for day in range(5)
    ]
    masked = [with_masked_names(record, 0) for record in records]
    assert len({one.tools[0].name for one in masked if isinstance(one, Record)}) > 1


@given(records())
def test_what_is_made_is_rendered_and_reads_back(smollm2: Template, record: Record) -> None:
    protocol = choose("hermes", smollm2).protocols["hermes"]
    for made in hard_negatives([record], removed=1, masked=1, seed=0).records:
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
SEVERAL = Tool("all_weathers", "", {"type": "object", "properties": {}})
SAME = Tool(
    "rain", "The weather of a city", {"type": "object", "properties": {"place": {"type": "string"}}}
)
STREETS = Tool(
    "street_plan",
    "A drawing.",
    {"type": "object", "properties": {"city": {"type": "string"}, "street": {"type": "string"}}},
)
STAYS = [
    (asking("Wet?", (WEATHER, STREETS), city="Oslo"), "another tool could do it"),  # takes all
    (
        asking("Wet?", (WEATHER, TIME), city="Oslo"),
        "another tool could do it",
    ),  # takes all of its arguments
    (asking("Wet?", (WEATHER, SEARCH), city="Oslo"), "another tool could do it"),  # does much
    (
        asking("Wet?", (WEATHER, FORECAST), city="Oslo"),
        "another tool could do it",
    ),  # shares a word of the name
    (asking("Wet?", (WEATHER, SEVERAL), city="Oslo"), "another tool could do it"),  # in the plural
    (
        asking("Wet?", (WEATHER, SAME), city="Oslo"),
        "another tool could do it",
    ),  # is described alike
    (asking("Wet?", (WEATHER,), city="Oslo"), "no other tool on offer"),
    (replace(asking("Wet?", (WEATHER, LIGHT)), gold={1: Gold(), 3: Gold()}), "no call is expected"),
]


@pytest.mark.parametrize(("record", "reason"), STAYS)
def test_no_right_tool_is_removed_where_another_might_do(record: Record, reason: str) -> None:
    assert without_right_tool(record, (), "No.") == reason


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("record", [record for record, reason in STAYS if "could" in reason])
def test_no_right_tool_is_removed_where_another_might_do_one_of_several_calls(
    record: Record, place: int
) -> None:
    tools, calls = [*record.tools], [*record.messages[1].calls]
    tools.insert(place, RATE)
    calls.insert(place, Call(RATE.name, {"amount": 3}, "call_1"))
    calling = replace(record.messages[1], calls=tuple(calls))
    messages = (record.messages[0], calling, *record.messages[2:])
    several = replace(record, tools=tuple(tools), messages=messages)
    assert without_right_tool(several, (), "No.") == "another tool could do it"


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        (("tide ebb", "tide ebb flow rise fall rest"), True),  # 2 of 6 words
        (("tide ebb flow", "tide ebb flow a1 b1 c1"), True),
        (("ja jb jc jd je", "ja jb jc jf jg jh ji jk"), True),  # 3 of 10
        (("ja jb jc jd je", "ja jb jc jf jg jh ji jk jl"), False),  # 3 of 11
        (("get the list of all", "send the list by mail"), False),  # words that say nothing
        (("ties", "tie"), True),
        (("", ""), False),
    ],
)
def test_tools_are_alike_from_three_tenths_of_the_words_of_their_descriptions_on(
    words: tuple[str, str], stays: bool
) -> None:
    tools = tuple(
        Tool(name, text, {"type": "object", "properties": {key: {"type": "string"}}})
        for name, text, key in zip(("jump", "rest"), words, ("x", "y"), strict=True)
    )
    variant = without_right_tool(asking("Now?", tools, x="1"), (), "No.")
    assert isinstance(variant, str) == stays


def test_a_tool_that_is_due_for_the_same_question_elsewhere_is_removed_too() -> None:
    record = asking("Wet?", (WEATHER, LIGHT, RATE), city="Oslo")
    others = [record, asking("wet", (LIGHT,))]
    (made,) = hard_negatives(others, removed=1, masked=0, seed=0).records
    assert made.tools == (RATE,)


def test_a_dialog_is_kept_up_to_its_first_call() -> None:
    first = (Message("user", "Hi"), Message("assistant", "Hello"))
    record = asking("Wet?", (WEATHER, LIGHT), city="Oslo")
    made = without_right_tool(
        replace(record, messages=(*first, *record.messages), gold={1: Gold()}), (), "No."
    )
    assert isinstance(made, Record)
    assert [message.content for message in made.messages] == ["Hi", "Hello", "Wet?", "No."]
    assert made.gold == {1: Gold(), 3: Gold()}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("reason", ["a text names", "a schema names", "has a name only"])
def test_names_stay_where_one_of_the_tools_is_known_by_them(reason: str, order: int) -> None:
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
    stays = with_masked_names(replace(record, tools=(tool, RATE)[::order]), 0)
    assert isinstance(stays, str) and reason in stays
    masked = with_masked_names(
        replace(asking("Wet?", (WEATHER,)), tools=(WEATHER, RATE)[::order]), 0
    )
    assert isinstance(masked, Record)


def test_the_answer_is_in_the_script_of_the_question() -> None:
    made = hard_negatives(
        [asking("下雨吗", (WEATHER, LIGHT), city="Oslo")], removed=1, masked=0, seed=0
    )
    assert made.records[0].messages[-1].content == NO_CALL_ANSWER_ZH


def test_shares_are_kept_and_one_record_more_changes_nothing_for_the_others() -> None:
    many = [asking(f"question {number}", (WEATHER, LIGHT), city="Oslo") for number in range(400)]
    made = hard_negatives(many, removed=0.25, masked=0.5, seed=1)
    assert 70 <= made.counts["removed"]["made"] <= 130
    assert 160 <= made.counts["masked"]["made"] <= 240
    fewer = hard_negatives(many[:0:-1], removed=0.25, masked=0.5, seed=1).records
    assert {one.id for one in fewer} == {one.id for one in made.records if one.parent != many[0].id}
    assert not hard_negatives(many, removed=0, masked=0, seed=1).records


def test_unknown_arguments_stay_unknown_under_masked_names() -> None:
    masked = with_masked_names(RECORD, 0)
    assert isinstance(masked, Record)
    (call,) = masked.messages[1].calls
    assert call.name != "forecast_001" and masked.unknown_arguments(1) == [0]


WORDS_OF_MUCH = [
    "search",
    "google",
    "bing",
    "browse",
    "web",
    "wiki",
    "lookup",
    "look_up",
    "python",
    "code",
    "shell",
    "bash",
    "terminal",
    "exec",
    "command",
    "script",
    "sql",
    "query",
    "http",
    "request",
    "api",
    "llm",
    "gpt",
    "chat",
    "ask",
    "answer",
    "assistant",
    "agent",
    "搜索",
    "检索",
    "查询",
    "浏览",
    "代码",
    "执行",
    "问答",
]


@pytest.mark.parametrize("word", WORDS_OF_MUCH)
def test_a_tool_that_does_much_could_do_anything(word: str) -> None:
    for name in (word, f"my_{word}_2", word.upper()):
        much = Tool(name, "Helps.", {"type": "object", "properties": {}})
        record = asking("Wet?", (WEATHER, much), city="Oslo")
        assert without_right_tool(record, (), "No.") == "another tool could do it"


@pytest.mark.parametrize(
    ("name", "is_alike"),
    [
        ("CityWeather", True),
        ("weathers", True),
        ("WEATHERMap", True),
        ("get_lamp", False),  # shares only a word that says nothing
        ("whether", False),
    ],
)
def test_tools_are_alike_by_a_telling_word_of_their_names(name: str, is_alike: bool) -> None:
    other = Tool(name, "Helps.", {"type": "object", "properties": {}})
    record = asking("Wet?", (WEATHER, other), city="Oslo")
    assert isinstance(without_right_tool(record, (), "No."), str) == is_alike


def test_no_tool_is_removed_behind_a_call_that_is_given() -> None:
    given_call = Message("assistant", "", (Call(WEATHER.name, {"city": "Rome"}, "r"),), loss=False)
    before = (Message("user", "Rome?"), given_call, Message("tool", "9", call_id="r"))
    record = asking("And Oslo?", (WEATHER, LIGHT), city="Oslo")
    record = replace(record, messages=(*before, Message("assistant", "9."), *record.messages))
    assert without_right_tool(record, (), "No.") == "a call is given before"


def test_a_variant_says_how_it_is_written_and_nothing_about_what_is_gone() -> None:
    kept = {"protocol": "hermes", "joined": 2, "cut_from": 9, "bfcl_id": "x_1"}
    meta = {**kept, "turns": {"1": {}}, "source_row": 7, "category": "x"}
    record = replace(asking("Wet?", (WEATHER, LIGHT), city="Oslo"), meta=meta)
    made = hard_negatives([record], removed=1, masked=1, seed=0).records
    assert [one.meta for one in made] == [
        {**kept, "made": "right tool removed"},
        {**kept, "made": "names masked"},
    ]


@pytest.mark.parametrize(
    ("name", "is_telling"),
    [
        ("weather", False),
        ("Weather", True),
        ("getweather2", True),
        ("get_weather", True),
        ("天气", True),
    ],
)
def test_a_name_in_a_text_counts_unless_it_is_a_word_as_any_other(
    name: str, is_telling: bool
) -> None:
    tool = replace(LIGHT, name=name)
    for message in (f"How is the {name}?", "Lamp?"):
        masked = with_masked_names(asking(message, (tool,), room="hall"), 0)
        assert (masked == "a text names a tool") == (is_telling and name in message)


@pytest.mark.parametrize("keyword", sorted(NAMING))
def test_names_stay_where_a_keyword_of_a_schema_may_name_parameters(keyword: str) -> None:
    tool = replace(LIGHT, parameters={**LIGHT.parameters, keyword: {}})
    masked = with_masked_names(asking("Lamp?", (tool,), room="hall"), 0)
    assert masked == "a schema names parameters elsewhere"


def test_gold_is_renamed_as_calls_are_and_what_is_not_on_offer_stays() -> None:
    calls = (
        GoldCall(LIGHT.name, {"room": ["hall", "attic"], "unknown": [1]}),
        GoldCall("elsewhere", {"room": ["hall"]}),
    )
    record = replace(asking("Lamp?", (LIGHT, RATE), room="hall"), gold={1: Gold(calls)})
    masked = with_masked_names(record, 0)
    assert isinstance(masked, Record)
    light, rate = masked.tools
    (call,), (first, second) = masked.messages[1].calls, masked.gold[1].calls
    (room,) = light.parameters["properties"]
    assert (call.name, call.arguments) == (light.name, {room: "hall"})
    assert (first.name, first.arguments) == (light.name, {room: ["hall", "attic"], "unknown": [1]})
    assert second == calls[1]
    pair, amount = rate.parameters["properties"]
    assert rate.parameters["required"] == [amount]
    assert rate.parameters["properties"][pair] == RATE.parameters["properties"]["pair"]
