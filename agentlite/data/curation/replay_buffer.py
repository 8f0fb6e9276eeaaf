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
from agentlite.core.records import Record, digest, from_row
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
    of its plan.
    """

    folder: Path
    key: str
    rows: str
    is_done: bool


class BufferCounts(NamedTuple):
    """How many rows the buffer has after a run, and how many of them are of this run."""

    rows: int
    new: int


def find_buffer(folder: Path, key: str) -> BufferState:
    """What a run finds; reads no rows. A folder that is missing or empty is an empty buffer.

    Raises UserError for a folder that is not a buffer.
    """
    manifest = _manifest(folder)
    mine = next((run for run in manifest.runs if run.key == key), None)
    return BufferState(folder, key, mine.before if mine else manifest.rows, mine is not None)


def buffer_rows(found: BufferState) -> list[Row]:
    """The rows that `find_buffer` found. Raises UserError if they are gone."""
    return _rows(found.folder, found.rows, found.is_done)


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
    found: BufferState,
    ids: Sequence[str],
    read: Callable[[int], Row],
    *,
    capacity: int,
    seed: int,
) -> BufferCounts:
    """Puts the new train rows into the buffer; beyond `capacity` the hybrid coreset of old and new
    stays.

    `ids`: of the new rows; `read`: the row of an index of theirs, asked several times. For a run
    that was added before nothing changes.
    Raises UserError if another run has changed the buffer since it was found.
    """
    if found.is_done:
        done = next(run for run in _manifest(found.folder).runs if run.key == found.key)
        return BufferCounts(done.rows, done.new)
    old = buffer_rows(found)
    rows = _selected(old, ids, read, capacity, seed)
    kept = BufferCounts(len(rows), len({row["id"] for row in rows} - {row["id"] for row in old}))
    _write(found, rows, kept)
    return kept


def _selected(
    old: Sequence[Row],
    ids: Sequence[str],
    read: Callable[[int], Row],
    capacity: int,
    seed: int,
) -> list[Row]:
    """By id, whatever the order they came in."""
    at_hand = {row["id"]: row for row in old}
    places = {record_id: index for index, record_id in enumerate(ids)}
    known = sorted(at_hand.keys() | places)

    def row_of(index: int) -> Row:
        return at_hand.get(known[index]) or read(places[known[index]])

    def record_of(index: int) -> Record:
        return from_row(row_of(index))

    losses: dict[str, float] = {}
    if len(known) > capacity:
        losses = {
            record_id: wording(record_of(index)).proxy_loss for index, record_id in enumerate(known)
        }
    chosen = coreset(
        known,
        strategy="hybrid",
        target=capacity,
        seed=seed,
        losses=losses,
        text=lambda index: dialog_text(record_of(index)),
    ).chosen
    return [row_of(index) for index in chosen]


def _write(found: BufferState, rows: Sequence[Row], kept: BufferCounts) -> None:
    """The rows first, then the manifest that names them: killed in between, the buffer is as it
    was.
    """
    content = b"".join(map(encode, rows))
    name = hashlib.sha256(content).hexdigest()
    with disk_errors(found.folder):
        found.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(found.folder / ".lock"):
        manifest = _manifest(found.folder)
        if manifest.rows != found.rows:
            raise UserError(
                "was changed by another run since it was read.",
                "Run the same command again.",
                location=str(found.folder),
                exit_code=LOCKED,
            )
        if not manifest.runs:
            write_json(
                found.folder / "manifest.json", manifest
            )  # so rows without a manifest are never ours
        with replacing(_path(found.folder, name)) as file:
            file.write(content)
        runs = (*manifest.runs, ReplayRun(found.key, found.rows, name, *kept))
        write_json(found.folder / "manifest.json", BufferManifest(runs=runs))
        files = {_path(found.folder, rows) for rows in (found.rows, name)}
        for path in set(found.folder.glob("rows-*.jsonl")) - files:
            path.unlink()


def _manifest(folder: Path) -> BufferManifest:
    path = folder / "manifest.json"
    if not path.exists():
        strangers = sorted(file.name for file in folder.glob("[!.]*")) if folder.is_dir() else []
        if strangers or (folder.exists() and not folder.is_dir()):
            held = f"holds {strangers[0]} but no manifest.json" if strangers else "is not a folder"
            raise UserError(f"{held}: not a complete buffer.", ANEW, location=f"--replay {folder}")
        return BufferManifest()
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=BufferManifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(
            f"is not a manifest of a buffer ({error}).", ANEW, location=str(path)
        ) from error
    return manifest


def _rows(folder: Path, name: str, is_done: bool) -> list[Row]:
    if not name:
        return []
    path = _path(folder, name)
    if not path.exists() and is_done:
        raise UserError(
            "later runs have changed the buffer: what was there before this one is gone.",
            "The rows that this run drew are in its folder. To draw again, give another "
            "--replay FOLDER.",
            location=f"--replay {folder}",
        )
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def _path(folder: Path, name: str) -> Path:
    return folder / f"rows-{name}.jsonl"
