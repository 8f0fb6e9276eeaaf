"""Which held-out row a record gives away, and what is read of held-out files."""

import json
from pathlib import Path

from msgspec.structs import replace

from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.curation.duplicates import leaks, read_held_out
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.formats import FORMATS

ANSWER = Message("assistant", "Yes.")
FERRY = "Which of the ferries to the island leaves from the old harbour on Sunday at noon?"
RAIN = "How much rain will there be in the north of Norway this week?"


def dialog(*questions: str) -> Traits:
    messages = [turn for text in questions for turn in (Message("user", text), ANSWER)]
    return traits(Record(messages=tuple(messages)))


def calling(question: str, city: str) -> Traits:
    call = Call("weather", {"city": city}, "a")
    messages = (Message("user", question), Message("assistant", "", (call,)))
    return traits(Record(messages=messages, tools=(Tool("weather"),)))


def test_of_held_out_rows_that_ask_the_same_the_first_is_named() -> None:
    held_out = [dialog("Where do whales sleep?"), dialog(FERRY), dialog(FERRY), dialog(FERRY)]
    found = leaks(
        dict(enumerate([dialog(FERRY.upper()), dialog(f"{FERRY} Tell"), dialog(RAIN)])), held_out
    )
    assert found == {0: 1, 1: 1}


def test_a_question_that_is_the_same_counts_before_calls_that_are() -> None:
    held_out = [calling(RAIN, "Longyearbyen on Svalbard"), dialog(FERRY)]
    both = calling(FERRY, "Longyearbyen on Svalbard")
    alone = calling("Do I need a coat there?", "Longyearbyen on Svalbard")
    found = leaks(dict(enumerate([alone, both, dialog(RAIN)])), held_out)
    assert [*found.items()] == [(0, 0), (1, 1), (2, 0)]


def test_held_out_rows_are_read_with_the_options_of_prep_and_changed_as_its_records_are(
    tmp_path: Path,
) -> None:
    row = json.loads(FORMATS["self_cognition"].example)
    path = tmp_path / "held.jsonl"
    path.write_text(json.dumps({**row, "query": "Are you {{NAME}}, the model?"}) + "\n")
    options = {"self_cognition": {"name": ("Kakarot",)}}

    def politely(record: Record) -> Record:
        first = Message("user", f"Please: {record.messages[0].content}")
        return replace(record, messages=(first, *record.messages[1:]))

    (plain,) = read_held_out([str(path)]).traits
    (named,) = read_held_out([str(path)], options).traits
    (changed,) = read_held_out([str(path)], options, politely).traits
    queries = ["areyouagentlitethemodel", "areyoukakarotthemodel", "pleaseareyoukakarotthemodel"]
    assert [plain.query, named.query, changed.query] == queries
