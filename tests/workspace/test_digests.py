"""The digest of a large file is remembered, and follows its content."""

import os

from agentlite.workspace.digests import file_digest


def test_the_remembered_digest_of_a_large_file_follows_its_content(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTLITE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "large.bin"
    path.write_bytes(b"a" * (65 << 20))
    first = file_digest(path)
    assert (tmp_path / "cache" / "digests.json").exists()
    assert file_digest(path) == first
    with open(path, "r+b") as file:
        file.write(b"b")
    os.utime(path, ns=(1, 1))
    assert file_digest(path) != first


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
