"""Two lines for a screen: what stands around a place, and carets as wide as the place is there."""

import pytest

from agentlite.core.excerpt import BEFORE, ROOM, pointed

LONG = "".join(chr(ord("a") + n % 26) for n in range(300))


@pytest.mark.parametrize(
    ("text", "start", "end", "shown", "carets"),
    [
        ("one two", 4, 7, "one two", "    ^^^"),
        ("one two", 4, 4, "one two", "    ^"),  # a place without a letter has one caret
        ("one\ntwo\nsix", 4, 7, "two", "^^^"),
        ("one\ntwo", 5, 6, "two", " ^"),
        ("城市 x", 0, 2, "城市 x", "^^^^"),  # two columns each
        ("城市 x", 3, 4, "城市 x", "     ^"),
        ("a\tb\x1b", 3, 4, "a·b·", "   ^"),
        (LONG, 0, 1, LONG[:ROOM] + "…", "^"),
        (LONG, 299, 300, "…" + LONG[299 - BEFORE :], " " * (BEFORE + 1) + "^"),
        (LONG, 100, 290, "…" + LONG[60 : 60 + ROOM] + "…", " " * 41 + "^" * (ROOM - BEFORE)),
        ("x\n" + LONG[:50], 2, 3, LONG[:50], "^"),
        ("x\n" + LONG[:50], 51, 52, "…" + LONG[9:50], " " * 41 + "^"),
    ],
)
def test_carets_stand_under_the_place_and_what_is_left_out_is_marked(
    text, start, end, shown, carets
):
    assert pointed(text, start, end) == [shown, carets]
