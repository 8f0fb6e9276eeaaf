"""agentlite and tests as processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from support.samples import ROOT


def environment() -> dict[str, str]:
    """The variables of a child that imports this checkout and the helpers of the tests."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "scripts/bench")))
    return {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path, "NO_COLOR": "1"}


def agentlite(
    *arguments: object, stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs one command; fails where it ends with a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "agentlite", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(),
        timeout=300,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done
