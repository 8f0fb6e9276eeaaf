"""agentlite.data.augment: variants that teach nothing wrong; joined dialogs; earlier records."""

from collections import Counter
from collections.abc import Callable, Sequence
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
    CHINESE,
    add_distractors,
    augment,
    hard_negatives,
    has_augmentation,
    join_dialogs,
    learnable_record,
    missing_no_calls,
    with_masked_names,
    without_right_tool,
)
from agentlite.data.curation.traits import expected_tools, first_query
from agentlite.data.curation.validate import validate
from agentlite.data.formats.sage import ANY_PARAMETERS
from agentlite.data.ingest import IngestContext, measure
from agentlite.rendering import choose
from agentlite.rendering.template import Template
from agentlite.scoring.metrics.step_metrics import calls_right


def context(template: Template, **settings: Any) -> IngestContext:
    return IngestContext(PrepSettings(**settings), template, choose("hermes", template))


def calling(name: str, query: str, **arguments: int) -> Record:
    call = Message("assistant", "", (Call(name, arguments, "call_0"),))
    properties = {key: {"type": "integer"} for key in arguments}
    tool = Tool(name, f"{name}ing", {"type": "object", "properties": properties})
    return Record(messages=(Message("user", query), call), tools=(tool,), split="train")


RECORDS = [calling(name, f"Please do {name}, will you?") for name in ("jump", "sing", "whistle")]


@pytest.mark.parametrize(
    "settings",
    [{"distractors": 1}, {"join": 2}, {"no_call_share": 0.1}, {"mask_names": 0.1}],
    ids=str,
)
def test_each_setting_alone_makes_variants_and_without_them_there_are_none(settings: Any) -> None:
    assert has_augmentation(PrepSettings(**settings))
    assert not has_augmentation(PrepSettings(join=1))


def test_an_earlier_record_is_learned_again_if_it_fits_and_is_not_dropped(
    smollm2: Template,
) -> None:
    length = measure(RECORDS[0], context(smollm2)).longest
    assert learnable_record(RECORDS[0], context(smollm2)) is not None
    assert learnable_record(RECORDS[0], context(smollm2, max_length=length - 1)) is None
    personal = calling("mail", "Write to ann@mail.org!")
    assert learnable_record(personal, context(smollm2, personal="drop")) is None
    kept = learnable_record(personal, context(smollm2, personal="report"))
    masked = learnable_record(personal, context(smollm2, personal="mask"))
    assert kept is not None
    assert kept.messages == personal.messages
    assert masked is not None
    assert masked.messages[0].content == "Write to <MAIL_1>!"
    assert masked.task == "tool_selection"


def test_records_are_joined_while_their_tokens_have_room(smollm2: Template) -> None:
    tokens = [measure(record, context(smollm2)).tokens for record in RECORDS]
    for room, dialogs in ((sum(tokens), 1), (max(tokens) - 1, 3), (sum(tokens) - 1, 2)):
        joined, _ = augment(RECORDS, context(smollm2, join=3, join_tokens=room))
        assert len(joined) == dialogs
    whole = [replace(record, split="") for record in RECORDS]  # as they are read
    for count, room in ((3, max(tokens)), (1, sum(tokens))):
        short, _ = augment(whole, context(smollm2, join=3, max_length=room))
        assert len(short) == count
        assert {record.split for record in short} == {"train"}


def test_rows_without_a_call_are_a_share_of_the_joined_rows(smollm2: Template) -> None:
    names = [f"{first}a{last}" for first in "bdfghklm" for last in "nprst"]
    asked = [calling(name, f"Please {name}, now!", **{name: 1}) for name in names]
    rows, made = augment(asked, context(smollm2, join=4, no_call_share=0.2))
    dialogs = [row for row in rows if "joined" in row.meta]
    assert len(dialogs) == 10 and made["removed"]["made"] == len(rows) - len(dialogs) == 3


def test_a_record_that_would_get_too_long_stays_as_it_was(smollm2: Template) -> None:
    longest = max(measure(record, context(smollm2)).longest for record in RECORDS)
    wider, _ = augment(RECORDS, context(smollm2, distractors=2, seed=1))
    assert [len(record.tools) for record in wider] != [1, 1, 1]
    narrow, _ = augment(RECORDS, context(smollm2, distractors=2, seed=1, max_length=longest))
    assert narrow == RECORDS
    masked, made = augment(RECORDS, context(smollm2, mask_names=1.0))
    assert made["masked"] == {"made": 3}
    assert masked[:3] == RECORDS
    assert [record.parent for record in masked[3:]] == [record.id for record in RECORDS]
    none, made = augment(RECORDS, context(smollm2, mask_names=1.0, max_length=1))
    assert (none, made["masked"]) == (RECORDS, {"prep would reject it": 3})


