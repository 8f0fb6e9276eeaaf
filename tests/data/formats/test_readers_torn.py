"""A packed file that is torn or damaged: the rows before that are read, the place is a reject."""

import gzip
import io
import json
import random
from collections.abc import Callable

import pytest
import zstandard
from support.examples import in_turn

from agentlite.core.errors import UserError
from agentlite.data.formats import Raw, read_raw
from agentlite.data.formats.readers import PACKED

BLOCK = 128 << 10  # bytes of rows that zstd packs together, and unpacks together or not at all
SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)


def zstd(content: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True, **options).compress(content)


def in_parts(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Several members or frames, one after another, as tools that append leave them."""
    return lambda content: b"".join(
        pack(content[start : start + 50_000]) for start in range(0, len(content), 50_000)
    )


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "zstd without a size": lambda content: zstd(content, write_content_size=False),
    "gzip in parts": in_parts(gzip.compress),
    "zstd in parts": in_parts(zstd),
}
SHAPES: dict[str, Callable[[list[dict[str, object]]], str]] = {
    "lines": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    "lines without a last line break": lambda rows: "\n".join(map(json.dumps, rows)),
    "array on one line": json.dumps,
    "array over lines": lambda rows: json.dumps(rows, indent=1),
    "objects over lines": lambda rows: "\n".join(json.dumps(row, indent=1) for row in rows),
}


def rows_of(count: int) -> list[dict[str, object]]:
    chance = random.Random(0)
    return [{"number": n, "text": chance.randbytes(40).hex()} for n in range(count)]


def read(content: bytes) -> list[Raw]:
    return list(read_raw("-", io.BytesIO(content)))


def good(found: list[Raw]) -> list[object]:
    return [one.value for one in found if not one.error]


def test_every_container_that_is_read_is_torn_here():
    begins = {pack(b"{}")[:4] for pack in PACK.values()}
    assert all(any(begin.startswith(magic) for begin in begins) for magic in PACKED)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", in_turn(3, [*PACK]))
@pytest.mark.parametrize("count", [12, 5000])
def test_the_rows_before_a_tear_are_read_and_the_tear_is_the_last_reject(how, shape, count):
    rows = rows_of(count)
    content = SHAPES[shape](rows).encode()
    packed = PACK[how](content)
    assert good(read(packed)) == rows
    for share in SHARES:
        *before, tear = read(packed[: max(6, int(share * len(packed)))])
        whole = good([*before, tear])
        assert whole == rows[: len(whole)] and not any(one.error for one in before)
        # what a block still lacks cannot be read; random digits pack evenly
        lacking = 2 * BLOCK if "zstd" in how else 40_000
        assert len(whole) >= count * share - lacking * count / len(content) - 2, share
        if tear.error is None:  # a tear between two parts cannot be seen, but for a row
            assert "parts" in how
            continue
        assert (tear.error.code, tear.error.reason) == ("E104", "the packed file is cut off here")
        line = int(tear.location.partition(":")[2])
        begun, *_ = [*tear.content.splitlines(), b""]
        assert begun in [*content.splitlines(), b""][line - 1]


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", in_turn(2, [*PACK]))
def test_no_row_of_a_damaged_file_is_lost_or_changed_in_silence(how, shape):
    rows = rows_of(3000)
    packed = PACK[how](SHAPES[shape](rows).encode())
    chance = random.Random(1)
    for place in chance.sample(range(20, len(packed)), 12):
        found = read(packed[:place] + bytes([packed[place] ^ 16]) + packed[place + 1 :])
        errors = [one.error for one in found if one.error]
        whole = good(found)
        if whole != rows:
            reason = errors[-1].reason
            assert errors[-1].code == "E104", (place, errors)
            assert any(words in reason for words in ("damaged", "checksum", "cut off")), reason
            assert not any(word in reason for word in ("Error", "decompress", "CRC")), reason


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_wrong_checksum_is_said_and_no_row_is_left_out(how, shape):
    rows = rows_of(50)
    packed = PACK[how](SHAPES[shape](rows).encode())
    place = len(packed) - (8 if how == "gzip" else 4)
    found = read(packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :])
    *before, last = found
    assert last.error and "wrong checksum" in last.error.reason
    # a block of zstd is given out when it is whole; gzip's rows come before its checksum
    assert good(before) == (rows if how == "gzip" else rows[: len(before)])
    if (how, shape) == ("gzip", "lines"):
        assert last.location == f"stdin:{len(rows) + 1}"


def test_a_torn_parquet_file_is_refused_by_name(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows_of(2000)), path)
    whole = path.read_bytes()
    for share in (0, *SHARES):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(UserError) as caught:
            list(read_raw(str(path), io.BytesIO()))
        assert caught.value.location == str(path)
