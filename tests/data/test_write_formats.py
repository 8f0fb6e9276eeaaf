"""Every format goes in, and out again, without losing a call, a thought or a result."""

import io
import json
import re
from collections.abc import Iterator
from itertools import product

import pytest
from msgspec.structs import replace
from support.damaged_rows import READ_AS
from support.samples import DATA, ROOT
from support.unknown_arguments import RECORD

from agentlite.core.records import Message, Record, from_row, to_row
from agentlite.core.reject_codes import CODES
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, to_record
from agentlite.data.formats.raw_rows import read_raw
from agentlite.stages.prep.write import openai_row

FILES = sorted((DATA / "formats").glob("*.jsonl"))


def records_of(path) -> Iterator[Record]:
    name = READ_AS.get(path.stem, path.stem)
    for raw in read_raw(str(path), io.BytesIO()):
        assert raw.error is None, raw
        for part in FORMATS[name].samples(raw.value):
            yield to_record(part, name)


def said(record: Record) -> list[Message]:
    """The dialog without the ids of calls, and whether its turns are learned."""
    return [
        replace(m, call_id="", loss=True, calls=tuple(replace(call, id="") for call in m.calls))
        for m in record.messages
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_record_on_disk_is_the_record(path):
    for record in records_of(path):
        assert from_row(json.loads(json.dumps(to_row(record)))) == record


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_lost_on_the_way_out_and_in_again(path):
    for record in records_of(path):
        again = to_record(json.loads(json.dumps(openai_row(record))))
        assert said(again) == said(record)
        assert again.tools == record.tools
        if not record.is_text:
            validate(again)


def test_a_plain_text_is_a_text():
    record = Record(messages=(Message("assistant", "Rain."),), meta={"whole": True})
    assert openai_row(record) == {"text": "Rain."}


# --- codes ---


def test_every_code_that_is_raised_is_explained():
    source = (ROOT / "agentlite").rglob("*.py")
    raised = {
        code
        for path in source
        for code in re.findall(r'RowError\(\s*"([EF]\d{3})"', path.read_text())
    }
    assert len(raised) > 20
    assert raised <= CODES.keys()
    assert {"E121", "E206"} <= {*CODES}


def test_other_trainers_learn_the_turns_that_are_learned_here_and_whose_arguments_are_known():
    for learned in product((True, False), repeat=len(RECORD.messages)):
        for gold in (RECORD.gold, {}):
            messages = [
                replace(message, loss=loss)
                for message, loss in zip(RECORD.messages, learned, strict=True)
            ]
            record = replace(RECORD, messages=tuple(messages), gold=gold)
            again = to_record(json.loads(json.dumps(openai_row(record))))
            assert [again.messages[turn].loss for turn in RECORD.turns] == [
                learned[turn] and turn not in gold for turn in RECORD.turns
            ]
