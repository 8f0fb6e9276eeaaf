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
HEAD = 4096  # bytes at which it is seen what a file is
# a row, or a list of rows, begins
VALUE = re.compile(rb"^(?:\s|\xef\xbb\xbf)*[{\[\"]", re.MULTILINE)
AT_ONCE = 1 << 10  # of zstd, where a kibibyte may be 32 MiB
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
    named = [path for path in sorted(folder.rglob("*")) if path.name.endswith(SUFFIXES)]
    files = [path for path in named if path.is_file() and path.stat().st_size]
    stages = stages_below(folder)
    found = [path for path in files if not set(path.parents).intersection(stages)]
    if not found:
        raise UserError(
            "holds no file of rows.",
            f"Their names end in {', '.join(SUFFIXES)}. Empty ones are left out, and those in the "
            "folders of stages: name such a folder to read them.",
            location=source,
        )
    if len(found) < len(files):
        notice(f"{source}: folders of stages are left out; name such a folder to read its files")
    return [str(path) for path in found]


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
        known = [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
        near, fix = closest(path.name, known), f"Paths are read from {Path.cwd()}."
        if near:
            fix = f"Did you mean '{path.with_name(near)}'?"
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
    for line in _lines_of(source, raw_files(source), stdin):
        yield line
    if line is None:
        raise UserError(
            "no rows in it.",
            "Give a file with one JSON object per line.",
            location="stdin" if source == "-" else source,
            exit_code=REJECTS,
        )


def _lines_of(source: str, paths: list[Path], stdin: BinaryIO) -> Iterator[Raw]:
    if source == "-":
        yield from _file_lines(stdin, "stdin")
        return
    if source.startswith("bfcl:"):
        yield from _values(source, bfcl.rows(paths))
        return
    with open(paths[0], "rb") as file:
        if paths[0].suffix.lower() == ".parquet" or file.peek(4).startswith(b"PAR1"):
            yield from _parquet(paths[0])
        else:
            yield from _file_lines(file, source)


def _parquet(path: Path) -> Iterator[Raw]:
    check_parquet()
    import pyarrow

    try:
        yield from _values(str(path), read_parquet(path))
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(
            f"not a readable Parquet file: {str(error).splitlines()[0]}",
            "Is it whole? Write or fetch it again.",
            location=str(path),
        ) from error


def _values(name: str, values: Iterator[dict[str, object]]) -> Iterator[Raw]:
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

    def __init__(self, file: BinaryIO, begin: Callable[[], Any]):
        self.file, self.begin, self.part = file, begin, begin()
        self.left, self.is_torn = memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.left and not self.is_torn:
            # several packed files may follow one another, as `cat a.gz b.gz` writes them
            packed = (self.part.unused_data if self.part.eof else b"") or self.file.read(AT_ONCE)
            if not packed:
                # the file ends: the part that is being unpacked has to be whole
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


def _file_lines(file: BinaryIO, name: str) -> Iterator[Raw]:
    """The rows of a file; of a packed one that is torn, the last one says so."""
    head = file.read(HEAD)
    file.seek(0)
    begin = next((begin for magic, begin in PACKED.items() if head.startswith(magic)), None)
    if begin is None:
        yield from _content(file, head, name)
        return
    unpacked, number = Unpacked(file, begin), 0
    torn = RowError("E104", "the packed file is cut off or damaged here: the rest cannot be read")
    content = io.BufferedReader(unpacked, 1 << 16)
    for line in _content(cast(BinaryIO, content), content.peek(HEAD)[:HEAD], name):
        number = int(line.location.rpartition(":")[2])
        is_last = bool(line.error) or not line.content.endswith(b"\n")
        if unpacked.is_torn and is_last and decode(line).error:
            yield line._replace(error=torn)
            return
        yield line
    if unpacked.is_torn:
        yield Raw(f"{name}:{number + 1}", b"", error=torn)


def refuse_foreign(head: bytes, name: str) -> None:
    """Raises UserError 2 for a file that holds no JSON. `head`: its first bytes."""
    if wide := wide_encoding(head):
        fix = f"Convert it: {iconv_command(wide, name)}"
        raise UserError(f"this is text in {wide}, not rows of JSON.", fix, location=name)
    if name.endswith(".py") or (head.replace(BOM, b"").strip() and not VALUE.search(head)):
        begins = quote(head.decode("utf-8", "replace"))
        problem = f"this is not rows of JSON: it begins with {begins}."
        fix = "`agentlite prep --formats` shows rows. Unpack an archive, export a table as JSON."
        raise UserError(problem, fix, location=name)


def _content(file: BinaryIO, head: bytes, name: str) -> Iterator[Raw]:
    """The rows of a file: one a line, or the elements of a document."""
    refuse_foreign(head, name)
    first, number = file.readline(LONGEST_LINE + 1), 1
    while first and not first.removeprefix(BOM).strip():
        first, number = file.readline(LONGEST_LINE + 1), number + 1
    if begins_document(first):
        yield from _elements(utf8_text(first + file.read(), name), name, number)
        return
    yield from _lines(file, name, first, number)


def begins_document(line: bytes) -> bool:
    """Whether an array begins on a line, or an object that ends on a later one."""
    text = line.removeprefix(BOM).rstrip()
    # a row of JSONL is closed on its own line: {"a": [ is the first line of a document
    opens = text.startswith(b"{") and text.endswith((b"{", b"[", b",")) and line.endswith(b"\n")
    return text.lstrip().startswith(b"[") or text == b"{" or opens


def _elements(text: str, name: str, line: int) -> Iterator[Raw]:
    """Elements of an array, or objects one by one, from `line` on; what is broken is one row."""
    is_array = text.lstrip().startswith("[")
    gap = re.compile(r"\s*(,?)\s*" if is_array else r"\s*()")  # between two elements
    opening = next(re.finditer(r"\s*\[\s*" if is_array else r"\s*", text))
    start, problem, place = opening.end(), "", 0
    line += text.count("\n", 0, start)
    while not problem and start < len(text) and not (is_array and text[start] == "]"):
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError) as wrong:
            problem = f"looks cut, or broken: {wrong}"
            place = max(0, getattr(wrong, "pos", start) - start)
            break
        yield Raw(f"{name}:{line}", text[start:end].encode("utf-8") + b"\n")
        behind = next(gap.finditer(text, end))
        if is_array and not behind[1] and text[behind.end() : behind.end() + 1] not in ("", "]"):
            problem = "no comma after an element of the array"
        line += text.count("\n", start, behind.end())
        start = behind.end()
    left = text[start:]
    if not problem and is_array and not left:
        problem = "looks cut: the array is not closed"
    elif not problem and (left := left[1:].strip()):
        problem = "something follows the end of the array"
    if problem:
        yield Raw(f"{name}:{line}", left.encode("utf-8"), error=RowError("E105", problem, at=place))


def _lines(file: BinaryIO, name: str, line: bytes, number: int) -> Iterator[Raw]:
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
        except RowError as found:
            error = found
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
