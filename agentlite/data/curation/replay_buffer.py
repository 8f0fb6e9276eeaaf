"""A buffer of earlier train records: which ones to learn again, and the buffer after that.

A buffer's folder holds `manifest.json` and the rows it names, in a file called by its content. A
run is known by its key, the digest of what it was asked and given: the same run again draws from
the rows that were there before it, and adds nothing. For that the rows before the last run are kept
beside those after it.
"""

import hashlib
import math
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from filelock import FileLock
from msgspec import Struct

from agentlite.core.errors import LOCKED, UserError
from agentlite.core.records import digest, from_row
from agentlite.core.row_files import Row, disk_errors, encode, replacing, write_json
from agentlite.data.curation.coreset import coreset, wording
from agentlite.data.curation.fingerprints import dialog_text

ANEW = (
    "Give another --replay FOLDER, or remove this one: it is filled anew, and nothing is replayed "
    "the first time."
)


class ReplayRun(Struct, frozen=True, forbid_unknown_fields=True):
    """A run by its key, the digests of the rows before and after it ("" is the empty buffer), and
    what was kept.
    """

    key: str
    before: str
    after: str
    rows: int
    new: int


class BufferManifest(Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["agentlite replay 1"] = "agentlite replay 1"
    runs: tuple[ReplayRun, ...] = ()

    @property
    def rows(self) -> str:
        """The digest of the rows there are now."""
        return self.runs[-1].after if self.runs else ""


class BufferState(NamedTuple):
    """The buffer as a run finds it, or found it when it ran before. `rows`: their digest, an input
    of its plan. `done`: what this run did, if it ran before.
    """

    folder: Path
    key: str
    rows: str
    done: ReplayRun | None


def find_buffer(folder: Path, key: str) -> BufferState:
    """What a run finds; reads no rows. A folder that is missing or empty is an empty buffer.

    Raises UserError for a folder that is not a buffer.
    """
    manifest = _manifest(folder)
    done = next((run for run in manifest.runs if run.key == key), None)
    return BufferState(folder, key, done.before if done else manifest.rows, done)


def buffer_rows(buffer: BufferState) -> list[Row]:
    """The rows that `find_buffer` found. Raises UserError if they are gone."""
    if not buffer.rows:
        return []
    path = _path(buffer.folder, buffer.rows)
    if not path.exists() and buffer.done:
        raise UserError(
            "later runs have changed the buffer: what was there before this one is gone.",
            "The rows that this run drew are in its folder. To draw again, give another "
            "--replay FOLDER.",
            location=f"--replay {buffer.folder}",
        )
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def replayed(
    rows: Sequence[Row],
    new: Container[str],
    count: int,
    *,
    ratio: float,
    seed: int,
    buffer: str = "",
) -> list[Row]:
    """The buffer's rows to learn again beside `count` new ones: a share of `ratio` of those, one at
    least.

    `new`: the ids that are not to be replayed: of the new records, and of whatever is held out.
    `buffer`: its digest, so that each run draws others.
    """
    if ratio <= 0 or not count:
        return []
    old = [row for row in rows if row["id"] not in new]
    old.sort(key=lambda row: digest(f"{seed} replay {buffer} {row['id']}"))
    return old[: max(1, math.floor(count * ratio))]


def add_to_buffer(
    buffer: BufferState, ids: Sequence[str], read: Callable[[int], Row], *, capacity: int, seed: int
) -> ReplayRun:
    """Puts the new train rows into the buffer; beyond `capacity` the hybrid coreset of old and new
    stays.

    `ids`: of the new rows; `read`: the row of an index of theirs, asked several times. For a run
    that was added before nothing changes.
    Raises UserError if another run has changed the buffer since it was found.
    """
    if buffer.done:
        return buffer.done
    old = {row["id"]: row for row in buffer_rows(buffer)}
    places = {record_id: index for index, record_id in enumerate(ids)}
    # by id, whatever the order they came in
    known = dict(enumerate(sorted(old.keys() | places)))

    def row_of(index: int) -> Row:
        return old.get(known[index]) or read(places[known[index]])

    chosen, _ = coreset(
        known,
        strategy="hybrid",
        target=capacity,
        seed=seed,
        loss=lambda index: wording(from_row(row_of(index))).proxy_loss,
        text=lambda index: dialog_text(from_row(row_of(index))),
    )
    content = b"".join(encode(row_of(index)) for index in chosen)
    new = len({known[index] for index in chosen} - old.keys())
    name = hashlib.sha256(content).hexdigest()
    run = ReplayRun(buffer.key, buffer.rows, name, len(chosen), new)
    _write(buffer, run, content)
    return run


def _write(buffer: BufferState, run: ReplayRun, content: bytes) -> None:
    """The rows first, then the manifest that names them: killed in between, the buffer is as it
    was.
    """
    folder = buffer.folder
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        manifest = _manifest(folder)
        if manifest.rows != buffer.rows:
            raise UserError(
                "was changed by another run since it was read.",
                "Run the same command again.",
                location=str(folder),
                exit_code=LOCKED,
            )
        if not manifest.runs:  # so rows without a manifest are never ours
            write_json(folder / "manifest.json", manifest)
        with replacing(_path(folder, run.after)) as file:
            file.write(content)
        write_json(folder / "manifest.json", BufferManifest(runs=(*manifest.runs, run)))
        files = {_path(folder, rows) for rows in (run.before, run.after)}
        for path in set(folder.glob("rows-*.jsonl")) - files:
            path.unlink()


def _manifest(folder: Path) -> BufferManifest:
    path = folder / "manifest.json"
    if not path.exists():
        if folder.exists() and not folder.is_dir():
            raise UserError(
                "is not a folder: not a complete buffer.", ANEW, location=f"--replay {folder}"
            )
        if strangers := sorted(file.name for file in folder.glob("[!.]*")):
            raise UserError(
                f"holds {strangers[0]} but no manifest.json: not a complete buffer.",
                ANEW,
                location=f"--replay {folder}",
            )
        return BufferManifest()
    try:
        return msgspec.json.decode(path.read_bytes(), type=BufferManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"is not a manifest of a buffer ({error}).", ANEW, location=str(path)
        ) from error


def _path(folder: Path, name: str) -> Path:
    return folder / f"rows-{name}.jsonl"
