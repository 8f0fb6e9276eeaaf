"""agentlite.report.readers: rows fit a budget, cut as little as that needs, and say so."""

import base64
import json
import random
import string
import zlib

from agentlite.report.readers import LONGEST, pack_within


def texts(count, length, seed=0):
    generator = random.Random(seed)
    return ["".join(generator.choices(string.ascii_letters, k=length)) for _ in range(count)]


def packed(rows, budget):
    """The texts that are left, and what was fitted."""
    fitted = pack_within(budget, rows, len(rows), "texts", lambda some: {"rows": some})
    return json.loads(zlib.decompress(base64.b64decode(fitted["text"])))["rows"], fitted


def test_a_long_text_is_cut_and_says_so():
    rows = texts(3, 30_000)
    left, fitted = packed(rows, 10**6)
    assert len(left) == 3
    assert [text[:LONGEST] for text in rows] == [text[:LONGEST] for text in left]
    assert {text[LONGEST:] for text in left} == {f" … [{30_000 - LONGEST:,} more characters]"}
    assert fitted["note"] == ""
    left, fewer = packed(rows, 15_000)
    assert len(left) < 3 and len(fewer["text"]) <= 15_000
    assert fewer["note"].startswith(f"The first {len(left)} of 3 texts")
