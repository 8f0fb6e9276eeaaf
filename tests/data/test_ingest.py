"""agentlite.data.ingest: what becomes of each row, and counts that add up."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.records import Message, Record, from_row, to_row
from agentlite.core.row_files import encode
from agentlite.data.curation.coreset import Wording
from agentlite.data.curation.stats import Sized
from agentlite.data.curation.traits import traits
from agentlite.data.formats import FORMATS, RawLine
from agentlite.data.ingest import (
    End,
    IngestContext,
    Ingested,
    IngestedRecord,
    IngestedRow,
    LeftOut,
    take,
)
from agentlite.data.rejects import Reject
from agentlite.rendering import choose
from agentlite.rendering.template import Template


def asking(text: str) -> Record:
    return Record(messages=(Message("user", text), Message("assistant", "a")))


def taken(text: str, place: str, **done: Any) -> IngestedRecord:
    record, size = asking(text), Sized("react", 1, 1, 1, 1, "Latin", (), (), Wording(0.5, 1.0))
    cut = {"location": place} if "cut" in done else None
    row = encode(to_row(record))
    return IngestedRecord(row, place, traits(record), size, done, cut, b"s" * ("near" in done))


def test_each_row_is_counted_once_by_where_it_ends() -> None:
    with Ingested(None) as ingested:
        masked = {"masked": {"mail": 2}}
        for row in (
            IngestedRow("a", "openai", (), [taken("one", "a:1", **masked)]),
            IngestedRow("a", "", (), [Reject("a:2", b"{", "E121", "no JSON")]),
            IngestedRow("b", "bfcl", ["literal"], [taken("two", "b:1", cut="x", near=1)]),
            IngestedRow(
                "b", "openai", (), [LeftOut("F311", "b:2", "id", {"personal": {"key": 1}})]
            ),
            IngestedRow(
                "b", "xlam", (), [taken("three", "b:3"), taken("four", "b:3", retrieved={"n": 1})]
            ),
        ):
            ingested.add(row)
        assert ingested.read == 6
        assert ingested.sources == ["a", "b", "b", "b"]
        assert ingested.formats == {"a": {"openai": 1}, "b": {"bfcl": 1, "openai": 1, "xlam": 1}}
        assert (ingested.repaired, ingested.left_out) == ({"literal": ["b:1"]}, {"F311": 1})
        assert (ingested.personal, ingested.retrieved) == ({"mail": 2, "key": 1}, {"n": 1})
        assert (ingested.cuts, ingested.sketches) == ([{"location": "b:1"}], [b"s"])
        assert [reject.location for reject in ingested.rejects] == ["a:2"]
        assert [ingested.record(n).messages[0].content for n in (3, 0, 2)] == [
            "four",
            "one",
            "three",
        ]
        ends = {1: End("D401", "of"), 3: End("F312")}
        by_file = ingested.by_file(ends)
        assert by_file == {
            "a": {"read": 2, "kept": 1, "rejected": 1, "duplicates": 0, "filtered": 0},
            "b": {"read": 4, "kept": 1, "rejected": 0, "duplicates": 1, "filtered": 2},
        }
        ids = [record.id for record in map(asking, ("one", "two", "three", "four"))]
        cut = {"repaired": ["literal"], "cut": "x", "near": 1}
        assert list(ingested.provenance(ends, {0: "train", 2: "dev"}, {0: 2, 2: 1})) == [
            at("a:1", ids[0], "openai", done=masked, end="kept", split="train", times=2),
            at("b:1", ids[1], "bfcl", done=cut, end="duplicates", code="D401", of="of"),
            at("b:2", "id", "openai", done={"personal": {"key": 1}}, end="filtered", code="F311"),
            at("b:3", ids[2], "xlam", end="kept", split="dev"),
            at("b:3", ids[3], "xlam", done={"retrieved": {"n": 1}}, end="filtered", code="F312"),
        ]


def at(place: str, record_id: str, format: str, **more: Any) -> dict[str, Any]:
    return {"id": record_id, "location": place, "format": format, **more}


# --- one row ---


def context(template: Template, **settings: Any) -> IngestContext:
    return IngestContext(PrepSettings(**settings), template, choose("hermes", template))


def lines(*contents: Any) -> list[RawLine]:
    return [
        RawLine(f"f:{number}", json.dumps(content).encode() + b"\n")
        for number, content in enumerate(contents, 1)
    ]


def openai_row(*turns: str, **more: Any) -> dict[str, Any]:
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)
    ]
    return {"messages": messages, **more}


def test_a_row_may_have_as_many_tokens_as_max_length(smollm2: Template) -> None:
    (line,) = lines(openai_row("What is it?", "A fish.", "Which one?", "A herring. " * 9))
    (sample,) = take("dir/f", line, context(smollm2)).samples
    assert isinstance(sample, IngestedRecord)
    length = sample.sized.longest
    for room, expected in ((length, None), (length - 1, "E217")):
        (found,) = take("dir/f", line, context(smollm2, max_length=room)).samples
        assert isinstance(found, Reject if expected else IngestedRecord)
        if isinstance(found, Reject):
            assert (found.code, found.content) == (expected, line.content.rstrip())
            assert f"{length} tokens" in found.reason
    short = context(smollm2, max_length=length - 1, long_rows="filter")
    (left,) = take("dir/f", line, short).samples
    assert isinstance(left, LeftOut)
    assert (left.code, left.location, left.id) == ("F302", "f:1", sample.traits.id)
    (cut,) = take("dir/f", line, short._replace(settings=replace(short.settings, long_rows="cut")))[
        3
    ]
    assert isinstance(cut, IngestedRecord)
    assert cut.cut == {
        "location": "f:1",
        "id": cut.traits.id,
        "parent": sample.traits.id,
        "messages": 2,
        "of_messages": 4,
        "tokens": cut.sized.longest,
        "of_tokens": length,
    }
    again = context(smollm2, max_length=cut.sized.longest, long_rows="cut")
    assert take("dir/f", line, again).samples == [cut]  # what is left may fill the length, too
    assert cut.done["was"] == sample.traits.id
    assert cut.done["cut"] == "2 of 4 messages left"


@pytest.mark.parametrize(
    ("how", "done"),
    [
        ("off", {}),
        ("report", {"personal": {"mail": 1}}),
        ("mask", {"masked": {"mail": 1}}),
        ("drop", {"personal": {"mail": 1}}),
    ],
)
def test_personal_data_stays_is_masked_or_leaves_the_row_out(
    how: str, done: dict[str, Any], smollm2: Template
) -> None:
    (line,) = lines(openai_row("Write to ann@mail.org!", "Done."))
    (sample,) = take("f", line, context(smollm2, personal=how)).samples
    if how == "drop":
        assert isinstance(sample, LeftOut)
        assert (sample.code, sample.done) == ("F311", done)
        return
    assert isinstance(sample, IngestedRecord)
    text = from_row(json.loads(sample.row)).messages[0].content
    assert text == ("Write to <MAIL_1>!" if how == "mask" else "Write to ann@mail.org!")
    assert {key: sample.done[key] for key in sample.done if key in ("personal", "masked")} == done
    assert ("was" in sample.done) == (how == "mask")


# --- messages on the wire ---


@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_every_format_get_the_system_text_unless_they_have_one(
    name: str, smollm2: Template
) -> None:
    text = "You are 卡卡罗特, made by 陶白白."

    def of(system: str) -> Record:
        settings = PrepSettings(system=system, max_length=9999)
        context = IngestContext(settings, smollm2, choose("auto", smollm2))
        row = take("a.jsonl", RawLine("a:1", FORMATS[name].example.encode() + b"\n"), context)
        (sample, *_) = row.samples
        assert isinstance(sample, IngestedRecord)
        done.append(sample.done.get("system", ""))
        return from_row(json.loads(sample.row))

    done: list[str] = []
    plain, added = of(""), of(text)
    if plain.is_text or plain.messages[0].role == "system":
        assert added == plain and done == ["", ""]
        return
    assert done == ["", "added"]
    assert added.messages == (Message("system", text), *plain.messages)
    for turn in plain.turns:
        assert added.expected(turn + 1) == plain.expected(turn)
    assert added.prompted_turns == [turn + 1 for turn in plain.prompted_turns]
