"""The steps of curation in a row: what each leaves out, under which code, and what it counts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.records import Call, Message, Record, Tool, to_row
from agentlite.data.curation.coreset import BufferState, Wording, add_to_buffer, find_buffer
from agentlite.data.curation.traits import traits
from agentlite.data.ingest import End
from agentlite.stages.prep.select import Selection, select

TOOLS = (Tool("weather", "Rain."), Tool("clock", "Time."))
QUESTIONS = (
    "Is it wet in Oslo this morning?",
    "When does the last ferry leave Bergen?",
    "Who painted the ceiling in that old chapel?",
    "How many spoons of salt go into the soup?",
    "Which of my lamps is still switched on?",
    "Why did the printer refuse the second page?",
)


def asking(
    number: int, tool: str = "", split: str = "train", answer: str = "Yes.", **fields: Any
) -> Record:
    calls = (Call(tool, {"at": "noon"}, "call_0"),) if tool else ()
    turn = Message("assistant", "" if tool else answer, calls)
    dialog = (Message("user", QUESTIONS[number]), turn)
    return Record(messages=dialog, tools=TOOLS, split=split, **fields)


def selected(
    records: Sequence[Record],
    losses: Mapping[int, float] | None = None,
    held_out: Sequence[Record] = (),
    sources: Sequence[str] = (),
    buffer: BufferState | None = None,
    **settings: Any,
) -> Selection:
    """`losses`: by index."""
    sources = sources or ["a.jsonl"] * len(records)

    ingested: Any = SimpleNamespace(
        traits=[traits(record) for record in records],
        sources=sources,
        sizes=[
            SimpleNamespace(wording=Wording((losses or {}).get(index, 0.0), 0.0))
            for index in range(len(records))
        ],
        record=lambda index: records[index],
    )
    given = {"dev": 0.0, "test": 0.0, **settings}
    context: Any = SimpleNamespace(
        settings=PrepSettings(sources=(*dict.fromkeys(sources),), **given)
    )
    held = [traits(one)._replace(source="held.jsonl:1") for one in held_out]
    return select(Selection(ingested, context, held, buffer))


def test_an_equal_record_is_left_out_and_leaves_its_split_to_the_first() -> None:
    first = asking(0, split="")
    found = selected([first, asking(1), asking(0, split="test")])
    assert {index: one.split for index, one in found.kept.items()} == {0: "test", 1: "train"}
    assert found.ends == {2: End("D401", first.id)}
    assert [*selected([first, asking(0)], duplicates=("none",)).kept] == [0, 1]


def test_contradictions_are_named_or_left_out_with_one_that_they_contradict() -> None:
    records = [asking(0, "weather"), asking(1, "weather"), asking(0, "clock")]
    reported = selected(records)
    assert [*reported.kept] == [0, 1, 2] and reported.figures["contradictions"] == 2
    (note,) = reported.notes
    assert note.startswith(
        f"2 records contradict each other, {records[0].id} and {records[2].id} among them"
    )
    dropped = selected(records, contradictions="drop")
    assert [*dropped.kept] == [1] and not dropped.notes
    assert dropped.ends == {0: End("F321", records[2].id), 2: End("F321", records[0].id)}
    agreeing = selected(records[:2], contradictions="drop")
    assert [*agreeing.kept] == [0, 1] and "contradictions" not in agreeing.figures


def test_what_a_held_out_file_asks_is_left_out_with_its_place() -> None:
    found = selected([asking(0), asking(1)], held_out=[asking(1, answer="At nine.")])
    assert [*found.kept] == [0] and found.ends == {1: End("F331", "held.jsonl:1")}


def test_a_question_that_is_asked_in_two_splits_stays_in_one() -> None:
    records = [asking(0), asking(0, split="test", answer="No."), asking(1)]
    found = selected(records)
    assert {index: one.split for index, one in found.kept.items()} == {1: "test", 2: "train"}
    assert found.ends == {0: End("F332", records[1].id)}


def test_a_coreset_holds_the_hardest_of_train_and_all_of_dev_and_test() -> None:
    records = [*map(asking, range(4)), asking(4, split="dev"), asking(5, split="test")]
    losses = {0: 0.5, 1: 3.0, 2: 1.25, 3: 2.0}
    found = selected(records, losses, coreset_strategy="loss_topk", coreset_target_size=2)
    assert [*found.kept] == [1, 3, 4, 5]
    assert found.ends == {0: End("F341"), 2: End("F341")}
    assert sum(found.figures["coreset"].values()) == 2


def test_a_group_that_is_too_small_is_repeated_in_train_alone() -> None:
    records = [*map(asking, range(5)), asking(5, split="test")]
    sources = ["many.jsonl"] * 3 + ["few.jsonl"] * 3
    found = selected(records, sources=sources, mix=("many=many.jsonl:0.25", "few=few.jsonl:0.75*"))
    assert [*found.kept] == [0, 1, 2, 3, 4, 5]
    assert found.repeats == {3: 3, 4: 3}
    assert found.figures["repeated"] == {"records": 2, "rows": 6}


def buffer_of(earlier: Sequence[Record], folder: Path) -> BufferState:
    add_to_buffer(find_buffer(folder, "0" * 16), map(to_row, earlier), capacity=9, seed=0)
    return find_buffer(folder, "1" * 16)


@pytest.mark.parametrize("barred", ["held_out", "dev", "test", "read", "left_out", "unlearnable"])
def test_an_earlier_record_is_replayed_unless_it_is_here_or_gives_away_or_may_not_be_learned(
    barred: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, new = [*map(asking, range(5))], asking(5)
    monkeypatch.setitem(
        select.__globals__,
        "learnable_record",
        lambda one, _: None if barred == "unlearnable" and one == earlier[0] else one,
    )
    asked = asking(0, answer="At nine.")
    records = {
        "dev": [replace(asked, split="dev"), new],
        "test": [replace(asked, split="test"), new],
        "read": [earlier[0], new],
        "left_out": [earlier[0], new],
    }
    found = selected(
        records.get(barred, [new]),
        held_out=[asked] if barred == "held_out" else [],
        limit=1 if barred == "left_out" else None,
        seed=2,
        buffer=buffer_of(earlier, tmp_path),
        continual_replay_ratio=9.0,
    )
    assert (0 in found.ends) == (barred == "left_out")
    assert {row["id"] for row in found.replayed} == {record.id for record in earlier[1:]}