# --- hard negatives ---

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
NO_CALL_ANSWER = default("prep", "no_call_answer")


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
    settings = PrepSettings(mask_names=1, seed=abs(seed))
    made, counts = hard_negatives(given_records, settings, missing_no_calls(given_records, 0.99))
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
            assert calls_right(record.messages[turn].calls, record.gold_at(turn), record.tools)
        if record.meta["made"] == "names masked":
            assert not schemas.keys() & {tool.name for tool in parent.tools}
            assert len(schemas) == len(parent.tools)
        if record.meta["made"] == "right tool removed":
            assert not expected_tools(record) and record.tools
            assert not expected_tools(parent) & schemas.keys()
            assert record.messages[-1].content in (NO_CALL_ANSWER, CHINESE)
            assert record.task == "timing_decision"


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
# takes all of the arguments; does much; shares a word of the name; is described alike
COULD_DO = (TIME, SEARCH, FORECAST, SAME)


def test_no_right_tool_is_removed_where_another_might_do() -> None:
    for tool in COULD_DO:
        record = asking("Wet?", (WEATHER, tool), city="Oslo")
        assert without_right_tool(record, (), "No.") == "another tool could do it"
    alone = asking("Wet?", (WEATHER,), city="Oslo")
    assert without_right_tool(alone, (), "No.") == "no other tool on offer"
    answered = replace(asking("Wet?", (WEATHER, LIGHT)), gold={1: Gold(), 3: Gold()})
    assert without_right_tool(answered, (), "No.") == "no call is expected"


@pytest.mark.parametrize("reason", ["a text names", "a schema names", "has a name only"])
def test_names_stay_where_one_of_the_tools_is_known_by_them(reason: str) -> None:
    schema = WEATHER.parameters
    tool = {
        "a text names": WEATHER,
        "a schema names": replace(
            WEATHER, parameters={**schema, "anyOf": [{"required": ["city"]}]}
        ),
        "has a name only": Tool(WEATHER.name, "", ANY_PARAMETERS),
    }[reason]
    query = "Use get_weather for Oslo" if reason == "a text names" else "Wet?"
    record = asking(query, (tool,), city="Oslo")
    stays = with_masked_names(replace(record, tools=(RATE, tool)), 0)
    assert isinstance(stays, str) and reason in stays


# --- which records get a variant ---

ASKING = [asking(f"Question {number}?", (WEATHER, LIGHT), city="Oslo") for number in range(60)]


@pytest.mark.parametrize("tools", [(WEATHER, LIGHT), (WEATHER,)], ids=["left", "swapped"])
@pytest.mark.parametrize(
    ("share", "without", "added"), [(0.12, 0, 9), (0.12, 30, 0), (0.5, 10, 51)]
)
def test_rows_without_the_right_tool_are_added_until_they_are_the_share_that_is_asked_for(
    tools: tuple[Tool, ...], share: float, without: int, added: int
) -> None:
    train = [asking(f"Question {number}?", tools, city="Oslo") for number in range(60)]
    said = (Message("user", "Are you well?"), Message("assistant", "I am."))
    other = Record(messages=said, tools=(LIGHT,))
    train += [replace(other, source=f"{number}") for number in range(without)]
    train += [replace(other, tools=()), calling("jump", "Please jump!")]  # of other tools
    made, again = (
        hard_negatives(rows, PrepSettings(), missing_no_calls(train, share))[0]
        for rows in (train, train[::-1])
    )
    assert len(made) == added and {one.id for one in again} == {one.id for one in made}
    for record in made:
        assert not expected_tools(record)
        right = next(one for one in train if one.id == record.parent).tools[0].name
        assert record.tools and right not in {tool.name for tool in record.tools}


def test_a_variant_that_prep_would_reject_is_counted_and_not_made(smollm2: Template) -> None:
    train, made = augment(ASKING, context(smollm2, no_call_answer=" ", no_call_share=0.5))
    assert (len(train), made) == (60, {"removed": {"prep would reject it": 60}})


# --- joined dialogs and distractors ---

ANSWER = Message("assistant", "Yes.")


