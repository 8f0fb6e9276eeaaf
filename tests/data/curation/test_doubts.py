"""agentlite.data.curation.doubts: what teaches a mistake is named, and good dialogs are quiet."""

import pytest

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.doubts import doubts

MARK = Tool("mark_repaired", "Marks a ticket.", {"type": "object", "properties": {"ticket": {}}})


def record(answer: str, result: str = "", ticket: str = "T-13", question: str = "") -> Record:
    """A question, a call and its result where there is one, and an answer."""
    call = Message("assistant", "", (Call(MARK.name, {"ticket": ticket}, "c"),))
    messages = [call, Message("tool", result, call_id="c")] if result else []
    asked = Message("user", question or "Mark T-13 as repaired.")
    return Record(messages=(asked, *messages, Message("assistant", answer)), tools=(MARK,))


DOUBTFUL = [
    ("placeholder", record("TODO: write answer")),
    ("placeholder", record("{ticket} is open.", '{"ok": true}')),
    ("placeholder", record("As an AI language model I cannot.", '{"ok": true}')),
    ("failure", record("T-13 is marked.", '{"error": "gone"}')),
    ("promise", record("I will mark T-13 as repaired now.")),
    ("promise", record("Sure! Let me check that for you...")),
    ("value", record("Done.", "{}", "T-999")),
    ("value", record("Done.", "{}", "Robert Miller")),
]
GOOD = [
    record("T-13 is marked.", '{"ok": true}'),
    record("There is no such ticket.", '{"error": "gone"}'),
    record("Which ticket do you mean?", "Error: unknown"),
    record("I will mark it once you tell me the ticket."),
    record("Is it T-13? I will mark it."),
    record("Let me know if you need more.", "{}"),
    record("I added milk to your todo list.", "{}"),
    record("Call `/users/{id}` or f'{name}':\n```\n{body}\n# TODO: more\n```", "{}"),
    record("Done.", "{}", "t13", "Mark ticket T 13."),
    record("Done.", "{}", "Roman Holiday", "The film in Rome."),
    record("完成。", "{}", "Beijing", "北京的天气"),
]


@pytest.mark.parametrize(("name", "doubtful"), DOUBTFUL)
def test_what_teaches_a_mistake_is_named_by_its_check_alone(name: str, doubtful: Record):
    assert [*doubts(doubtful)] == [name]


@pytest.mark.parametrize("good", GOOD)
def test_a_good_dialog_is_quiet(good: Record):
    assert doubts(good) == {}
