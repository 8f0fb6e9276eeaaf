"""The rows of tests/support/rows/formats, each with one inner text cut off or with a few characters
put into it.
"""

from typing import Any

from hypothesis import strategies as st
from support.damaged_rows import Row, rows

MARKS = "()[]{}'\"\\,=:\n<>|"


@st.composite
def mangled(draw: st.DrawFn, file: str) -> Row:
    row = draw(st.sampled_from(rows(file)))
    outer, key = draw(st.sampled_from(list(_texts(row))))
    text = outer[key]
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    outer[key] = (
        text[:start]
        + draw(st.text(st.sampled_from(MARKS) | st.characters(), max_size=3))
        + text[end:]
    )
    return row


def _texts(value: Any) -> Any:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, str):
            yield value, key
        elif isinstance(inner, dict | list):
            yield from _texts(inner)
