"""agentlite.data.rejects: a rejected row keeps its bytes."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.reject_codes import CODES
from agentlite.data.rejects import Reject, reject_row


@given(st.binary())
def test_a_reject_keeps_the_bytes_of_its_row(content: bytes) -> None:
    row = json.loads(json.dumps(reject_row(Reject("a.jsonl:3", content, "E121", "no JSON"))))
    kept = row["raw"].encode() if "raw" in row else base64.b64decode(row["raw_base64"])
    assert kept == content


def test_a_reject_says_what_is_wrong_what_to_do_and_which_sample_it_is() -> None:
    row = reject_row(Reject("a:3", b"{", "E121", "no JSON", 2))
    expected = {"location": "a:3", "code": "E121", "reason": "no JSON", "hint": CODES["E121"].hint}
    assert row == {**expected, "part": "2", "raw": "{"}
    assert "part" not in reject_row(Reject("a:3", b"{", "E121", "no JSON"))
    own = Reject("a:3", b"{", "E121", "no JSON", hint="Write one value per line.")
    assert reject_row(own)["hint"] == "Write one value per line."
    assert reject_row(Reject("a:3", b"\xff", "E109", "no UTF-8"))["raw_base64"] == "/w=="
