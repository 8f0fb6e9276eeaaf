"""prep --workers ray: the bytes of one process, also when a worker is killed."""

import importlib.util
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support.malformed_rows import call, line, row

from agentlite import prep
from agentlite.core import optional_deps
from agentlite.core.errors import MODEL, UserError

FILES = ("train", "dev", "test", "rejects", "provenance")
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four chunks, with copies and rows that are rejected."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = []
    for number in range(400):
        said = f"Rain on day {number}? " + " ".join(f"{number * k % 9973:x}" for k in range(1500))
        calls = [call(json.dumps({"city": "Oslo", "days": number % 300}))]
        messages = row(calls=calls)["messages"]
        one = row(messages=[{"role": "user", "content": said}, *messages[1:]])
        lines.append(json.dumps(one).encode())
    path.write_bytes(b"\n".join([*lines, *lines[:5], line(n=1), b"{"]) + b"\n")
    return path


OPTIONS = {"model": "smollm2-135m", "max_length": 20_000, "max_rejects": 1.0}


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / f"{name}.jsonl").read_bytes() for name in FILES}


def of_this_process(name: bytes) -> list[int]:
    """The processes under this one with that name."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if (path / "cmdline").read_bytes().startswith(name):
                found.append(int(path.name))
        except OSError:  # it has ended
            continue
    return [one for one in found if _is_under(one, parents)]


def _is_under(one: int, parents: dict[int, int]) -> bool:
    while one in parents and one != os.getpid():
        one = parents[one]
    return one == os.getpid()


def kill_one(killed: list[int], end: float) -> None:
    """Kills the first worker that takes rows."""
    while not killed and time.monotonic() < end:
        for worker in of_this_process(b"ray::_take")[:1]:
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)
        time.sleep(0.01)


@needs_ray
@pytest.mark.long
def test_one_process_and_ray_with_a_worker_killed_give_the_same_bytes(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")
    run = str(tmp_path)
    prep(str(rows), run=run, out="one", **OPTIONS)
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        prep(str(rows), run=run, out="ray", workers="ray", **OPTIONS)
        killed: list[int] = []
        thread = threading.Thread(target=kill_one, args=(killed, time.monotonic() + 300))
        thread.start()
        prep(str(rows), run=run, out="killed", workers="ray", **OPTIONS)
        thread.join()
    finally:
        ray.shutdown()
    assert killed
    one = content(tmp_path / "one")
    assert one["train"].count(b"\n") > 100 and one["rejects"]
    for name in ("ray", "killed"):
        assert content(tmp_path / name) == one, name


@pytest.mark.long
def test_without_ray_the_error_names_the_extra_before_a_row_is_read(rows, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        optional_deps.importlib.util,
        "find_spec",
        lambda name: None if name == "ray" else find(name),
    )
    with pytest.raises(UserError, match="--workers ray needs what is not installed: ray") as error:
        prep(str(rows), run=str(tmp_path), workers="ray", **OPTIONS)
    assert error.value.exit_code == MODEL and "agentlite[ray]" in error.value.fix
    assert not (tmp_path / "prep" / "done.json").exists()
