"""agentlite.data.formats.format: a format for each source."""

import pytest

from agentlite.core.errors import UserError
from agentlite.data.formats import FORMATS
from agentlite.data.formats.format import check_formats, format_of


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        (("auto",), [None, None, None]),
        ((), [None, None, None]),
        (("sharegpt",), ["sharegpt"] * 3),
        (("a.jsonl=ms_bench",), ["ms_bench", None, None]),
        (("sharegpt", "a.jsonl=ms_bench"), ["ms_bench", "sharegpt", "sharegpt"]),
        (("data=alpaca", "a.jsonl=auto", "openai"), [None, "alpaca", "openai"]),
        (("x=y.jsonl=text",), [None, None, "text"]),
        (("data=alpaca", "dat=text", "data/b=text"), [None, "alpaca", None]),
    ],
)
def test_a_source_has_the_format_that_names_it_or_else_that_of_the_rest(
    formats: tuple[str, ...], expected: list[str | None]
) -> None:
    sources = ["a.jsonl", "data/b.jsonl", "x=y.jsonl"]
    assert [format_of(formats, source) for source in sources] == expected
    if "dat=text" not in formats:  # which is no folder of a source
        check_formats(formats, sources, FORMATS)


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        (("opnai",), "openai"),
        (("a.jsonl=ms_bnch",), "ms_bench"),
        (("b.jsonl=ms_bench",), "not read"),
    ],
)
def test_a_mistake_in_it_is_named(formats: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_formats(formats, ["a.jsonl"], FORMATS)
    assert caught.value.location == "--format"
    assert caught.value.exit_code == 2
