"""agentlite.data.taken_rows: rows that come back from disk as they went there, in their order."""

import io
import os
import resource
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.malformed_rows import KINDS, row
from support.samples import DATA

from agentlite.config.settings import PrepSettings
from agentlite.core.errors import DISK, OTHER_PLAN, UserError
from agentlite.core.row_files import encode
from agentlite.data.formats import RawLine, read_lines
from agentlite.data.ingest_row import IngestContext, IngestedRecord, IngestedRow, LeftOut, take
from agentlite.data.rejects import Reject
from agentlite.data.taken_rows import every_nth, in_turns, read_taken, write_taken
from agentlite.rendering import choose
from agentlite.rendering.template import Template

SETTINGS = PrepSettings(
    duplicates=("equal", "near"), personal="mask", long_rows="cut", max_length=700, repair=("json",)
)


def lines() -> list[tuple[str, RawLine]]:
    """The sample rows of every format, rows of every kind of mistake, rows that are cut, masked,
    repaired and left out.
    """
    files = sorted((DATA / "formats").glob("*.jsonl"))
    found = [(str(path), line) for path in files for line in read_lines(str(path), io.BytesIO())]
    bad = [kind.bad for kind in KINDS.values() if 0 < len(kind.bad) < 10_000]
    long = row()["messages"] * 40
    said = {"role": "user", "content": "Write to ann.berg@posteo.net, Ann."}
    personal = encode(row(messages=[said, {"role": "assistant", "content": "I did."}]))
    told = [*bad, encode(row(messages=long)), personal, b"\xff{", encode(row())[:-9]]
    return [*found, *(("bad", RawLine(f"bad:{n}", one)) for n, one in enumerate(told, 1))]


@pytest.mark.long
@pytest.mark.parametrize("personal", ["mask", "drop"])
def test_what_became_of_a_row_comes_back_from_disk_as_it_was(
    personal: str, smollm2: Template, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, personal=personal)
    context = IngestContext(settings, smollm2, choose("hermes=2,react", smollm2))
    rows = [take(source, line, context) for source, line in lines()]
    counts = write_taken(tmp_path / "taken", iter(rows))
    back = list(read_taken(tmp_path / "taken"))
    assert [(one.source, one.format, [*one.repaired], one.samples) for one in back] == [
        (one.source, one.format, [*one.repaired], one.samples) for one in rows
    ]
    kinds = Counter(type(sample) for one in rows for sample in one.samples)
    assert kinds.keys() == {IngestedRecord, Reject, *([LeftOut] if personal == "drop" else [])}
    assert counts == {
        "rows": len(rows),
        "records": kinds[IngestedRecord],
        "filtered": kinds[LeftOut],
        "rejected": kinds[Reject],
    }
    assert [type(sample) for one in back for sample in one.samples] == [
        type(sample) for one in rows for sample in one.samples
    ]


@given(st.lists(st.integers()), st.integers(1, 9))
def test_rows_that_are_dealt_out_to_shards_come_together_in_their_order(
    rows: list[int], count: int
) -> None:
    read: list[int] = []

    def watched() -> object:
        for one in rows:
            read.append(one)
            yield one

    shards = [list(every_nth(watched(), number, count)) for number in range(1, count + 1)]
    assert list(in_turns(shards)) == rows
    assert read == rows * count  # to the end: what is found there counts for every shard


@pytest.mark.parametrize("damage", [b"\x00\x00\x00\x05junk!", b"\x00\x00\x00\x09\x97"])
def test_a_file_that_this_version_did_not_write_is_named(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(damage)
    with pytest.raises(UserError, match="cannot be read") as refused:
        list(read_taken(tmp_path / "taken"))
    assert refused.value.exit_code == OTHER_PLAN
    assert refused.value.location == str(tmp_path / "taken")


def test_more_shards_than_files_may_be_open_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    for number in range(40):
        write_taken(tmp_path / str(number), [IngestedRow("a", "", (), [])])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 20, before[1]))
    try:
        with pytest.raises(UserError, match="cannot be read") as refused:
            list(in_turns([read_taken(tmp_path / str(number)) for number in range(40)]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert refused.value.exit_code == DISK and "ulimit -n" in refused.value.fix
