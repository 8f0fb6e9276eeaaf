"""serve, a process with a tiny random model: many clients, some of them broken; its memory."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tiny
from commands import Tally

sys.path.append(str(Path(__file__).parents[3] / "tests"))

from support.serve_load import EARNEST, load

REQUESTS, CLIENTS = 1000, 20
WARM = 5 * len(EARNEST)  # requests before memory is measured: each kind, several times
GROWTH = 32 << 20  # bytes that may be more than before: what the allocator has not given back
SECONDS = 120.0  # until the queue is empty, when the last client is done


def served(work: Path, everything: bool, seed: int) -> Iterator[Tally]:
    """`everything`: 1,000 requests, not 200."""
    model = work / "tiny-model"
    if not model.exists():
        tiny.make_model(model)
    options = ["--engine", "hf", "--max-length", "512", "--max-new-tokens", "16"]
    command = [sys.executable, "-m", "agentlite", "serve", str(model), "--run", str(work)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with (
        (work / "serve.log").open("wb") as log,
        subprocess.Popen(
            [*command, "--port", "0", "--json", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        ) as process,
    ):
        try:
            assert process.stdout
            url = json.loads(process.stdout.readline())["url"]
            yield _loaded(url, process.pid, REQUESTS if everything else REQUESTS // 5, seed)
        finally:
            process.terminate()


def _loaded(url: str, pid: int, requests: int, seed: int) -> Tally:
    tally = Tally("serve", "requests")
    load(url, WARM, 4)
    _idle(url)
    before, started = _memory(pid), time.monotonic()
    found = load(url, requests, CLIENTS, seed)
    seconds = time.monotonic() - started
    idle, after = _idle(url), _memory(pid)
    tally.injected = requests - found.counts["earnest"]
    tally.lost = sum(problem.startswith("earnest") for problem in found.problems)
    tally.unclear = len(found.problems) - tally.lost
    tally.unresumable = int(bool(idle["working"] or idle["waiting"]))
    tally.silent = int(after > before + GROWTH)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(found.counts.items()))
    print(
        f"serve: {counts}; {CLIENTS} clients, {seconds:.0f} s; memory {before >> 20} MiB before, "
        f"{after >> 20} MiB after, {_memory(pid, 'VmHWM') >> 20} MiB at most",
        file=sys.stderr,
    )
    for problem in found.problems:
        tally.note(problem)
    return tally


def _idle(url: str) -> Any:
    """What /health says once nothing is under way, or in the end."""
    end = time.monotonic() + SECONDS
    while True:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request("GET", "/health")
        health = json.loads(connection.getresponse().read())
        connection.close()
        if not (health["working"] or health["waiting"]) or time.monotonic() > end:
            return health
        time.sleep(0.1)


def _memory(pid: int, field: str = "VmRSS") -> int:
    """Bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))
