"""Locks on a stage's folder and on a workspace: who holds one, and one process at a time."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentlite.core.errors import LOCKED, UserError
from agentlite.core.row_files import cannot_write, disk_errors

LOCK = ".lock"
TURN = ".turn.lock"  # of a workspace: another one, since a stage's folder may be a workspace too
HOLDER = ".holder"  # who holds the lock: there from lock to release, and after a kill


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds a stage's folder. Raises UserError 75 while another process does."""
    from filelock import FileLock, Timeout

    holder_file, lock = folder / HOLDER, FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = "another process"
        with suppress(OSError):  # it ends just now, or begins
            who = holder_file.read_text(encoding="utf-8")
        raise UserError(
            f"is in use by {who}.",
            "Wait for it, stop it, or give another --out.",
            location=str(folder),
            exit_code=LOCKED,
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        with disk_errors(folder):
            # renamed, so that nobody reads half of it, or writes to the target of a link
            aside = folder / f"{HOLDER}.new"
            aside.unlink(missing_ok=True)
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            aside.write_text(f"process {os.getpid()} since {since}", encoding="utf-8")
            aside.replace(holder_file)
        yield
    finally:
        holder_file.unlink(missing_ok=True)
        lock.release()


def holder(folder: Path) -> str:
    """The process that holds a stage's folder now, in words; "" if none does, or it was killed."""
    from filelock import FileLock, Timeout

    try:
        # first: it is removed at the release, so once the lock is free it may be gone
        who = (folder / HOLDER).read_text(encoding="utf-8")
        FileLock(folder / LOCK).acquire(timeout=0).lock.release()
    except Timeout:
        return who
    except OSError:  # nobody holds it, or the folder belongs to somebody else
        return ""
    return ""


@contextmanager
def in_turn(run: Path) -> Iterator[None]:
    """Lets commands that write into one workspace do so one after the other."""
    from filelock import FileLock

    lock = FileLock(run / TURN)
    with disk_errors(run):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
