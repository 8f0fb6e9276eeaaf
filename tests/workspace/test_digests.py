"""The digest of a large file is remembered, and follows its content."""

import hashlib
import os
from pathlib import Path

import pytest

from agentlite.core.errors import UserError
from agentlite.workspace import input_files
from agentlite.workspace.input_files import content_digest, file_digest


@pytest.mark.long
def test_a_large_file_rewritten_in_its_place_with_its_time_put_back_is_read_again(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("AGENTLITE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "large.bin"
    path.write_bytes(b"a" * (65 << 20))
    first, stat = file_digest(path), path.stat()
    with open(path, "r+b") as file:
        file.write(b"b")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert file_digest(path) != first


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a test in which ten bytes are large."""
    monkeypatch.setenv("AGENTLITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(input_files, "LARGE", 10)
    return tmp_path


def test_a_digest_is_the_sha256_remembered_from_a_size_on(small):
    for content, remembered in ((b"123456789", False), (b"1234567890", True)):
        (small / "file").write_bytes(content)
        expected = hashlib.sha256(content).hexdigest()
        assert file_digest(small / "file") == expected == content_digest(small / "file")
        assert (small / "cache/digests.json").exists() is remembered


def test_what_has_no_end_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo")
    for name in ("tokenizer.json", "fifo"):
        with pytest.raises(UserError, match="is not a file"):
            file_digest(tmp_path / name)
