"""prep --workers ray: the bytes of one process."""

import importlib.util
import json
from pathlib import Path

import pytest
from support.malformed_rows import call, line, row

from agentlite import prep
from agentlite.core import errors
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


@needs_ray
@pytest.mark.long
def test_one_process_and_ray_give_the_same_bytes(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")
    run = str(tmp_path)
    prep(str(rows), run=run, out="one", **OPTIONS)
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        prep(str(rows), run=run, out="ray", workers="ray", **OPTIONS)
    finally:
        ray.shutdown()
    one = content(tmp_path / "one")
    assert one["train"].count(b"\n") > 100 and one["rejects"]
    assert content(tmp_path / "ray") == one


@pytest.mark.long
def test_without_ray_the_error_names_the_extra_before_a_row_is_read(rows, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        errors.importlib.util,
        "find_spec",
        lambda name: None if name == "ray" else find(name),
    )
    with pytest.raises(UserError, match="--workers ray needs what is not installed: ray") as error:
        prep(str(rows), run=str(tmp_path), workers="ray", **OPTIONS)
    assert error.value.exit_code == MODEL and "agentlite[ray]" in error.value.fix
    assert not (tmp_path / "prep" / "done.json").exists()
