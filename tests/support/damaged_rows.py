"""The rows of tests/support/rows/formats, and each of them with one inner value missing or replaced
by any other JSON.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from support.samples import DATA

from agentlite.core.errors import RowError

Row = dict[str, Any]
FILES = sorted(path.stem for path in DATA.glob("formats/*.jsonl"))
# a file whose rows are of another format than its name says
READ_AS = {"apigen_mt": "sharegpt"}
MARKS = "()[]{}'\"\\,=:\n<>|"

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)


def rows_in(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rows(file: str) -> list[Row]:
    return rows_in(DATA / "formats" / f"{file}.jsonl")


def strangers(format: str) -> Iterator[tuple[str, Row]]:
    """The rows of every other format, each with the name of its own."""
    for file in FILES:
        if (name := READ_AS.get(file, file)) != format:
            yield from ((name, row) for row in rows(file))


def refused(act: Callable[[], Any]) -> str:
    """The code of the RowError that it ends with."""
    with pytest.raises(RowError) as caught:
        act()
    return caught.value.code


@st.composite
def damaged(draw: st.DrawFn, file: str) -> Row:
    row = draw(st.sampled_from(rows(file)))
    outer, key = draw(st.sampled_from(list(_places(row))))
    if draw(st.booleans()):
        outer[key] = draw(json_values)
    else:
        del outer[key]
    return row


@st.composite
def mangled(draw: st.DrawFn, file: str) -> Row:
    """With one inner text cut off, or with a few characters put into it."""
    row = draw(st.sampled_from(rows(file)))
    texts = [place for place in _places(row) if isinstance(place[0][place[1]], str)]
    outer, key = draw(st.sampled_from(texts))
    text = outer[key]
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    put = draw(st.text(st.sampled_from(MARKS) | st.characters(), max_size=3))
    outer[key] = text[:start] + put + text[end:]
    return row


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object or list in a value, with each of its keys or indexes."""
    is_list = isinstance(value, list)
    for key in range(len(value)) if is_list else value if isinstance(value, dict) else ():
        yield value, key
        yield from _places(value[key])
