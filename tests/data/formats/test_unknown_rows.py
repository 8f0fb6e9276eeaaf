"""agentlite.data.formats: rows that cannot be read say what they are and what helps;
a dialog that is written as text is read.
"""

import json

import pytest
from support.damaged_rows import rows
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.data.formats import DIALOG_KEYS, samples, to_record


@pytest.mark.parametrize("name", sorted(path.stem for path in (DATA / "formats").glob("*.jsonl")))
def test_a_dialog_that_is_written_as_text_is_the_same(name: str) -> None:
    """As columns of Parquet often are."""
    for row in rows(name):
        texts = {
            key: json.dumps(row[key], ensure_ascii=False)
            for key in DIALOG_KEYS
            if isinstance(row.get(key), list)
        }
        read, parts = samples(row)
        assert samples({**row, **texts}) == (read, parts)


@pytest.mark.parametrize("text", ["[{'role': 'user', 'content': 'Hi", '[{"role": "user"}'])
def test_a_dialog_as_text_that_is_cut_is_refused(text: str) -> None:
    with pytest.raises(RowError) as caught:
        samples({"messages": text})
    assert (caught.value.code, caught.value.at) == ("E201", "messages")


def test_a_question_that_begins_like_a_list_is_a_text() -> None:
    question = '[{"role": "user"}, what is this?'
    _, (row,) = samples({"prompt": question, "completion": "A list that is not closed."})
    assert to_record(row).messages[0].content == question