def dialog(number: int, **fields: Any) -> Record:
    """A question with a system turn and the call that answers it."""
    call = Call(f"tool_{number}", {}, "call_0")
    messages = (
        Message("system", "Be brief."),
        Message("user", f"Question {number}?"),
        Message("assistant", "", (call,)),
    )
    return Record(messages=messages, tools=(Tool(call.name, f"Does {number}."),), **fields)


def kinds(kind: str) -> list[Record]:
    """Records of two kinds that do not belong in one dialog."""
    records = [dialog(number) for number in range(8)]
    for number in range(0, 8, 2):
        if kind == "protocol":
            records[number] = replace(records[number], meta={"protocol": "react"})
        elif kind == "split":
            records[number] = replace(records[number], split="dev")
        else:
            messages = (Message("system", "Be polite."), *records[number].messages[1:])
            records[number] = replace(records[number], messages=messages)
    return records


@pytest.mark.parametrize("kind", ["protocol", "split", "system text"])
def test_a_dialog_holds_records_of_one_protocol_one_split_and_one_system_text(kind: str) -> None:
    records = kinds(kind)
    joined = join_dialogs(records, k=4, seed=0, fits=lambda slot: True)
    numbers = {record.id: number for number, record in enumerate(records)}
    found = [sorted(numbers[part] for part in record.meta["joined"]) for record in joined]
    assert sorted(found) == [[0, 2, 4, 6], [1, 3, 5, 7]]


def tool_records(count: int) -> list[Record]:
    """Single-turn records, one in five with no call due, one in seven with gold of its own."""
    records = []
    for index in range(count):
        query = f"question {index // 8 if index % 4 == 0 else index}"
        record = replace(calling(f"tool_{index % 9}", query), split="")
        if index % 5 == 0:
            record = replace(
                record,
                messages=(record.messages[0], ANSWER),
                gold={1: Gold()},
                task="timing_decision",
            )
        elif index % 7 == 0:
            record = replace(
                record, gold={1: Gold((GoldCall(f"tool_{index % 9}", {"x": ["", index]}),))}
            )
        records.append(record)
    plain = (Message("user", "no tools here"), ANSWER)
    return [*records, Record(messages=plain)]


def at_most(tools: int) -> Callable[[Sequence[Record]], bool]:
    return lambda slot: sum(len(record.tools) for record in slot) <= tools


def exchanges(records: Sequence[Record]) -> Counter[str]:
    """What is asked, said and due at each turn, apart from the ids of calls."""
    return Counter(
        str(
            (
                r.messages[turn - 1].content,
                [(c.name, c.arguments) for c in r.messages[turn].calls],
                r.gold_at(turn),
            )
        )
        for r in records
        for turn in r.turns
    )


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_joined_dialogs_ask_and_expect_the_same_and_are_valid(k: int) -> None:
    records = tool_records(60)
    joined = join_dialogs(records, k=k, seed=0, fits=at_most(6))
    assert exchanges(joined) == exchanges(records)
    for record in joined:
        validate(record)
        assert expected_tools(record) <= {tool.name for tool in record.tools}
        if "joined" in record.meta:
            queries = [m.content for m in record.messages if m.role == "user"]
            ids = [call.id for m in record.messages for call in m.calls]
            assert len(record.tools) <= 6
            assert 2 <= len(queries) == len(set(queries)) == len(record.meta["joined"]) <= k
            assert len(set(ids)) == len(ids)
            assert record.parent == record.meta["joined"][0]


def test_foreign_tools_have_other_names_and_answer_no_equal_question() -> None:
    records = tool_records(60)
    changed = add_distractors(records, n=3, seed=0)
    assert len(changed) == len(records)
    for record, new in zip(records, changed, strict=True):
        names = [tool.name for tool in new.tools]
        asked_alike = [r for r in records if first_query(r) == first_query(record)]
        foreign = set(names) - {tool.name for tool in record.tools}
        assert len(set(names)) == len(names) <= 1 + 3
        assert (new.messages, new.gold) == (record.messages, record.gold)
        assert not foreign & {name for r in asked_alike for name in expected_tools(r)}
        assert new.parent == (record.id if foreign else "")
        validate(new)
    assert {len(record.tools) for record in changed} == {0, 1, 2, 3, 4}
    # a single tool may be the right one
    calling = [record for record in changed if expected_tools(record)]
    assert {len(record.tools) for record in calling} == {1, 2, 3, 4}
