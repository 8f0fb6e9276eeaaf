"""agentlite.data.curation: near texts, copies, contradictions, and leaks into held-out files."""

import json
import random
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Message, Record, Tool
from agentlite.data.curation.duplicates import (
    Copies,
    call_copies,
    contradictions,
    equal_copies,
    leaks,
    near_copies,
    read_held_out,
    splits_of_copies,
)
from agentlite.data.curation.minhash import jaccard, shingles
from agentlite.data.curation.traits import Traits, dialog_text, normalize, traits
from agentlite.data.formats import FORMATS

FLIGHT = Tool("flight", "Books a flight.")
WEATHER = Tool("weather", "The weather to come.")
WORDS = ["tide", "ferry", "harbour", "whale", "puffin", "anchor", "dune", "reef", "storm"]


def dialog(
    query: str, *turns: Sequence[Call], answer: str = "", tools: Sequence[Tool] = (FLIGHT, WEATHER)
) -> Record:
    """A question, turns of calls, and an answer."""
    messages = [Message("user", query)]
    for calls in turns:
        messages.append(Message("assistant", "", tuple(calls)))
        messages += [Message("tool", "done", call_id=call.id) for call in calls]
    said = [Message("assistant", answer)] if answer else []
    return Record(messages=(*messages, *said), tools=tuple(tools))


def call(name: str, number: int = 0, **arguments: Any) -> Call:
    return Call(name, arguments, f"call_{number}")


def trip(origin: str = "Oslo", to: str = "Bergen", **rest: Any) -> Call:
    return call("flight", origin=origin, to=to, day="2027-05-03", **rest)


def numbered(*records: Record) -> dict[int, Traits]:
    return dict(enumerate(map(traits, records)))


def near_of(records: Sequence[Record], seed: int = 0, threshold: float = 0.8) -> Copies:
    texts = [normalize(dialog_text(record)) for record in records]
    return near_copies(
        numbered(*records),
        texts.__getitem__,
        seed=seed,
        threshold=threshold,
    )


def calls_of(*records: Record) -> Copies:
    return call_copies(numbered(*records), seed=0)


def variants(count: int, seed: int) -> list[Record]:
    """Dialogs of random words; some are others with one or a few words changed."""
    chance = random.Random(seed)
    texts = [chance.choices(WORDS, k=40) for _ in range(count)]
    for _ in range(2 * count):
        changed = list(chance.choice(texts))
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(40)] = chance.choice(WORDS)
        texts.append(changed)
    return [dialog(" ".join(text), answer="Yes.") for text in texts]


# --- copies ---


@pytest.mark.parametrize(("seed", "threshold"), [(0, 0.5), (1, 0.8), (2, 0.9)])
def test_a_near_copy_is_near_the_one_that_is_kept_and_no_two_kept_are_near(
    seed: int, threshold: float
) -> None:
    records = variants(30, seed)
    copies = near_of(records, seed, threshold)
    grams = [shingles(normalize(dialog_text(record))) for record in records]
    assert copies
    assert not copies.keys() & set(copies.values())
    assert all(jaccard(grams[copy], grams[kept]) >= threshold for copy, kept in copies.items())
    rest = [index for index in range(len(records)) if index not in copies]
    assert not [
        pair
        for pair in combinations(rest, 2)
        if jaccard(grams[pair[0]], grams[pair[1]]) >= threshold
    ]


TEXT = (
    "Please book me the cheapest flight from Oslo to Bergen on the third of May, with a seat "
    "at "
    "the window."
)
NEAR_COPIES = {
    "another answer's end": (dialog(TEXT, [trip()], answer="Booked."), True),
    "in capitals": (dialog(TEXT.upper() + "!!", [trip()]), True),
    "a word more": (dialog("Hello! " + TEXT, [trip()]), True),
    "another system text": (
        replace(
            dialog(TEXT),
            messages=(Message("system", "Be brief."), *dialog(TEXT, [trip()]).messages),
        ),
        True,
    ),
    "other tools on offer": (dialog(TEXT, [trip()], tools=(FLIGHT,)), False),
    "one call more": (dialog(TEXT, [trip()], [call("weather", 1)]), False),
    "another call after the same question": (dialog(TEXT, [trip(to="Bodø")]), False),
    "another question": (dialog("Is it going to rain in Tromsø tomorrow?", [trip()]), False),
}


def test_near_copies_say_nearly_the_same_and_call_the_same_tools() -> None:
    for name, (other, is_copy) in NEAR_COPIES.items():
        assert bool(near_of([dialog(TEXT, [trip()]), other])) == is_copy, name


SAME_CALLS = {
    "in other letters and numbers": (dialog(TEXT, [trip(" oslo", "BERGEN", seats=2.0)]), True),
    "asked in part": (dialog(TEXT[:70], [trip(seats=2)]), True),
    "with other ids": (dialog(TEXT, [Call("flight", trip(seats=2).arguments, "x")]), True),
    "asked otherwise": (
        dialog("I want to fly on May 3rd: two seats, Oslo-Bergen.", [trip(seats=2)]),
        False,
    ),
    "another argument": (dialog(TEXT, [trip(seats=3)]), False),
    "a minus": (dialog(TEXT, [trip(seats=-2)]), False),
    "true is not one": (dialog(TEXT, [trip(seats=True)]), False),
    "other tools on offer": (dialog(TEXT, [trip(seats=2)], tools=(FLIGHT,)), False),
}


