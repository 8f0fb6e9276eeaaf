"""The sha256 of files; those of large files are remembered in the cache folder."""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.row_files import write_json

LARGE = 64 << 20  # bytes, from which on a digest is remembered


def file_digest(path: Path) -> str:
    """The sha256 of a file. That of a large file is cached by its path, size, inode and times.
    Raises UserError 2 for a device or a pipe, which may have no end.
    """
    if path.exists() and not path.is_file():
        raise UserError("is not a file.", "Put the file itself there.", location=str(path))
    if path.stat().st_size < LARGE:
        return content_digest(path)
    cache = cache_folder() / "digests.json"
    key = _stamp(path)
    try:
        cached = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        cached = {}
    if key not in cached:
        with console.waiting(f"reading {path.name} for its digest, once"):
            cached[key] = content_digest(path)
        if key != _stamp(path):  # somebody is writing the file: the digest is not worth keeping
            return str(cached[key])
        # a cache that cannot be written costs time and nothing else
        with contextlib.suppress(OSError, UserError):
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(cache, cached)
    return str(cached[key])


def content_digest(path: Path) -> str:
    """The sha256 of a file, read anew each time."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_folder() -> Path:
    """Where files that can be made again are kept: AGENTLITE_CACHE, or ~/.cache/agentlite."""
    folder = os.environ.get("AGENTLITE_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "agentlite"


def _stamp(path: Path) -> str:
    # mtime can be set back after a change, ctime cannot
    stat = path.stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns} {stat.st_ino} {stat.st_ctime_ns}"
