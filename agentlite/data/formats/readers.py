"""bytes -> raw rows of JSONL, JSON arrays, Parquet and BFCL, packed or not.

The content of a file decides how it is read, not its name; gzip and zstd are unpacked on the way.
"""

import contextlib
import io
import json
import shlex
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from agentlite.core.console import notice
from agentlite.core.errors import REJECTS, RowError, UserError, closest
from agentlite.core.plain_words import BOM, kind, utf8_text
from agentlite.core.row_files import check_parquet, read_parquet
from agentlite.data.formats import bfcl
from agentlite.data.formats.foreign_files import HEAD, refuse_foreign
from agentlite.data.formats.json_decode import json_value, not_json
from agentlite.data.formats.json_repair import ENCODING
from agentlite.workspace import run_folder

LONGEST_LINE = 16 << 20
AT_ONCE = 1 << 10  # of zstd, where a kibibyte may be 32 MiB
TORN = "the packed file is cut off or damaged here: what follows cannot be read"
SUFFIXES = (
    ".jsonl",
    ".json",
    ".parquet",
    ".jsonl.gz",
    ".json.gz",
    ".jsonl.zst",
    ".json.zst",
)  # read from a folder


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


# how packed files begin -> what unpacks one part of them
PACKED: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    b"\x28\xb5\x2f\xfd": _zstd,
}


class Unpacked(io.RawIOBase):
    """The content of a packed file of one or more parts, up to its end or to where it cannot be
    unpacked (`is_torn`).
    """

    def __init__(self, file: BinaryIO, begin: Callable[[], Any]):
        self.file, self.begin, self.part = file, begin, begin()
        self.left, self.is_torn = memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.left and not self.is_torn:
            packed = (self.part.unused_data if self.part.eof else b"") or self.file.read(AT_ONCE)
            if not packed:
                self.is_torn = not self.part.eof
                break
            self.part = self.begin() if self.part.eof else self.part
            try:
                self.left = memoryview(self.part.decompress(packed))  # a slice copies nothing
            except Exception:
                self.is_torn = True
        taken = self.left[: len(buffer)]
        self.left = self.left[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)


class RawLine(NamedTuple):
    """A row that is not decoded yet: where, and its bytes, the line break included; or what was
    wrong with it.
    """

    location: str
    content: bytes
    error: RowError | None = None


class Raw(NamedTuple):
    """A row as it was found: where, its bytes, and its decoded JSON or what was wrong with it."""

    location: str
    content: bytes
    value: Any
    error: RowError | None


def files_of(source: str) -> list[str]:
    """The sources a folder stands for, by name; what is not a folder stands for itself. Folders of
    stages in it, and files without a row, are left out with a notice. Raises UserError for none.
    """
    folder = Path(source)
    if source == "-" or not folder.is_dir():
        return [source]
    found = sorted(
        path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file()
    )
    stages = set(run_folder.stages_below(folder))
    of_stages = [path for path in found if not stages.isdisjoint(path.parents)]
    found = [path for path in found if path not in set(of_stages)]
    if not found:
        raise UserError(
            "holds no file of rows.",
            "Files in the folders of stages are left out: name such a folder to read them."
            if of_stages
            else f"Their names end in {', '.join(SUFFIXES)}.",
            location=source,
        )
    filled = [str(path) for path in found if path.stat().st_size]
    if not filled:
        raise UserError(
            "holds no row: all its files are empty.",
            "Write rows into them, or give another folder.",
            location=source,
            exit_code=REJECTS,
        )
    if of_stages:
        count = len({one for path in of_stages for one in stages.intersection(path.parents)})
        notice(
            f"{source}: folders of stages are left out ({count}); name such a folder to read the "
            "files in it"
        )
    return filled


def raw_files(source: str) -> list[Path]:
    """The files a source reads: none for stdin. Raises UserError if one cannot be read."""
    if source == "-":
        return []
    paths = (
        bfcl.files(source.removeprefix("bfcl:")) if source.startswith("bfcl:") else [Path(source)]
    )
    for path in paths:
        _refuse_unreadable(path)
    return paths


def read_raw(source: str, stdin: BinaryIO) -> Iterator[Raw]:
    """The rows of a source, decoded."""
    return map(decoded, read_lines(source, stdin))


def read_lines(source: str, stdin: BinaryIO) -> Iterator[RawLine]:
    """The rows of a path, of stdin ("-") or of "bfcl:<category>", in their order; blank lines are
    not rows.

    A row that cannot be read holds its error and the rest goes on. Raises UserError for a file that
    cannot be read, or that has no row.
    """
    paths = raw_files(source)
    empty = True
    for line in _rows(source, paths, stdin):
        empty = False
        yield line
    if empty:
        location = "stdin" if source == "-" else source
        raise UserError(
            "no rows in it.",
            "Give a file with one JSON object per line.",
            location=location,
            exit_code=REJECTS,
        )