def test_copies_by_calls_have_the_same_arguments_and_ask_much_alike() -> None:
    for name, (other, is_copy) in SAME_CALLS.items():
        assert bool(calls_of(dialog(TEXT, [trip(seats=2)]), other)) == is_copy, name


def test_equal_records_are_copies_of_the_first_and_hand_their_split_on() -> None:
    rows = [("a", "train"), ("b", ""), ("a", "test"), ("a", "dev"), ("b", "")]
    records = numbered(*(replace(dialog(text), split=split) for text, split in rows))
    copies = equal_copies(records, ["a.jsonl"] * 5)
    assert copies == {2: 0, 3: 0, 4: 1}
    assert splits_of_copies(records, copies) == {0: "test", 1: ""}


# --- contradictions ---

ASKED = dialog("Is it wet in Oslo?", [call("weather", city="Oslo")])
AGAINST = {
    "another argument": (dialog("Is it wet in Oslo?", [call("weather", city="Bergen")]), True),
    "another tool": (dialog("is it wet in oslo", [call("flight", city="Oslo")]), True),
    "no call": (dialog("Is it wet in Oslo?", answer="Yes."), True),
    "the same call": (
        dialog("is it wet in  Oslo", [call("weather", 7, city="oslo")], answer="Yes."),
        False,
    ),
    "the same tool, its arguments unknown": (
        replace(
            dialog("Is it wet in Oslo?", [call("weather")]),
            gold={1: Gold((GoldCall("weather", ANY_ARGUMENTS),))},
        ),
        False,
    ),
    "another tool, its arguments unknown": (
        replace(
            dialog("Is it wet in Oslo?", [call("flight")]),
            gold={1: Gold((GoldCall("flight", ANY_ARGUMENTS),))},
        ),
        True,
    ),
    "another question": (dialog("Is it wet in Oslo, Minnesota?", answer="No."), False),
    "other tools": (dialog("Is it wet in Oslo?", answer="Who knows?", tools=(FLIGHT,)), False),
    "told otherwise": (
        replace(
            ASKED,
            messages=(
                Message("system", "Never call."),
                Message("user", "Is it wet in Oslo?"),
                Message("assistant", "Yes."),
            ),
        ),
        False,
    ),
}


def test_records_contradict_that_call_otherwise_with_the_same_before_them() -> None:
    for name, (other, contradicts) in AGAINST.items():
        found = contradictions(numbered(dialog("Where?"), ASKED, other))
        assert found == ({1: 2, 2: 1} if contradicts else {}), name


def test_near_copies_may_differ_in_whether_their_arguments_are_known() -> None:
    text = "Is it wet in Oslo? " + " ".join(f"{word} {other}" for word in WORDS for other in WORDS)
    known = dialog(text, [call("weather", city="Oslo")])
    unknown = replace(
        dialog(text, [call("weather")]), gold={1: Gold((GoldCall("weather", ANY_ARGUMENTS),))}
    )
    assert len(near_of([known, unknown])) == 1
    assert not near_of([known, dialog(text, [call("weather", city="Bergen")])])


# --- leaks ---

HELD_OUT = dialog(TEXT, [trip()])
LEAKING = {
    "the same query": (dialog(TEXT.lower(), answer="No."), True),
    "asked later in a dialog": (
        Record(
            messages=(
                *dialog("Hi", answer="Hello.").messages,
                Message("user", TEXT),
                Message("assistant", "No."),
            )
        ),
        True,
    ),
    "nearly the same query": (dialog(TEXT + " Thank you!", answer="No."), True),
    "the same calls": (dialog("To Bergen from Oslo, as I said.", [trip()]), True),
    "the same calls of other tools": (dialog("To Bergen!", [trip()], tools=(FLIGHT,)), False),
    "other arguments": (dialog("From Oslo to Bodø, please.", [trip(to="Bodø")]), False),
}


def test_a_record_leaks_that_gives_a_held_out_one_away() -> None:
    held_out = [traits(dialog("Where?")), traits(HELD_OUT)]
    for name, (record, is_leaking) in LEAKING.items():
        found = leaks(numbered(dialog("Hi"), record), held_out)
        assert found == ({1: 1} if is_leaking else {}), name


def test_short_arguments_leak_only_beside_a_query_that_is_half_alike() -> None:
    held_out = [traits(dialog("Is it wet in Oslo at noon?", [call("weather", city="Oslo")]))]
    alike = dialog("Is it wet in Oslo at night?", [call("weather", city="Oslo")])
    unlike = dialog("Do I need a coat in the capital of Norway?", [call("weather", city="Oslo")])
    assert leaks(numbered(unlike, alike), held_out) == {1: 0}


def test_held_out_rows_are_read_with_the_options_of_prep_and_changed_as_its_records_are(
    tmp_path: Path,
) -> None:
    row = json.loads(FORMATS["self_cognition"].example)
    path = tmp_path / "held.jsonl"
    path.write_text(json.dumps({**row, "query": "Are you {{NAME}}, the model?"}) + "\n")
    options = {"names": {"name": ("Kakarot",), "author": ("Ada",)}}

    def politely(record: Record) -> Record:
        first = Message("user", f"Please: {record.messages[0].content}")
        return replace(record, messages=(first, *record.messages[1:]))

    (named,) = read_held_out([str(path)], options)
    (changed,) = read_held_out([str(path)], options, politely)
    queries = ["areyoukakarotthemodel", "pleaseareyoukakarotthemodel"]
    assert [named.query, changed.query] == queries
