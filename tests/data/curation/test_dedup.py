"""agentlite.data.curation: copies, contradictions and leaks."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.damaged_rows import rows

from agentlite.core.errors import UserError
from agentlite.core.records import (
    ANY_ARGUMENTS,
    SPLITS,
    Call,
    Gold,
    GoldCall,
    Message,
    Record,
    Tool,
    to_row,
)
from agentlite.data.curation import minhash
from agentlite.data.curation.contradictions import contradictions
from agentlite.data.curation.decontaminate import check_held_out, leaks, read_held_out
from agentlite.data.curation.dedup import (
    Copies,
    borne,
    call_copies,
    equal_copies,
    near_copies,
    near_text,
)
from agentlite.data.curation.fingerprints import keys
from agentlite.data.curation.minhash import (
    CROWD,
    MinHashIndex,
    jaccard,
    near_ties,
    shingles,
    sketches,
)
from agentlite.data.curation.traits import Traits, traits
from agentlite.data.formats import samples

FLIGHT = Tool("flight", "Books a flight.")
WEATHER = Tool("weather", "The weather to come.")
WORDS = [
    "tide",
    "ferry",
    "harbour",
    "whale",
    "puffin",
    "lighthouse",
    "anchor",
    "compass",
    "dune",
    "reef",
    "storm",
]


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


def near_of(records: Sequence[Record], seed: int = 0, threshold: float = 0.8) -> Copies:
    texts = [near_text(record) for record in records]
    return near_copies(
        [traits(record) for record in records],
        list(sketches(texts)),
        texts.__getitem__,
        seed=seed,
        threshold=threshold,
    )


def calls_of(*records: Record) -> Copies:
    return call_copies([traits(record) for record in records], seed=0)


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


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_a_near_copy_is_near_the_one_that_is_kept_and_no_two_kept_are_near(
    seed: int, threshold: float
) -> None:
    records = variants(30, seed)
    copies = near_of(records, seed, threshold)
    grams = [shingles(near_text(record)) for record in records]
    assert copies
    assert not copies.keys() & set(copies.values())
    assert all(jaccard(grams[copy], grams[kept]) >= threshold for copy, kept in copies.items())
    rest = [index for index in range(len(records)) if index not in copies]
    assert not [
        pair
        for pair in combinations(rest, 2)
        if jaccard(grams[pair[0]], grams[pair[1]]) >= threshold
    ]


def test_which_copy_is_kept_depends_on_the_seed_and_not_on_the_order() -> None:
    records = list({record.id: record for record in variants(20, 0)}.values())
    shuffled = random.Random(1).sample(records, len(records))

    def kept(records: Sequence[Record], seed: int) -> dict[str, str]:
        return {records[copy].id: records[of].id for copy, of in near_of(records, seed).items()}

    assert kept(records, 0) == kept(shuffled, 0)
    assert kept(records, 0) != kept(records, 1)


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


@pytest.mark.parametrize("name", NEAR_COPIES)
def test_near_copies_say_nearly_the_same_and_call_the_same_tools(name: str) -> None:
    other, is_copy = NEAR_COPIES[name]
    assert bool(near_of([dialog(TEXT, [trip()]), other])) == is_copy


def test_short_questions_with_one_long_answer_are_no_copies() -> None:
    answer = (
        "None of the tools on offer can be of any help with this, so I had rather not call "
        "one of them."
    )
    for queries, copies in (
        (("Test", "1+1=?"), 0),
        (("好", "上海天气"), 0),
        (("北京明天的天气", "北京明天天气"), 1),
    ):
        assert len(near_of([dialog(query, answer=answer) for query in queries])) == copies


def test_a_question_inside_a_longer_one_is_no_copy_of_it() -> None:
    answer = "".join(f"On day {day} the ferry leaves at {day}:20. " for day in range(1, 25))
    queries = ("Rain?", "Rain? And what are the fares to Bergen?")
    one, other = (dialog(query, answer=answer) for query in queries)
    assert jaccard(shingles(near_text(one)), shingles(near_text(other))) > 0.8
    assert not near_of([one, other])


def test_near_copies_are_found_in_chinese() -> None:
    asked = "请帮我查询一下明天上海浦东机场飞往北京首都机场的所有航班以及它们的票价和余票数量"
    assert near_of([dialog(asked, [trip()]), dialog(asked + "，谢谢", [trip()])])


LONG = f"{TEXT} On the way I want to see: {', '.join(WORDS)}, and then all of that again."
UNKNOWN = replace(
    dialog(LONG, [call("flight")], answer="Booked."),
    gold={1: Gold((GoldCall("flight", ANY_ARGUMENTS),))},
)
KNOWN = [dialog(LONG, [trip(to=to)], answer="Booked!!") for to in ("Bergen", "Bodø")]


def test_only_known_arguments_keep_near_copies_apart() -> None:
    for known in KNOWN:
        assert near_of([UNKNOWN, known]) and near_of([known, UNKNOWN])
    assert not near_of(KNOWN)


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


@pytest.mark.parametrize("name", SAME_CALLS)
def test_copies_by_calls_have_the_same_arguments_and_ask_much_alike(name: str) -> None:
    other, is_copy = SAME_CALLS[name]
    assert bool(calls_of(dialog(TEXT, [trip(seats=2)]), other)) == is_copy


@pytest.mark.parametrize(("shared", "more"), [(12, 12), (20, 20), (12, 13), (20, 21)])
def test_equal_calls_are_copies_from_queries_that_are_half_alike_on(shared: int, more: int) -> None:
    """By character 5-grams: as many as both share, of those of the longer one."""
    text = "whichferryleavestheoldharbouronsundaymorningatnoon"
    pair = [dialog(text[: length + 4], [trip(seats=2)]) for length in (shared, shared + more)]
    assert bool(calls_of(*pair)) == (shared >= more)


@pytest.mark.parametrize(("shared", "more"), [(24, 6), (24, 7)])
def test_dialogs_are_near_copies_from_an_index_of_eight_tenths_on(shared: int, more: int) -> None:
    text = "whichferryleavestheoldharbouronsundaymorningatnoon"
    pair = [
        Record(messages=(Message("user", "q"), Message("assistant", text[: length + 3])))
        for length in (shared, shared + more)
    ]
    assert bool(near_of(pair)) == (shared >= 0.8 * (shared + more))


@pytest.mark.parametrize("kept", ["", *SPLITS])
@pytest.mark.parametrize("copy", ["", *SPLITS])
def test_test_goes_before_dev_and_dev_before_train_where_copies_bear_splits(
    kept: str, copy: str
) -> None:
    pair = [traits(dialog(TEXT))._replace(split=split) for split in (copy, kept)]
    order = ["test", "dev", "train", ""]
    assert borne(pair, {0: 1}) == {1: min(kept, copy, key=order.index)}


def test_calls_of_one_turn_have_no_order_and_turns_have() -> None:
    one, two = trip(), call("weather", 1, city="Bergen")
    assert calls_of(dialog(TEXT, [one, two]), dialog(TEXT, [two, one]))
    assert not calls_of(dialog(TEXT, [one], [two]), dialog(TEXT, [two], [one]))


def test_calls_without_arguments_make_no_copies() -> None:
    assert not calls_of(*(dialog(TEXT, [call("weather")], answer=answer) for answer in ("a", "b")))


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ([("a", "timing_decision"), ("b", "general")], 0),
        ([("b", "general"), ("a", "timing_decision")], 1),
        ([("a", "timing_decision"), ("a", "general")], 1),
        ([("a", "general"), ("a", "general")], 0),
    ],
)
def test_of_equal_records_the_first_source_counts_before_the_first_task(
    fields: list[tuple[str, str]], kept: int
) -> None:
    record = Record(messages=(Message("user", "Is it wet?"), Message("assistant", "Yes.")))
    records = [traits(record)._replace(task=task) for _, task in fields]
    assert equal_copies(records, [source for source, _ in fields]) == {1 - kept: kept}


def test_equal_records_are_copies_of_the_first_and_hand_their_split_on() -> None:
    records = [
        traits(replace(dialog(text), split=split))
        for text, split in [("a", "train"), ("b", ""), ("a", "test"), ("a", "dev"), ("b", "")]
    ]
    copies = equal_copies(records, ["a.jsonl"] * 5)
    assert copies == {2: 0, 3: 0, 4: 1}
    assert borne(records, copies) == {0: "test", 1: ""}


def crowd(count: int) -> list[str]:
    """Texts that are alike in two thirds: no two are near, and most bands of each are those of all
    others.
    """
    chance = random.Random(0)
    shared = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=400))
    return [
        shared + "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=100)) for _ in range(count)
    ]


@pytest.mark.long
def test_in_a_crowd_each_text_is_compared_with_few_and_its_twin_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = crowd(300)
    twins = [text[:-8] for text in texts[:100]]
    compared: Counter[str] = Counter()

    def counted(text: Callable[[int], str], threshold: float) -> Callable[[int, int], bool]:
        def near(one: int, other: int) -> bool:
            compared[text(one)] += 1
            return jaccard(shingles(text(one)), shingles(text(other))) >= threshold

        return near

    monkeypatch.setattr(minhash, "is_near", counted)
    pairs = {frozenset(pair) for pair in near_ties([*texts, *twins], 0.8)}
    assert sum(frozenset({place, 300 + place}) in pairs for place in range(100)) >= 98
    assert max(compared.values()) <= 2 * minhash.MOST


def test_a_bucket_takes_no_more_than_a_crowd() -> None:
    index, own = MinHashIndex(0.8), next(sketches([TEXT]))
    for number in range(2 * CROWD):
        index.add(number, own)
    assert len(list(index.like(own))) == CROWD


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


@pytest.mark.parametrize("name", AGAINST)
def test_records_contradict_that_call_otherwise_with_the_same_before_them(name: str) -> None:
    other, contradicts = AGAINST[name]
    found = contradictions([traits(dialog("Where?")), traits(ASKED), traits(other)])
    assert found == ([[1, 2]] if contradicts else [])


def test_two_answers_in_words_do_not_contradict() -> None:
    assert not contradictions(
        [traits(dialog("Hello?", answer=answer)) for answer in ("Hi.", "Good morning.")]
    )


def test_what_was_said_before_the_turn_to_learn_is_context() -> None:
    def later(first: str, then: str) -> Traits:
        said = (
            Message("user", "Hi"),
            Message("assistant", first, loss=False),
            Message("user", "Is it wet in Oslo?"),
        )
        return traits(
            Record(
                messages=(*said, Message("assistant", "", (call("weather", city=then),))),
                tools=(WEATHER,),
            )
        )

    assert contradictions([later("Hello.", "Oslo"), later("Hello.", "Bergen")]) == [[0, 1]]
    assert not contradictions([later("Hello.", "Oslo"), later("Welcome.", "Bergen")])


# --- leaks ---

HELD_OUT = dialog(TEXT, [trip()])
LEAKING = {
    "the same query": (dialog(TEXT.lower(), answer="No."), "query"),
    "asked later in a dialog": (
        Record(
            messages=(
                *dialog("Hi", answer="Hello.").messages,
                Message("user", TEXT),
                Message("assistant", "No."),
            )
        ),
        "query",
    ),
    "nearly the same query": (dialog(TEXT + " Thank you!", answer="No."), "near"),
    "the same calls": (dialog("To Bergen from Oslo, as I said.", [trip()]), "calls"),
    "the same calls of other tools": (dialog("To Bergen!", [trip()], tools=(FLIGHT,)), ""),
    "other arguments": (dialog("From Oslo to Bodø, please.", [trip(to="Bodø")]), ""),
}


@pytest.mark.parametrize("name", LEAKING)
def test_a_record_leaks_that_gives_a_held_out_one_away(name: str) -> None:
    record, kind = LEAKING[name]
    found = leaks(
        [traits(dialog("Hi")), traits(record)], [traits(dialog("Where?")), traits(HELD_OUT)]
    )
    assert found == ({1: (kind, 1)} if kind else {})


def test_short_arguments_leak_only_beside_a_query_that_is_half_alike() -> None:
    held_out = [traits(dialog("Is it wet in Oslo at noon?", [call("weather", city="Oslo")]))]
    alike = traits(dialog("Is it wet in Oslo at night?", [call("weather", city="Oslo")]))
    unlike = traits(
        dialog("Do I need a coat in the capital of Norway?", [call("weather", city="Oslo")])
    )
    assert leaks([unlike, alike], held_out) == {1: ("calls", 0)}


def test_a_greeting_gives_nothing_away_where_something_is_asked_after_it() -> None:
    def greeted(question: str) -> Record:
        asked = dialog(question, answer="At noon.")
        return replace(
            asked,
            messages=(Message("user", "Hi!"), Message("assistant", "Hello."), *asked.messages),
        )

    held = [traits(greeted(TEXT))]
    assert leaks(
        [traits(greeted("Which ferry goes to the island on Sunday?")), traits(greeted(TEXT))], held
    ).keys() == {1}
    assert leaks([traits(dialog("Hi!", answer="Hello."))], [traits(dialog("Hi!", answer="Hello."))])


@pytest.mark.long
def test_many_rows_that_make_one_short_call_are_not_each_compared_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = Counter[str]()
    near = minhash.jaccard
    monkeypatch.setattr(minhash, "jaccard", lambda *sets: compared.update(["pair"]) or near(*sets))
    chance = random.Random(0)
    asking = [
        traits(dialog(" ".join(chance.choices(WORDS, k=12)), [call("weather", city="Oslo")]))
        for _ in range(400)
    ]
    leaks(asking[:200], asking[200:])
    assert 0 < compared["pair"] < 200 * 200 / 4


def test_held_out_files_may_have_any_known_format_and_rows_that_are_broken(tmp_path: Path) -> None:
    alpaca = {"instruction": TEXT, "input": "", "output": "No."}
    path = tmp_path / "held.jsonl"
    path.write_text(
        "\n".join([json.dumps(alpaca), "{broken", json.dumps(to_row(HELD_OUT))]), encoding="utf-8"
    )
    held_out = read_held_out([str(path)])
    assert [record.query for record in held_out.traits] == [traits(HELD_OUT).query] * 2
    assert held_out.unread == {"E121": 1}
    assert held_out.locations == [f"{path}:1", f"{path}:3"]
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{broken\n", encoding="utf-8")
    for sources in ([str(broken)], [str(path), str(broken)]):
        with pytest.raises(UserError, match="no row of it can be read") as found:
            read_held_out(sources)
        assert found.value.location == f"--holdout {broken}"


def test_every_sample_of_a_held_out_row_is_at_the_location_of_its_row(tmp_path: Path) -> None:
    row = next(one for one in rows("sage_tools") if len(samples(one)[1]) > 1)
    path = tmp_path / "held.jsonl"
    path.write_text("\n".join(map(json.dumps, [row, to_row(HELD_OUT)])) + "\n", encoding="utf-8")
    several = len(samples(row)[1])
    assert read_held_out([str(path)]).locations == [f"{path}:1"] * several + [f"{path}:2"]


def test_a_held_out_file_that_is_prepared_too_is_refused_under_any_name(tmp_path: Path) -> None:
    for name, content in {"train": "{}", "copy": "{}", "test": "[]"}.items():
        (tmp_path / f"{name}.jsonl").write_text(content, encoding="utf-8")
    train, copy, test = (str(tmp_path / f"{name}.jsonl") for name in ("train", "copy", "test"))
    assert check_held_out([test], [train]) == [test]
    for held_out in (train, copy, str(tmp_path)):
        with pytest.raises(UserError, match=r"train\.jsonl"):
            check_held_out([test, held_out], [train])


# --- keys ---


def test_keys_fit_in_64_bits_and_a_record_without_turns_has_some() -> None:
    for record in (HELD_OUT, ASKED, Record(messages=(Message("user", "Hi"),))):
        assert all(0 <= key < 1 << 64 for key in keys(record))
