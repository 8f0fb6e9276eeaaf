"""With local inputs no command connects to anything: seen by the system, not by ourselves."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from support.samples import DATA

PROGRAM = """
import sys, agentlite
tiny, encoder, run, rows = sys.argv[1:]
small = {"run": run, "max_steps": 1, "batch_size": 2, "gradient_accumulation": 1}
agentlite.prep(rows, run=run, model=tiny, protocol="hermes", dev=0.0, test=0.3)
agentlite.sft(**small)
agentlite.pairs(run=run, num_samples=2, max_new_tokens=8, gold=True)
agentlite.dpo(**small)
agentlite.grpo(**small, group_size=2, max_new_tokens=8)
agentlite.evaluate(run=run, model=["sft", "dpo"], max_new_tokens=8)
agentlite.retriever(run=run, model=encoder, max_steps=1, batch_size=2)
agentlite.prep(rows, run=run, out="prep-1", model=tiny, protocol="hermes", dev=0.0, test=0.3, retrieve=1)
agentlite.evaluate(run=run, model=["sft"], max_new_tokens=8, retrieve=1)
"""  # noqa: E501  (verbatim text)
TRACED = ["strace", "-f", "--seccomp-bpf", "-e", "trace=connect,sendto", "-o"]


def strace_works() -> bool:
    if not shutil.which("strace"):
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not strace_works(), reason="strace is not here, or may not trace")
def test_no_command_connects_to_anything(tiny_model, tiny_encoder, tmp_path):
    log = tmp_path / "connects"
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    }
    program = [
        sys.executable,
        "-c",
        PROGRAM,
        tiny_model,
        tiny_encoder,
        tmp_path / "run",
        DATA / "weather.jsonl",
    ]
    done = subprocess.run([*TRACED, log, *program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = log.read_text(errors="replace")
    assert "exited with 0" in seen  # it was traced
    assert not re.findall(r".*sa_family=AF_INET.*", seen)


@pytest.mark.skipif(not strace_works(), reason="strace is not here, or may not trace")
def test_a_connection_would_be_seen(tmp_path):
    log = tmp_path / "connects"
    program = (
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9), 1)\nexcept "
        "OSError:\n    pass"
    )
    traced = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-e",
        "trace=connect,sendto",
        "-o",
        str(log),
        sys.executable,
        "-c",
        program,
    ]
    subprocess.run(traced, check=True)
    assert "sa_family=AF_INET" in log.read_text()