def _rows(source: str, paths: list[Path], stdin: BinaryIO) -> Iterator[RawLine]:
    if source == "-":
        yield from _packed_or_plain(stdin, "stdin")
    elif source.startswith("bfcl:"):
        yield from _values(source, bfcl.rows(paths))
    elif paths[0].suffix.lower() == ".parquet" or _begins_with(paths[0], b"PAR1"):
        yield from _parquet(paths[0])
    else:
        with open(paths[0], "rb") as file:
            yield from _packed_or_plain(file, source)


def _packed_or_plain(packed: BinaryIO, name: str) -> Iterator[RawLine]:
    """The rows of a file; of a packed one that is torn, the last one says so."""
    unpacked = _unpacked(packed)
    file = cast(BinaryIO, io.BufferedReader(unpacked, 1 << 16)) if unpacked else packed
    number = 0
    for line in _content(file, name):
        number = int(line.location.rpartition(":")[2])
        is_last = bool(line.error) or not line.content.endswith(b"\n")
        if unpacked and unpacked.is_torn and is_last and decoded(line).error:
            yield line._replace(error=RowError("E104", TORN))
            return
        yield line
    if unpacked and unpacked.is_torn:
        yield RawLine(f"{name}:{number + 1}", b"", RowError("E104", TORN))


def _content(file: BinaryIO, name: str) -> Iterator[RawLine]:
    refuse_foreign(_head(file), name)
    first, number = file.readline(LONGEST_LINE + 1), 1
    while first and not _unmarked(first).strip():
        first, number = file.readline(LONGEST_LINE + 1), number + 1
    if _unmarked(first).lstrip().startswith(b"["):
        yield from _bracketed(file, name, first, number)
    elif _is_opening(first):
        yield from _spread(file, name, first, number)
    else:
        yield from _lines(file, name, first, number)


def _head(file: Any) -> bytes:
    """The first bytes, which stay to be read."""
    if hasattr(file, "peek"):
        return bytes(file.peek(HEAD)[:HEAD])
    head: bytes = file.read(HEAD)
    file.seek(0)
    return head


