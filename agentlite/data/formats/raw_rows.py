"""bytes -> raw rows of JSONL, JSON arrays, Parquet and BFCL, packed or not.

The content of a file decides how it is read, not its name; gzip and zstd are unpacked on the way.
"""

import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from agentlite.core.console import notice
from agentlite.core.errors import REJECTS, RowError, UserError, closest
from agentlite.core.plain_words import BOM, iconv_command, kind_of, utf8_text, wide_encoding
from agentlite.core.row_files import check_parquet, read_parquet
from agentlite.data.formats import bfcl
from agentlite.data.formats.json_decode import json_value, quote
from agentlite.data.hub_data import SCHEME, files_of_hub, hub_file
from agentlite.workspace.hub import is_hub_id
from agentlite.workspace.lookup import stages_below

LONGEST_LINE = 16 << 20
HEAD_SIZE = 4096  # bytes at which it is seen what a file is
# a row, or a list of rows, begins
ROW_START = re.compile(rb"^(?:\s|\xef\xbb\xbf)*[{\[\"]", re.MULTILINE)
CHUNK_SIZE = 1 << 10  # of zstd, where a kibibyte may be 32 MiB
# of the files that are read from a folder
SUFFIXES = (".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst")


class Raw(NamedTuple):
    """A row: where, and its bytes (with their line break, if not decoded), JSON or error."""

    location: str
    content: bytes
    value: Any = None
    error: RowError | None = None

    @property
    def row(self) -> Any:
        """The decoded JSON. Raises what was wrong with it."""
        if self.error:
            raise self.error
        return self.value


def files_of(source: str, earlier: Sequence[str] = ()) -> list[str]:
    """The sources a folder stands for, by name, or a data set of the hub; anything else stands for
    itself. Folders of stages in it, and files without a row, are left out with a notice. `earlier`:
    the sources of the stage that is carried on. Raises UserError for none.
    """
    if source.startswith(SCHEME):
        return files_of_hub(source, SUFFIXES, earlier)
    folder = Path(source)
    if source == "-" or not folder.is_dir():
        return [source]
    paths = [path for path in sorted(folder.rglob("*")) if path.name.endswith(SUFFIXES)]
    files = [path for path in paths if path.is_file() and path.stat().st_size]
    stages = stages_below(folder)
    row_files = [path for path in files if not set(path.parents).intersection(stages)]
    if not row_files:
        raise UserError(
            "holds no file of rows.",
            f"Their names end in {', '.join(SUFFIXES)}. Empty ones are left out, and those in the "
            "folders of stages: name such a folder to read them.",
            location=source,
        )
    if len(row_files) < len(files):
        notice(f"{source}: folders of stages are left out; name such a folder to read its files")
    return [str(path) for path in row_files]


def source_name(source: str) -> str:
    """What the rows of a source are known by: a file's name, or that of a data set of the hub."""
    if file := hub_file(source):
        return file.name.partition("/")[2]
    return "stdin" if source == "-" else Path(source).name


def raw_files(source: str) -> list[Path]:
    """The files a source reads: none for stdin. Raises UserError if one cannot be read."""
    if source == "-":
        return []
    if source.startswith("bfcl:"):
        paths = bfcl.files(source.removeprefix("bfcl:"))
    elif file := hub_file(source):
        paths = [file.path]
    else:
        paths = [Path(source)]
    for path in paths:
        _refuse_unreadable(path)
    return paths


def _refuse_unreadable(path: Path) -> None:
    try:
        if path.is_fifo():
            raise OSError("a pipe can be read once: give it as stdin, agentlite prep -")
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError) as error:
        siblings = [s.name for s in path.parent.iterdir()] if path.parent.is_dir() else []
        match, fix = closest(path.name, siblings), f"Paths are read from {Path.cwd()}."
        if match:
            fix = f"Did you mean '{path.with_name(match)}'?"
        elif is_hub_id(str(path)) and not path.suffix:
            fix = f"A data set of the hub is read by `agentlite prep hub:{path}`."
        raise UserError("no such file.", fix, location=str(path)) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot be read: {error}.", "Give a file that you may read.", location=str(path)
        ) from error


def read_raw(source: str, stdin: BinaryIO) -> Iterator[Raw]:
    """The rows of a source, decoded."""
    return map(decode, read_lines(source, stdin))


