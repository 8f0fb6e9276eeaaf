"""bytes -> raw rows: a line of JSONL, an element of a JSON array, a row of Parquet, a question of BFCL."""

import difflib
import hashlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from agentlite.errors import REJECTS, RowError, UserError
from agentlite.rows import read_rows
from agentlite.sources import bfcl
from agentlite.sources.decoding import json_value

LONGEST_LINE = 16 << 20
KEPT_OF_LONGER = 1 << 10
BOM = b"\xef\xbb\xbf"
FOREIGN = {
    b"\x1f\x8b": ("gzip", "Unpack it first: gunzip FILE."),
    b"\x28\xb5\x2f\xfd": ("zstd", "Unpack it first: zstd -d FILE."),
    b"\xff\xfe": ("UTF-16", "Convert it first: iconv -f UTF-16 -t UTF-8 FILE."),
    b"\xfe\xff": ("UTF-16", "Convert it first: iconv -f UTF-16 -t UTF-8 FILE."),
    b"PAR1": ("Parquet", "Let its name end in .parquet."),
}


class Raw(NamedTuple):
    """A row as it was found: where, its bytes, and its decoded JSON or what was wrong with it."""

    place: str
    content: bytes
    value: Any
    error: RowError | None


def raw_files(source: str) -> list[Path]:
    """The files a source reads: none for stdin. Raises UserError if one cannot be read."""
    if source == "-":
        return []
    paths = bfcl.files(source.removeprefix("bfcl:")) if source.startswith("bfcl:") else [Path(source)]
    for path in paths:
        _refuse_unreadable(path)
    return paths


def read_raw(source: str, stdin: BinaryIO) -> Iterator[Raw]:
    """The rows of a path, of stdin ("-") or of "bfcl:<category>", in their order; blank lines are not rows.

    A row that cannot be read bears its error and the rest goes on. Raises UserError for a file that cannot be read,
    or that has no row.
    """
    paths = raw_files(source)
    empty = True
    for raw in _rows(source, paths, stdin):
        empty = False
        yield raw
    if empty:
        place = "stdin" if source == "-" else source
        raise UserError("no rows in it.", "Give a file with one JSON object a line.", place=place, exit_code=REJECTS)


def _rows(source: str, paths: list[Path], stdin: BinaryIO) -> Iterator[Raw]:
    if source == "-":
        yield from _lines(stdin, "stdin", stdin.readline(LONGEST_LINE + 1))
    elif source.startswith("bfcl:"):
        yield from _values(source, bfcl.rows(paths))
    elif paths[0].suffix.lower() == ".parquet":
        yield from _parquet(paths[0])
    else:
        with open(paths[0], "rb") as file:
            first = file.readline(LONGEST_LINE + 1)
            if paths[0].suffix.lower() == ".json" and _unmarked(first).lstrip().startswith(b"["):
                yield from _array(first + file.read(), source)
            else:
                yield from _lines(file, source, first)


def _lines(file: BinaryIO, name: str, line: bytes) -> Iterator[Raw]:
    for magic, (kind, fix) in FOREIGN.items():
        if line.startswith(magic):
            raise UserError(f"this is {kind}, not JSON lines.", fix, place=name)
    number = 0
    while line:
        number += 1
        if len(line) > LONGEST_LINE:
            yield _too_long(file, line, f"{name}:{number}")
        elif _unmarked(line).strip():
            yield _decoded(f"{name}:{number}", line)
        line = file.readline(LONGEST_LINE + 1)


def _decoded(place: str, line: bytes) -> Raw:
    content = line.removesuffix(b"\n")
    try:
        return Raw(place, content, _object(_unmarked(content)), None)
    except RowError as error:
        torn = not line.endswith(b"\n") and error.code == "E121"
        return Raw(place, content, None, RowError("E122", f"looks cut: {error.reason}") if torn else error)


