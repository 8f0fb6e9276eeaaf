"""agentlite.data.ingest: what becomes of each row."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from support.examples import cost

from agentlite.config.settings import PrepSettings
from agentlite.core.records import Message, Record, from_row
from agentlite.data.formats import FORMATS, RawLine
from agentlite.data.ingest import (
    IngestContext,
    Ingested,
    IngestedRecord,
    LeftOut,
    take,
)
from agentlite.data.rejects import Reject
from agentlite.rendering import choose
from agentlite.rendering.template import Template
from agentlite.stages.prep.check import notes


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
    again = context(smollm2, max_length=cut.sized.longest, long_rows="cut")
    assert take("dir/f", line, again).samples == [cut]  # what is left may fill the length, too
    assert cut.done["was"] == sample.traits.id
    left = f"2 of 4 messages, {cut.sized.longest} of {length} tokens left"
    assert (cut.done["cut"], cut.traits.parents) == (left, (cut.traits.id, sample.traits.id))


@pytest.mark.parametrize("long_rows", ["reject", "cut"])
def test_a_dialog_of_hundreds_of_turns_that_is_too_long_costs_no_square(
    smollm2: Template, long_rows: str
) -> None:
    def read(turns: int) -> None:
        (line,) = lines(openai_row(*(f"Is it wet {n}?" for n in range(2 * turns))))
        (sample,) = take("f", line, context(smollm2, max_length=200, long_rows=long_rows)).samples
        assert isinstance(sample, Reject if long_rows == "reject" else IngestedRecord)

    read(100)
    assert cost(lambda: read(400)) < 6 * cost(lambda: read(100))


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
        names = {"model_name": ("Dove",), "model_author": ("Ada",)}
        settings = PrepSettings(system=system, max_length=9999, **names)
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


@pytest.mark.parametrize(
    "behind", [["And now?"], ["And now?", "And then?"]], ids=["one question", "two"]
)
def test_what_follows_the_last_answer_is_cut_where_the_user_wants_it(
    behind: list[str], smollm2: Template
) -> None:
    row = openai_row("q", "a")
    row["messages"] += [{"role": "user", "content": text} for text in behind]
    (line,) = lines(row)
    (rejected,) = take("f", line, context(smollm2)).samples
    assert isinstance(rejected, Reject) and rejected.code == "E203"
    (sample,) = take("f", line, context(smollm2, unanswered="cut")).samples
    assert isinstance(sample, IngestedRecord)
    assert [m.content for m in from_row(json.loads(sample.row)).messages] == ["q", "a"]
    assert sample.done["unanswered"] == f"{len(behind)} messages cut"
    call = {"function": {"name": "f", "arguments": "{}"}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "4"}]
    (line,) = lines({"messages": [*row["messages"][:1], *turns], "tools": [{"name": "f"}]})
    (sample,) = take("f", line, context(smollm2, unanswered="cut")).samples
    assert isinstance(sample, IngestedRecord)  # the call is learned, and its result left out
    assert [m.role for m in from_row(json.loads(sample.row)).messages] == ["user", "assistant"]


def test_a_block_behind_another_in_most_rows_of_a_file_is_noticed(smollm2: Template) -> None:
    answers = ["<find>a</find><facts>1</facts> One.", "<find>b</find>\n<facts>2</facts>", "Three."]
    with Ingested(None) as ingested:
        for answer in answers:
            (line,) = lines(openai_row("q", answer))
            ingested.add(take("a.jsonl", line, context(smollm2)))
        (note,) = notes(ingested, 0)
        assert note.startswith("2 records of a.jsonl are trained on a block 'facts' right behind")
        for answer in answers[2:] * 2:
            (line,) = lines(openai_row("q", answer))
            ingested.add(take("a.jsonl", line, context(smollm2)))
        assert not [*notes(ingested, 0)]
