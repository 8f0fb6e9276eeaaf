"""agentlite.data.ingest: what becomes of each row."""

import json
from typing import Any

import pytest
from support.examples import cost

from agentlite.config.settings import PrepSettings
from agentlite.core.records import Message, Record
from agentlite.data.formats import FORMATS
from agentlite.data.formats.raw_rows import Raw
from agentlite.data.ingest import IngestContext, IngestedRows
from agentlite.rendering import choose
from agentlite.rendering.template import Template
from agentlite.stages.prep.check import notes


def context(template: Template, **settings: Any) -> IngestContext:
    return IngestContext(PrepSettings(**settings), template, choose("hermes", template))


def lines(*contents: Any) -> list[Raw]:
    return [
        Raw(f"f:{number}", json.dumps(content).encode() + b"\n")
        for number, content in enumerate(contents, 1)
    ]


def openai_row(*turns: str, **more: Any) -> dict[str, Any]:
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(turns)
    ]
    return {"messages": messages, **more}


def taken(line: Raw, context: IngestContext) -> tuple[IngestedRows, dict[str, Any]]:
    """What is known of one row; of its first sample where it is from, what was done to it, and the
    record.
    """
    with IngestedRows(None) as ingested:
        ingested.add("dir/f", line, context)
        origin = next(ingested.origins.read([0])) if len(ingested.origins) else {}
        if ingested.traits:
            origin["record"] = ingested.record(0)
        return ingested, origin


def test_a_row_may_have_as_many_tokens_as_max_length(smollm2: Template) -> None:
    (line,) = lines(openai_row("What is it?", "A fish.", "Which one?", "A herring. " * 9))
    whole, origin = taken(line, context(smollm2))
    length = whole.sizes[0].longest
    assert len(taken(line, context(smollm2, max_length=length))[0].traits) == 1
    (reject,) = taken(line, context(smollm2, max_length=length - 1))[0].rejects
    assert (reject.code, reject.content) == ("E217", line.content.rstrip())
    assert f"{length} tokens" in reject.reason
    _, left = taken(line, context(smollm2, max_length=length - 1, long_rows="filter"))
    assert (left["code"], left["location"], left["id"]) == ("F302", "f:1", origin["id"])
    cut, done = taken(line, context(smollm2, max_length=length - 1, long_rows="cut"))
    tokens = cut.sizes[0].longest
    again, _ = taken(line, context(smollm2, max_length=tokens, long_rows="cut"))
    assert again.traits == cut.traits  # what is left may fill the length, too
    assert done["done"]["was"] == origin["id"]
    assert done["done"]["cut"] == f"2 of 4 messages, {tokens} of {length} tokens left"
    assert cut.traits[0].parents == (done["id"], origin["id"])


@pytest.mark.parametrize("long_rows", ["reject", "cut"])
def test_a_dialog_of_hundreds_of_turns_that_is_too_long_costs_no_square(
    smollm2: Template, long_rows: str
) -> None:
    def read(turns: int) -> None:
        (line,) = lines(openai_row(*(f"Is it wet {n}?" for n in range(2 * turns))))
        found, _ = taken(line, context(smollm2, max_length=200, long_rows=long_rows))
        assert len(found.rejects if long_rows == "reject" else found.traits) == 1

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
    _, origin = taken(line, context(smollm2, personal=how))
    if how == "drop":
        assert (origin["code"], origin["done"]) == ("F311", done)
        return
    text = origin["record"].messages[0].content
    assert text == ("Write to <MAIL_1>!" if how == "mask" else "Write to ann@mail.org!")
    was_done = origin["done"]
    assert {key: was_done[key] for key in was_done if key in ("personal", "masked")} == done
    assert ("was" in was_done) == (how == "mask")


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
        line = Raw("a:1", FORMATS[name].example.encode() + b"\n")
        _, origin = taken(line, context)
        done.append(origin.get("done", {}).get("system", ""))
        return origin["record"]

    done: list[str] = []
    plain, added = of(""), of(text)
    if plain.is_text or plain.messages[0].role == "system":
        assert added == plain and done == ["", ""]
        return
    assert done == ["", "added"]
    assert added.messages == (Message("system", text), *plain.messages)
    for turn in plain.turns:
        assert added.gold_at(turn + 1) == plain.gold_at(turn)
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
    (rejected,) = taken(line, context(smollm2))[0].rejects
    assert rejected.code == "E203"
    _, origin = taken(line, context(smollm2, unanswered="cut"))
    assert [m.content for m in origin["record"].messages] == ["q", "a"]
    assert origin["done"]["unanswered"] == f"{len(behind)} messages cut"
    call = {"function": {"name": "f", "arguments": "{}"}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "4"}]
    (line,) = lines({"messages": [*row["messages"][:1], *turns], "tools": [{"name": "f"}]})
    _, origin = taken(line, context(smollm2, unanswered="cut"))
    # the call is learned, and its result left out
    assert [m.role for m in origin["record"].messages] == ["user", "assistant"]


def test_a_block_behind_another_in_most_rows_of_a_file_is_noticed(smollm2: Template) -> None:
    answers = ["<find>a</find><facts>1</facts> One.", "<find>b</find>\n<facts>2</facts>", "Three."]
    with IngestedRows(None) as ingested:
        for answer in answers:
            (line,) = lines(openai_row("q", answer))
            ingested.add("a.jsonl", line, context(smollm2))
        (note,) = notes(ingested, 0)
        assert note.startswith("2 records of a.jsonl are trained on a block 'facts' right behind")
        for answer in answers[2:] * 2:
            (line,) = lines(openai_row("q", answer))
            ingested.add("a.jsonl", line, context(smollm2))
        assert not [*notes(ingested, 0)]
