"""agentlite.data.curation.task_labels: which task of seed 002 a record trains."""

from msgspec.structs import replace

from agentlite.core.records import Call, Gold, Message, Record, Tool
from agentlite.data.curation.task_labels import NAMES, RULES, classify

TOOLS = tuple(Tool(name, f"Does {name}.") for name in ("weather", "book", "mail", "search_tools"))


def dialog(*turns: str, tools: int = 4) -> Record:
    """`?text` asks, `!a,b` calls and has the results, `.text` says, `(text` is said but not
    learned.
    """
    messages: list[Message] = []
    for turn in turns:
        if turn[0] == "!":
            calls = tuple(Call(name, {}, f"{len(messages)}{name}") for name in turn[1:].split(","))
            messages.append(Message("assistant", "", calls))
            messages += [Message("tool", "ok", call_id=call.id) for call in calls]
        else:
            messages.append(
                Message("user" if turn[0] == "?" else "assistant", turn[1:], loss=turn[0] != "(")
            )
    return Record(messages=tuple(messages), tools=TOOLS[:tools])


TABLE = [
    (dialog("?Hello", ".Hello!", tools=0), "general", "no tools"),
    (dialog("?Who wrote Faust?", ".Goethe."), "timing_decision", "never a call"),
    (
        dialog("?Mail Ann", "!search_tools", ".This one."),
        "tool_retrieval",
        "a tool is sought",
    ),
    (
        dialog("?Weather, then book", "!weather", "!book", ".Done."),
        "multi_step_planning",
        "a call after a call",
    ),
    (
        dialog("?All three", "!weather,book,mail", ".Done."),
        "multi_step_planning",
        "many tools expected",
    ),
    (
        dialog("?Book it", ".For when?", "?Monday", "!book", ".Done."),
        "timing_decision",
        "asks back first",
    ),
    (dialog("?Weather in Oslo?", "!weather", ".Wet."), "tool_selection", "a call"),
    # what SAGE's classifier takes for something else
    (
        dialog("?Notify Ann and check the specific tariff", "!mail", ".Done."),
        "tool_selection",
        "a call",
    ),
    (
        dialog("?Search for a hotel and find its price", "!book", ".Done."),
        "tool_selection",
        "a call",
    ),
    (dialog("?What API version is it?", "!mail", ".3."), "tool_selection", "a call"),
    (dialog(*["?Weather?", "!weather", ".Wet."] * 4), "tool_selection", "a call"),
    (dialog("?Hi", "(Hello", "?Weather?", "!weather", ".Wet."), "tool_selection", "a call"),
]


def test_a_record_has_the_task_of_what_is_due_in_it() -> None:
    for record, task, rule in TABLE:
        named, why = classify(record)
        assert (named.task, why) == (task, rule)
        assert (named.messages, named.id) == (record.messages, record.id)
    assert {rule for _, _, rule in TABLE} | {"many tools on offer"} == set(RULES)


def test_gold_says_what_is_due_where_it_differs_from_the_turn() -> None:
    record = replace(dialog("?Weather in Oslo?", "!weather", ".Wet."), gold={1: Gold()})
    assert classify(record)[0].task == "timing_decision"


def test_from_20_tools_on_there_are_many_and_from_3_that_are_due_at_once_it_is_a_plan() -> None:
    for count, rule in ((19, "a call"), (20, "many tools on offer")):
        tools = (TOOLS[0], *(Tool(f"tool_{number}") for number in range(count - 1)))
        asked = replace(dialog("?Weather?", "!weather", ".Wet."), tools=tools)
        assert classify(asked)[1] == rule
    for due, rule in (("weather,book", "a call"), ("weather,book,mail", "many tools expected")):
        assert classify(dialog("?Please.", f"!{due}", ".Done."))[1] == rule
    assert classify(dialog("?Please.", "!mail,mail,mail", ".Done."))[1] == "a call"


def test_the_task_that_a_row_names_in_its_own_words_or_in_sages_comes_before_all_rules() -> None:
    for stated in NAMES:
        record = replace(dialog("?Weather?", "!weather", ".Wet."), meta={"task_type": stated})
        named, why = classify(record)
        general = NAMES[stated] == "general"
        assert (named.task, why) == (
            ("tool_selection", "a call") if general else (NAMES[stated], "said")
        )