def read_lines(source: str, stdin: BinaryIO) -> Iterator[Raw]:
    """The rows of a path, of stdin ("-") or of "bfcl:<category>", in their order; blank lines are
    not rows.

    A row that cannot be read holds its error and the rest goes on. Raises UserError for a file that
    cannot be read, or that has no row.
    """
    line = None
    for line in _source_rows(source, raw_files(source), stdin):
        yield line
    if line is None:
        raise UserError(
            "no rows in it.",
            "Give a file with one JSON object per line.",
            location="stdin" if source == "-" else source,
            exit_code=REJECTS,
        )


def _source_rows(source: str, paths: list[Path], stdin: BinaryIO) -> Iterator[Raw]:
    if source == "-":
        yield from _file_rows(stdin, "stdin")
        return
    if source.startswith("bfcl:"):
        yield from _encode_rows(source, bfcl.rows(paths))
        return
    with open(paths[0], "rb") as file:
        if paths[0].suffix.lower() == ".parquet" or file.peek(4).startswith(b"PAR1"):
            yield from _parquet_rows(paths[0])
        else:
            yield from _file_rows(file, source)


def _parquet_rows(path: Path) -> Iterator[Raw]:
    check_parquet()
    import pyarrow

    try:
        yield from _encode_rows(str(path), read_parquet(path))
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(
            f"not a readable Parquet file: {str(error).splitlines()[0]}",
            "Is it whole? Write or fetch it again.",
            location=str(path),
        ) from error


def _encode_rows(name: str, values: Iterator[dict[str, object]]) -> Iterator[Raw]:
    """Rows that are already decoded, as lines of JSON."""
    for number, value in enumerate(values, 1):
        line = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
        yield Raw(f"{name}:{number}", line + b"\n")


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


# how packed files begin -> what unpacks one part of them
PACKED: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    b"\x28\xb5\x2f\xfd": _zstd,
}


