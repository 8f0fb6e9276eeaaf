"""agentlite.report.packing: rows fit a budget, cut as little as that needs, and say so."""

import base64
import json
import random
import string
import zlib

import pytest

from agentlite.report.packing import LONGEST, pack_within


def texts(count, length, seed=0):
    generator = random.Random(seed)
    return ["".join(generator.choices(string.ascii_letters, k=length)) for _ in range(count)]


def packed(rows, budget):
    """The texts that are left, and what was fitted."""
    fitted = pack_within(budget, len(rows), lambda count: {"rows": rows[:count]})
    return json.loads(zlib.decompress(base64.b64decode(fitted.text)))["rows"], fitted


@pytest.mark.parametrize("limit", LONGEST)
def test_texts_are_cut_at_the_longest_limit_that_fits_before_a_row_is_left_out(limit):
    rows = texts(3, 30_000)
    whole = packed([text[:limit] for text in rows], 10**6)[1]
    left, fitted = packed(rows, len(whole.text) + 300)
    assert fitted.rows == 3 and len(fitted.text) <= len(whole.text) + 300
    assert [text[:limit] for text in rows] == [text[:limit] for text in left]
    assert {text[limit:] for text in left} == {f" … [{30_000 - limit:,} more characters]"}
    assert len(fitted.notes) == 1
    assert fitted.notes[0].startswith(f"3 texts are cut after {limit:,} characters")
