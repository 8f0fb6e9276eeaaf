"""Rows on disk, JSONL or Parquet: appended whole, torn lines cut, files replaced by rename."""

import errno
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from agentlite.core.errors import DISK, UserError, require

Row = dict[str, Any]
T = TypeVar("T")
# rows of Parquet: one value that stands in all of them is a few bytes there, and much in memory
BATCH_ROWS = 256


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears whole or not at all: written aside, synced, renamed."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with disk_errors(path), open(partial, "wb") as file:
            yield file
            file.flush()
            # before the rename: a power cut could else leave an empty file under the new name
            os.fsync(file.fileno())
        with disk_errors(path):
            os.replace(partial, path)  # in one folder, so a reader sees the old file or the new one
            sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """An OSError while writing becomes a UserError with a location and a fix."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


def disk_error(path: Path, error: OSError) -> UserError:
    return UserError(
        f"cannot write: {error.strerror or error}.",
        disk_fix(error),
        location=str(path),
        exit_code=DISK,
    )


def disk_fix(error: OSError) -> str:
    """What to do where the system refuses to write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, or give another folder (--run FOLDER); then run the command again."
    return "Repair what it names, or give another folder (--run FOLDER); then run it again."


def refuse_unwritable(folder: Path) -> None:
    """Makes the folder, before much is computed for it. Raises UserError 74."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` survive a power cut. Not every system lets a folder be synced."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_files(paths: Iterable[Path]) -> None:
    """Files and their folders: what is named as written is there after a power cut."""
    folders = set()
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        folders.add(path.parent)
    for folder in sorted(folders):
        sync_folder(folder)


def write_json(path: Path, value: object) -> None:
    with replacing(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes a file of rows at once; as Parquet, if it is named so, with a checksum a page."""
    with replacing(path) as file:
        if path.suffix != ".parquet":
            file.writelines(json_line(row) for row in rows)
            return
        check_parquet()
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist([*rows]), file, write_page_checksum=True
        )


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file that a stage wrote. Raises UserError for a line that is none."""
    if path.suffix == ".parquet":
        yield from read_parquet(path)
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UserError(
                    f"not a JSON row ({error}).",
                    "The file was changed after its stage: run that stage again with --force.",
                    location=f"{path}:{number}",
                ) from error


def read_structs(path: Path, kind: type[T]) -> Iterator[T]:
    """The rows of a file that agentlite wrote, as structs of this kind."""
    return (msgspec.convert(row, kind) for row in read_rows(path))


def row_file(folder: Path, name: str) -> Path:
    """The path of the rows `name`, with the suffix that they have: a reader takes either."""
    jsonl, parquet = folder / f"{name}.jsonl", folder / f"{name}.parquet"
    return parquet if parquet.exists() and not jsonl.exists() else jsonl


def count_rows(path: Path) -> int:
    """The whole lines of a file; 0 for one that is missing."""
    try:
        with open(path, "rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return 0


def json_line(row: object) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


class Appender:
    """Appends rows to a JSONL file, each by one write. A last line that was torn is cut."""

    def __init__(self, path: Path):
        self.path = path
        with disk_errors(path):
            self.file = open(path, "ab", buffering=0)  # noqa: SIM115  (closed by __exit__)
            end = path.read_bytes().rfind(b"\n") + 1  # of the last complete line
            if end < self.file.seek(0, os.SEEK_END):
                self.file.truncate(end)

    def append(self, row: object) -> None:
        with disk_errors(self.path):
            line = json_line(row)
            # a full disk may take a part of the line, which is cut: a row is whole or absent
            if (written := self.file.write(line)) != len(line):
                self.file.truncate(self.file.tell() - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __enter__(self) -> "Appender":
        return self

    def __exit__(self, *_: object) -> None:
        with disk_errors(self.path):
            os.fsync(self.file.fileno())
            self.file.close()


def check_parquet() -> None:
    require("Parquet", ["pyarrow"], "pip install pyarrow")


def read_parquet(path: Path) -> Iterator[Row]:
    """The rows of a Parquet file, whatever its name."""
    check_parquet()
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            yield from batch.to_pylist()