def _begins_with(path: Path, magic: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic


def _unpacked(file: BinaryIO) -> Unpacked | None:
    """The content of a packed file; None for any other one."""
    start = file.read(4)
    file.seek(0)
    begin = next((begin for magic, begin in PACKED.items() if start.startswith(magic)), None)
    return Unpacked(file, begin) if begin else None


def _bracketed(file: BinaryIO, name: str, first: bytes, number: int) -> Iterator[RawLine]:
    """A file that begins with [: one array of rows, or rows that are arrays, which cannot be
    read.
    """
    rest = file.read()
    try:
        whole = json.loads(_unmarked(first))
        lines = bool(rest.strip()) or not all(isinstance(row, dict) for row in whole)
    except (ValueError, RecursionError):
        lines = False
    yield from (
        _lines(io.BytesIO(rest), name, first, number)
        if lines
        else _written(utf8_text(first + rest, name), name, number)
    )


def _is_opening(line: bytes) -> bool:
    """Whether an object begins on a line and ends on a later one."""
    text = _unmarked(line).rstrip()
    return (
        text.startswith(b"{") and text.endswith((b"{", b"[", b",")) and line.endswith(b"\n")
    ) or text == b"{"


def _spread(file: BinaryIO, name: str, first: bytes, number: int) -> Iterator[RawLine]:
    """A file that begins with an object spread over lines: the objects in it, one after another. If
    the first one does not end, its lines are rows that cannot be read.
    """
    chunks = [first, *file]
    content = b"".join(chunks)
    try:
        text = _unmarked(content).decode("utf-8")
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and not any(map(_is_row, chunks)):
            yield _unread(f"{name}:{number}", text, error)
        else:
            yield from _lines(io.BytesIO(content[len(first) :]), name, first, number)
    else:
        yield from _written(text, name, number)


def _is_row(line: bytes) -> bool:
    """Whether a line that is not indented is an object: others may then be rows as well."""
    try:
        return line.startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _lines(file: BinaryIO, name: str, line: bytes, number: int) -> Iterator[RawLine]:
    """From `line` on, which was read already and is number `number`."""
    while line:
        if len(line) > LONGEST_LINE:
            yield _too_long(file, line, f"{name}:{number}")
        elif _unmarked(line).strip():
            yield RawLine(f"{name}:{number}", line)
        line, number = file.readline(LONGEST_LINE + 1), number + 1


def decoded(line: RawLine) -> Raw:
    location, content = line.location, line.content.removesuffix(b"\n")
    if line.error:
        return Raw(location, content, None, line.error)
    try:
        return Raw(location, content, _object(_unmarked(content)), None)
    except RowError as error:
        is_last = not line.content.endswith(b"\n")
        torn = is_last and error.code == "E121"
        return Raw(
            location,
            content,
            None,
            RowError("E122", f"looks cut: {error.reason}", error.hint, error.at) if torn else error,
        )


def _object(content: bytes) -> dict[str, object]:
    if b"\0" in content:
        raise RowError("E111", "a NUL byte", at=content.index(b"\0"))
    try:
        value = json_value(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _not_utf8(content, error.start) from error
    if not isinstance(value, dict):
        raise RowError(
            "E201",
            f"a row is a JSON object, and this is {kind(value)}",
            "Give one object per line.",
        )
    return value


def _not_utf8(content: bytes, start: int) -> RowError:
    """E109, with the letter that is meant if the row is Windows-1252, as such rows mostly are."""
    hint, at = "", len(content[:start].decode("utf-8"))
    reason = f"not UTF-8: byte {content[start]:02x} at byte {start + 1} of the row"
    with contextlib.suppress(UnicodeDecodeError):
        letter = content.decode("windows-1252")[start]
        reason += f", which is {letter!r} in Windows-1252"
        hint = (
            f"--repair {ENCODING} reads such rows as Windows-1252. If the whole file is: iconv -f "
            "WINDOWS-1252 -t UTF-8 FILE."
        )
    return RowError("E109", reason, hint, at)


def _too_long(file: BinaryIO, line: bytes, location: str) -> RawLine:
    """Reads on to the end of the line without keeping it."""
    length, kept = 0, line[:1024]
    while line:
        length += len(line)
        line = b"" if line.endswith(b"\n") else file.readline(LONGEST_LINE + 1)
    reason = f"a line of {length} bytes, more than {LONGEST_LINE >> 20} MiB (its start is kept)"
    return RawLine(location, kept, RowError("E120", reason))


def _written(text: str, name: str, line: int) -> Iterator[RawLine]:
    """The elements of a JSON array, or objects one after another, from `line` on. The rest from a
    broken one on, and text after the array, are one row.
    """
    is_array = text.lstrip().startswith("[")
    start = _after_blanks(text, text.index("[") + 1 if is_array else 0)
    line += text.count("\n", 0, start)
    while start < len(text) and not (is_array and text[start] == "]"):
        location = f"{name}:{line}"
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            yield _unread(location, text[start:], error, start)
            return
        yield RawLine(location, text[start:end].encode("utf-8") + b"\n")
        following = _after_blanks(text, end)
        separator = text[following : following + 1]
        if is_array and separator == ",":
            following = _after_blanks(text, following + 1)
        line += text.count("\n", start, following)
        start = following
        if is_array and separator not in (",", "]", ""):
            yield _unread(f"{name}:{line}", text[start:], "no comma after an element of the array")
            return
    if is_array and start == len(text):
        yield _unread(f"{name}:{line}", "", "looks cut: the array is not closed")
    elif rest := text[start + 1 :].strip():
        yield _unread(f"{name}:{line}", rest, "something follows the end of the array")


def _unread(location: str, text: str, problem: str | Exception, start: int = 0) -> RawLine:
    """What cannot be taken apart from here on. `problem`: that of a decoder, which began `start`
    characters before `text`; or in words.
    """
    hint, at = "", 0
    if isinstance(problem, json.JSONDecodeError):
        found = not_json(problem, "in line {0}")
        hint, at = found.hint, int(found.at) - start
        line = int(location.rpartition(":")[2]) + text.count("\n", 0, at)
        problem = f"looks cut, or broken: {found.reason.removeprefix('not JSON: ')}"
        problem = problem.replace("{0}", str(line))
    elif isinstance(problem, Exception):
        problem = f"looks cut, or broken: {problem}"
    return RawLine(location, text.encode("utf-8"), RowError("E105", problem, hint, at))


def _after_blanks(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _parquet(path: Path) -> Iterator[RawLine]:
    check_parquet()
    import pyarrow

    try:
        yield from _values(str(path), read_parquet(path))
    except (OSError, pyarrow.ArrowException) as error:
        fix = "Is it whole? Write or fetch it again."
        raise UserError(
            f"not a readable Parquet file: {str(error).splitlines()[0]}", fix, location=str(path)
        ) from error


def _values(name: str, values: Iterator[dict[str, object]]) -> Iterator[RawLine]:
    """Rows that are already decoded, as lines of JSON."""
    for number, value in enumerate(values, 1):
        line = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
        yield RawLine(f"{name}:{number}", line + b"\n")


def _unmarked(line: bytes) -> bytes:
    """Without a byte order mark: `cat` leaves them at the start of any line."""
    return line.removeprefix(BOM)


def _refuse_unreadable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError("no such file.", _nearest_file(path), location=str(path)) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot be read: {error}.", "Give a file that you may read.", location=str(path)
        ) from error
    if stat.S_ISDIR(mode):
        raise UserError(
            "is a directory.", f"Give its files, for example {path}/*.jsonl.", location=str(path)
        )
    if not stat.S_ISREG(mode):
        raise UserError(
            "is not a regular file.",
            f"Pipe it in: agentlite prep - < {shlex.quote(str(path))}",
            location=str(path),
        )


def _nearest_file(path: Path) -> str:
    known = [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
    if near := closest(path.name, known):
        return f"Did you mean '{path.with_name(near)}'?"
    return f"Paths are read from {Path.cwd()}."