class Unpacked(io.RawIOBase):
    """What a packed file holds, up to its end or to where it cannot be unpacked (`is_torn`)."""

    def __init__(self, file: BinaryIO, new_unpacker: Callable[[], Any]):
        self.file, self.new_unpacker, self.unpacker = file, new_unpacker, new_unpacker()
        self.unread, self.is_torn = memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.unread and not self.is_torn:
            # several packed files may follow one another, as `cat a.gz b.gz` writes them
            has_ended = self.unpacker.eof
            packed = (self.unpacker.unused_data if has_ended else b"") or self.file.read(CHUNK_SIZE)
            if not packed:
                # the file ends: the part that is being unpacked has to be whole
                self.is_torn = not has_ended
                break
            self.unpacker = self.new_unpacker() if has_ended else self.unpacker
            try:
                self.unread = memoryview(self.unpacker.decompress(packed))  # a slice copies nothing
            except Exception:
                self.is_torn = True
        chunk = self.unread[: len(buffer)]
        self.unread = self.unread[len(chunk) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _file_rows(file: BinaryIO, name: str) -> Iterator[Raw]:
    """The rows of a file; of a packed one that is torn, the last one says so."""
    head = file.read(HEAD_SIZE)
    file.seek(0)
    new_unpacker = next((new for magic, new in PACKED.items() if head.startswith(magic)), None)
    if new_unpacker is None:
        yield from _unpacked_rows(file, head, name)
        return
    unpacked, number = Unpacked(file, new_unpacker), 0
    error = RowError("E104", "the packed file is cut off or damaged here: the rest cannot be read")
    content = io.BufferedReader(unpacked, 1 << 16)
    for line in _unpacked_rows(cast(BinaryIO, content), content.peek(HEAD_SIZE)[:HEAD_SIZE], name):
        number = int(line.location.rpartition(":")[2])
        is_last = bool(line.error) or not line.content.endswith(b"\n")
        if unpacked.is_torn and is_last and decode(line).error:
            yield line._replace(error=error)
            return
        yield line
    if unpacked.is_torn:
        yield Raw(f"{name}:{number + 1}", b"", error=error)


def refuse_foreign(head: bytes, name: str) -> None:
    """Raises UserError 2 for a file that holds no JSON. `head`: its first bytes."""
    if encoding := wide_encoding(head):
        fix = f"Convert it: {iconv_command(encoding, name)}"
        raise UserError(f"this is text in {encoding}, not rows of JSON.", fix, location=name)
    if name.endswith(".py") or (head.replace(BOM, b"").strip() and not ROW_START.search(head)):
        beginning = quote(head.decode("utf-8", "replace"))
        problem = f"this is not rows of JSON: it begins with {beginning}."
        fix = "`agentlite prep --formats` shows rows. Unpack an archive, export a table as JSON."
        raise UserError(problem, fix, location=name)


def _unpacked_rows(file: BinaryIO, head: bytes, name: str) -> Iterator[Raw]:
    """The rows of a file: one a line, or the elements of a document."""
    refuse_foreign(head, name)
    line, number = file.readline(LONGEST_LINE + 1), 1
    while line and not line.removeprefix(BOM).strip():
        line, number = file.readline(LONGEST_LINE + 1), number + 1
    if begins_document(line):
        yield from _document_rows(utf8_text(line + file.read(), name), name, number)
        return
    yield from _line_rows(file, name, line, number)


def begins_document(line: bytes) -> bool:
    """Whether an array begins on a line, or an object that ends on a later one."""
    text = line.removeprefix(BOM).rstrip()
    # a row of JSONL is closed on its own line: {"a": [ is the first line of a document
    opens = text.startswith(b"{") and text.endswith((b"{", b"[", b",")) and line.endswith(b"\n")
    return text.lstrip().startswith(b"[") or text == b"{" or opens


def _document_rows(text: str, name: str, line: int) -> Iterator[Raw]:
    """Elements of an array, or objects one by one, from `line` on; what is broken is one row."""
    is_array = text.lstrip().startswith("[")
    gap = re.compile(r"\s*(,?)\s*" if is_array else r"\s*()")  # between two elements
    opening = next(re.finditer(r"\s*\[\s*" if is_array else r"\s*", text))
    start, problem, index = opening.end(), "", 0
    line += text.count("\n", 0, start)
    while not problem and start < len(text) and not (is_array and text[start] == "]"):
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            problem = f"looks cut, or broken: {error}"
            index = max(0, getattr(error, "pos", start) - start)
            break
        yield Raw(f"{name}:{line}", text[start:end].encode("utf-8") + b"\n")
        comma = next(gap.finditer(text, end))
        if is_array and not comma[1] and text[comma.end() : comma.end() + 1] not in ("", "]"):
            problem = "no comma after an element of the array"
        line += text.count("\n", start, comma.end())
        start = comma.end()
    tail = text[start:]
    if not problem and is_array and not tail:
        problem = "looks cut: the array is not closed"
    elif not problem and (tail := tail[1:].strip()):
        problem = "something follows the end of the array"
    if problem:
        yield Raw(f"{name}:{line}", tail.encode("utf-8"), error=RowError("E105", problem, at=index))


def _line_rows(file: BinaryIO, name: str, line: bytes, number: int) -> Iterator[Raw]:
    """From `line` on, which was read already and is number `number`."""
    while line:
        if len(line) > LONGEST_LINE:
            reason = f"a line of more than {LONGEST_LINE >> 20} MiB (its start is kept)"
            yield Raw(f"{name}:{number}", line[:1024], error=RowError("E120", reason))
            # the rest of it is passed over, in pieces of that length
            while line and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE + 1)
        elif line.removeprefix(BOM).strip():  # `cat` leaves a mark at the start of any line
            yield Raw(f"{name}:{number}", line)
        line, number = file.readline(LONGEST_LINE + 1), number + 1


def decode(line: Raw) -> Raw:
    """The line with its JSON, or with the error that says why it has none: E122 in place of E121
    where the file ends in the middle of it.
    """
    content, error = line.content.removesuffix(b"\n"), line.error
    if error is None:
        try:
            return Raw(line.location, content, _object(content.removeprefix(BOM)))
        except RowError as failure:
            error = failure
        if error.code == "E121" and not line.content.endswith(b"\n"):
            error = RowError("E122", f"looks cut: {error.reason}", error.hint, error.at)
    return Raw(line.location, content, error=error)


def _object(content: bytes) -> dict[str, object]:
    if b"\0" in content:
        raise RowError("E111", "a NUL byte", at=content.index(b"\0"))
    try:
        value = json_value(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {content[error.start]:02x} at byte {error.start + 1} of the row"
        raise RowError("E109", reason, at=len(content[: error.start].decode("utf-8"))) from error
    if not isinstance(value, dict):
        reason = f"a row is a JSON object, and this is {kind_of(value)}"
        raise RowError("E201", reason, "Give one object per line.")
    return value
