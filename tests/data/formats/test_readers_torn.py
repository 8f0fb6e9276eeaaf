"""A packed file that is torn: the rows before the tear are read, and the tear is a reject."""

import gzip
import io
import json

import pytest

from agentlite.data.formats import read_raw


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("count", [12, 3000])
def test_the_rows_before_a_tear_are_read(count, share, tmp_path):
    rows = [json.dumps({"number": n, "text": f"{n * n * 7919}"}).encode() for n in range(count)]
    packed = gzip.compress(b"\n".join(rows) + b"\n", 1)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(packed[: int(share * len(packed))])
    found = list(read_raw(str(path), io.BytesIO()))
    whole = [one.content.rstrip(b"\n") for one in found if not one.error]
    assert whole == rows[: len(whole)] and found[-1].error.code == "E104"
    # deflate writes whole blocks: what a block still lacks cannot be read
    if count == 3000:
        assert len(whole) >= (share - 0.35) * count
