"""What rows say of themselves, under keys that their format does not know, is heeded whatever the
format.
"""

import json
from itertools import product
from typing import Any

import pytest
from support.examples import sample

from agentlite.core.records import Record
from agentlite.data.curation.coreset import wording
from agentlite.data.curation.task_labels import classified
from agentlite.data.formats import FORMATS, samples, to_record

# rows of these hold what agentlite or BFCL wrote, and nothing else
CLOSED = {"agentlite", "bfcl"}
LOCATIONS = {
    "the row": lambda fields: fields,
    "metadata": lambda fields: {"metadata": fields},
    "meta": lambda fields: {"meta": fields},
}

PAIRS = [*product([name for name in FORMATS if name not in CLOSED], LOCATIONS)]


def read(name: str, fields: dict[str, Any]) -> Record:
    row = json.loads(FORMATS[name].example)
    row = {key: value for key, value in row.items() if key != "split"} | fields
    _, parts = samples(row, name)
    return to_record(parts[0], name)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0, "0"), ("0", "0"), (7, "7"), ("row 7", "row 7"), ("", None), (None, None)],
)
def test_the_id_of_a_row_is_kept_also_if_it_is_the_first(given: object, kept: str | None) -> None:
    assert read("alpaca", {"id": given}).meta.get("source_id") == kept


@pytest.mark.parametrize(("name", "location"), sample(26, PAIRS))
def test_the_loss_of_a_row_is_its_proxy_loss_in_every_format(name: str, location: str) -> None:
    record = read(name, LOCATIONS[location]({"loss": 3.25}))
    assert wording(record).proxy_loss == 3.25
    unsaid = read(name, LOCATIONS[location]({"other": 3.25}))
    assert wording(unsaid).proxy_loss != 3.25


@pytest.mark.parametrize(("name", "location"), sample(26, PAIRS))
def test_the_task_type_of_a_row_is_its_task_in_every_format(name: str, location: str) -> None:
    if name == "sage_benchmark":  # whose own task_type says how its truth is written
        return
    names = {"tool_retrieval": "tool_retrieval", "timing_judgment": "timing_decision"}
    for said, task in names.items():
        record, rule = classified(read(name, LOCATIONS[location]({"task_type": said})))
        assert (record.task, rule) == (task, "said")
    unknown = read(name, LOCATIONS[location]({"task_type": "a task of nobody"}))
    assert classified(unknown)[0].task == classified(read(name, {}))[0].task


@pytest.mark.parametrize(("name", "location"), sample(26, PAIRS))
def test_the_split_that_a_row_names_is_its_split_in_every_format(name: str, location: str) -> None:
    refuses_others = name in ("sage_sft", "sage_benchmark") and location == "the row"
    names = {"train": "train", "dev": "dev", "test": "test"}
    others = {"validation": "dev", "Val": "dev", "train_sft": "", "": "", 3: ""}
    for said, split in (names if refuses_others else names | others).items():
        assert read(name, LOCATIONS[location]({"split": said})).split == split