def _object(content: bytes) -> dict[str, Any]:
    if b"\0" in content:
        raise RowError("E111", "a NUL byte")
    try:
        value = json_value(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RowError("E109", f"no UTF-8 at byte {error.start + 1} of the row") from error
    if not isinstance(value, dict):
        raise RowError("E201", f"a row is a JSON object, not a {type(value).__name__}")
    return value


def _too_long(file: BinaryIO, line: bytes, place: str) -> Raw:
    """Reads on to the end of the line without keeping it."""
    digest, length, kept = hashlib.sha256(), 0, line[:KEPT_OF_LONGER]
    while line:
        digest.update(line)
        length += len(line)
        line = b"" if line.endswith(b"\n") else file.readline(LONGEST_LINE)
    reason = (
        f"a line of {length} bytes, more than {LONGEST_LINE >> 20} MiB (sha256 {digest.hexdigest()}; its start is kept)"
    )
    return Raw(place, kept, None, RowError("E120", reason))


def _array(content: bytes, name: str) -> Iterator[Raw]:
    """The elements of a JSON array. What cannot be taken apart, from a broken element on, or stands behind the array,
    is one row.
    """
    try:
        text = _unmarked(content).decode("utf-8")
    except UnicodeDecodeError as error:
        fix = "Convert it first: iconv -f ENCODING -t UTF-8 FILE."
        raise UserError(f"no UTF-8 at byte {error.start + 1}.", fix, place=name) from error
    line, end = 1, text.index("[") + 1
    start = _after_blanks(text, end)
    line += text.count("\n", 0, start)
    while start < len(text) and text[start] != "]":
        place = f"{name}:{line}"
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            yield _unread(place, text[start:], f"looks cut, or broken: {error}")
            return
        yield _decoded(place, text[start:end].encode("utf-8") + b"\n")
        comma = _after_blanks(text, end)
        separator = text[comma : comma + 1]
        following = _after_blanks(text, comma + 1) if separator == "," else comma
        line += text.count("\n", start, following)
        start = following
        if separator not in (",", "]", ""):
            yield _unread(f"{name}:{line}", text[start:], "no comma behind an element of the array")
            return
    if start == len(text):
        yield _unread(f"{name}:{line}", "", "looks cut: the array is not closed")
    elif rest := text[start + 1 :].strip():
        yield _unread(f"{name}:{line}", rest, "something stands behind the array")


def _unread(place: str, text: str, reason: str) -> Raw:
    return Raw(place, text.encode("utf-8"), None, RowError("E122", reason))


def _after_blanks(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _parquet(path: Path) -> Iterator[Raw]:
    import pyarrow

    try:
        yield from _values(str(path), read_rows(path))
    except (OSError, pyarrow.ArrowException) as error:
        fix = "Is it whole? Write or fetch it again."
        raise UserError(f"not a readable Parquet file: {str(error).splitlines()[0]}", fix, place=str(path)) from error


def _values(name: str, values: Iterator[dict[str, Any]]) -> Iterator[Raw]:
    """Rows that are already decoded, as if they had been lines of JSON."""
    for number, value in enumerate(values, 1):
        line = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
        yield _decoded(f"{name}:{number}", line + b"\n")


def _unmarked(line: bytes) -> bytes:
    """Without a byte order mark: `cat` leaves them at the start of any line."""
    return line.removeprefix(BOM)


def _refuse_unreadable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError("no such file.", _nearest_file(path), place=str(path)) from error
    except (OSError, ValueError) as error:
        raise UserError(f"cannot be read: {error}.", "Give a file that you may read.", place=str(path)) from error
    if stat.S_ISDIR(mode):
        raise UserError("is a directory.", f"Give the files in it, for example {path}/*.jsonl.", place=str(path))
    if not stat.S_ISREG(mode):
        raise UserError("is no regular file.", f"Pipe it in: agentlite prep - < {path}", place=str(path))


def _nearest_file(path: Path) -> str:
    known = [beside.name for beside in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, known, 1)
    return f"Did you mean {path.with_name(near[0])}?" if near else f"Paths are read from {Path.cwd()}."
