"""A place in a text -> the line around it, cut to the width of a screen, with carets under it."""

ROOM, BEFORE = 84, 40  # characters of a line that are shown, and how many stand before the place


def pointed(text: str, start: int, end: int) -> list[str]:
    """Two lines for a screen: what stands around text[start:end], and carets under that."""
    first = text.rfind("\n", 0, start) + 1
    last = len(text) if (line_end := text.find("\n", start)) < 0 else line_end
    begin = max(first, start - BEFORE)
    stop = min(last, begin + ROOM)
    before = ("…" if begin > first else "") + printable(text[begin:start])
    piece = printable(text[start : min(end, stop)])
    after = printable(text[min(end, stop) : stop]) + ("…" if stop < last else "")
    return [f"{before}{piece}{after}", " " * _cells(before) + "^" * max(1, _cells(piece))]


def printable(text: str) -> str:
    """Text that cannot move the cursor: each character that is not printable becomes a dot."""
    return "".join(sign if sign.isprintable() else "·" for sign in text)


def _cells(text: str) -> int:
    """How many columns of a terminal it takes: a Chinese character takes two."""
    from rich.cells import cell_len

    return cell_len(text)
