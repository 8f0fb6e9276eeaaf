"""agentlite.data.augment: variants of train records that fit; what may be learned again."""

from typing import Any

import pytest
from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core.records import Call, Message, Record, Tool
from agentlite.data.augment import augment, augments, learnable
from agentlite.data.ingest import IngestContext, measure
from agentlite.rendering import choose
from agentlite.rendering.template import Template


def context(template: Template, **settings: Any) -> IngestContext:
    return IngestContext(PrepSettings(**settings), template, choose("hermes", template))


def calling(name: str, query: str) -> Record:
    call = Message("assistant", "", (Call(name, {}, "call_0"),))
    tool = Tool(name, f"Does {name}.")
    return Record(messages=(Message("user", query), call), tools=(tool,), split="train")


RECORDS = [calling(name, f"Please do {name}, will you?") for name in ("jump", "sing", "whistle")]


@pytest.mark.parametrize(
    "settings",
    [{"distractors": 1}, {"join": 2}, {"remove_tool": 0.1}, {"mask_names": 0.1}],
    ids=str,
)
def test_each_setting_alone_makes_variants_and_without_them_there_are_none(settings: Any) -> None:
    assert augments(PrepSettings(**settings))
    assert not augments(PrepSettings(join=1))


def test_an_earlier_record_is_learned_again_if_it_fits_and_is_not_dropped(
    smollm2: Template,
) -> None:
    length = measure(RECORDS[0], context(smollm2)).longest
    assert learnable(RECORDS[0], context(smollm2)) is not None
    assert learnable(RECORDS[0], context(smollm2, max_length=length - 1)) is None
    personal = calling("mail", "Write to ann@mail.org!")
    assert learnable(personal, context(smollm2, personal="drop")) is None
    kept = learnable(personal, context(smollm2, personal="report"))
    masked = learnable(personal, context(smollm2, personal="mask"))
    assert kept is not None
    assert kept.messages == personal.messages
    assert masked is not None
    assert masked.messages[0].content == "Write to <MAIL_1>!"
    assert masked.task == "tool_selection"


def test_records_are_joined_while_their_tokens_have_room(smollm2: Template) -> None:
    tokens = [measure(record, context(smollm2)).tokens for record in RECORDS]
    for room, dialogs in ((sum(tokens), 1), (max(tokens) - 1, 3), (sum(tokens) - 1, 2)):
        joined, _ = augment(RECORDS, context(smollm2, join=3, join_tokens=room))
        assert len(joined) == dialogs
    whole = [replace(record, split="") for record in RECORDS]  # as they are read
    for count, room in ((3, max(tokens)), (1, sum(tokens))):
        short, _ = augment(whole, context(smollm2, join=3, max_length=room))
        assert len(short) == count
        assert {record.split for record in short} == {"train"}


def test_a_record_that_would_get_too_long_stays_as_it_was(smollm2: Template) -> None:
    longest = max(measure(record, context(smollm2)).longest for record in RECORDS)
    wider, _ = augment(RECORDS, context(smollm2, distractors=2, seed=1))
    assert [len(record.tools) for record in wider] != [1, 1, 1]
    narrow, _ = augment(RECORDS, context(smollm2, distractors=2, seed=1, max_length=longest))
    assert narrow == RECORDS
    masked, made = augment(RECORDS, context(smollm2, mask_names=1.0))
    assert made["masked"] == {"made": 3}
    assert masked[:3] == RECORDS
    assert [record.parent for record in masked[3:]] == [record.id for record in RECORDS]
    none, made = augment(RECORDS, context(smollm2, mask_names=1.0, max_length=1))
    assert (none, made["left out"]) == (RECORDS, {"too long": 3})
