"""The dialogs of a prep as tasks: their users, their calls with results, and what is right."""

import pytest
from support.samples import TIME, WEATHER

from agentlite.core.records import Call, Gold, GoldCall, Message, Record, to_row
from agentlite.core.row_files import write_rows
from agentlite.environments.recorded_tasks import recorded_tasks

OSLO, LIMA = Call("get_weather", {"city": "Oslo"}, "a"), Call("get_time", {"city": "Lima"}, "b")


def user(text):
    return Message("user", text)


def assistant(text="", *calls):
    return Message("assistant", text, calls)


def result(text, call):
    return Message("tool", text, call_id=call.id)


def tasks_of(folder, *records):
    write_rows(folder / "train.jsonl", map(to_row, records))
    return list(recorded_tasks({"train": folder / "train.jsonl"}))


def record(*messages, **fields):
    return Record(messages=messages, **{"tools": (WEATHER, TIME), **fields})


def test_a_dialog_is_cut_where_its_user_speaks(tmp_path):
    dialog = record(
        Message("system", "Be brief."),
        user("Rain?"),
        assistant("", OSLO, LIMA),
        result("4 mm", OSLO),
        result("noon", LIMA),
        assistant("Yes."),
        user("Sure?"),
        user("And now?"),
        assistant("", OSLO),
        result("0 mm", OSLO),
        assistant("No."),
        user("Thanks."),
        assistant("You are welcome."),
        user("What time is it?"),
        assistant("", LIMA),
    )
    (task,) = tasks_of(tmp_path, dialog)
    oslo, lima = ({"name": call.name, "arguments": call.arguments} for call in (OSLO, LIMA))
    assert [message.content for message in task.messages] == ["Be brief.", "Rain?"]
    assert (task.id, task.split) == (dialog.id, "train")
    assert task.row == {
        "tools": [WEATHER.schema, TIME.schema],
        "user_turns": ["Sure?\n\nAnd now?", "Thanks.", "What time is it?"],
        "recorded": [oslo, lima, oslo, lima],
        "results": ["4 mm", "noon", "0 mm", None],
        "gold": [oslo, lima, oslo, lima],
    }
    assert [[call.name for call in turn] for turn in task.gold] == [
        ["get_weather", "get_time"],
        ["get_weather"],
        [],
        ["get_time"],
    ]


ANY = {1: Gold((GoldCall("get_weather", None),))}


@pytest.mark.parametrize(
    ("answer", "gold", "known"),
    [
        (assistant("", OSLO), {}, True),
        (assistant("", OSLO), {1: Gold((GoldCall("get_weather", {"city": ["Oslo"]}),))}, True),
        (assistant("No."), {1: Gold()}, True),
        (assistant("x"), {1: Gold(known=False)}, False),
        (assistant("x"), {1: Gold((GoldCall(""),))}, False),
        (assistant("", OSLO), {1: Gold((GoldCall("get_time"),))}, False),
        (assistant("", Call("get_weather")), ANY, False),
        (assistant("", OSLO), ANY, True),
    ],
)
def test_the_recorded_calls_are_right_unless_they_are_stand_ins(tmp_path, answer, gold, known):
    (task,) = tasks_of(tmp_path, record(user("Rain?"), answer, gold=gold))
    assert (task.gold is not None, task.row["gold"] is not None) == (known, known)


@pytest.mark.parametrize(
    "dialog",
    [
        record(user("Hi."), assistant("Hi."), tools=()),
        record(assistant("Hello. What can I do?"), user("Rain?"), assistant("", OSLO)),
        record(Message("system", "Go."), assistant("", OSLO)),
        record(assistant("Plain text."), meta={"whole": True}),
    ],
)
def test_a_dialog_that_no_user_begins_with_tools_is_no_task(tmp_path, dialog):
    other = record(user("Rain?"), assistant("", OSLO))
    assert [task.id for task in tasks_of(tmp_path, dialog, other)] == [other.id]


def test_a_dialog_may_say_with_how_few_calls_it_can_be_done(tmp_path):
    dialog = record(user("Rain?"), assistant("", OSLO), result("4 mm", OSLO), assistant("Yes."))
    due = Gold((GoldCall("get_weather", {"city": ["Oslo"]}),), optimal_steps=3)
    (silent,) = tasks_of(tmp_path, dialog)
    (stated,) = tasks_of(tmp_path, record(*dialog.messages, gold={1: due}))
    assert (silent.optimal_steps, silent.kept.fewest_calls) == (None, 1)
    assert (stated.optimal_steps, stated.kept.fewest_calls) == (3, 3)
    more = record(*dialog.messages, user("And now?"), assistant("", OSLO), gold={1: due})
    for steps in ((3, 5), (5, 3), (None, 5), (5, None)):
        of_turns = zip((1, 5), steps, strict=True)
        gold = {turn: Gold(due.calls, optimal_steps=count) for turn, count in of_turns}
        (both,) = tasks_of(tmp_path, record(*more.messages, gold=gold))
        assert both.optimal_steps == 5  # of the whole dialog
