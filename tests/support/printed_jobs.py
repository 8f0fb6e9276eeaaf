"""A job's file as its scheduler would run it: on stubs in place of agentlite, uv and the rest."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import yaml
from click.testing import CliRunner, Result

from agentlite.cli.jobs import STORE, quoted
from agentlite.cli.main import group

SCHEDULERS = ("sky", "slurm", "dstack", "hf")
STUB = """#!/usr/bin/env bash
for word in "$@"; do printf '%s\\0' "$word"; done >"$SEEN.new"
printf '%s' "${AGENTLITE_RUN-unset}" >"$SEEN.run"
mv "$SEEN.new" "$SEEN"
[ -z "${STUB-}" ] || eval "$STUB"
exit "${CODE:-0}"
"""
NOTED = """#!/usr/bin/env bash
echo "${0##*/} $*" >>"$SEEN.calls"
"""


class Ran(NamedTuple):
    """`words`: behind agentlite. `calls`: of scontrol and hf."""

    code: int
    words: list[str]
    run: str
    calls: list[str]


def printed(*words: str, scheduler: str) -> Result:
    """What the command line prints; with a scheduler as the last option."""
    return CliRunner().invoke(
        group, [*words, "--print-job", scheduler], prog_name="agentlite", standalone_mode=False
    )


def script_of(text: str, scheduler: str) -> str:
    """What the scheduler gives to bash."""
    if scheduler == "sky":
        return str(yaml.safe_load(text)["run"])
    if scheduler == "dstack":
        return "\n".join(yaml.safe_load(text)["commands"])
    return text


def prepare(folder: Path) -> dict[str, str]:
    """Stubs, and the environment in which a script finds them."""
    bin_, home = folder / "bin", folder / "home"
    for name, text in (("agentlite", STUB), ("uv", NOTED), ("scontrol", NOTED)):
        _program(bin_ / name, text)
    # the job of the hub runs at once; its script is the last word
    _program(bin_ / "hf", NOTED + '[ "$1 $2" != "jobs run" ] || exec bash -c "${@: -1}"\n')
    # `python -m agentlite`, as Slurm has it
    _program(bin_ / "python", 'shift 2; exec "$(dirname "$0")/agentlite" "$@"\n')
    _program(home / "agentlite-venv" / "bin" / "activate", "")
    (folder / "store").mkdir(exist_ok=True)
    return {
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "HOME": str(home),
        "SEEN": str(folder / "seen"),
        "HF_NAMESPACE": "me",
        "SLURM_JOB_ID": "7",
    }


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/usr/bin/env bash\n{text}")
    path.chmod(0o755)


def placed(text: str, scheduler: str, folder: Path, source: Path) -> str:
    """The script, with the storage and the copy of the current folder where a test has them."""
    script = script_of(text, scheduler).replace(quoted(sys.executable), "python")
    return script.replace(STORE, str(folder / "store")).replace("/upload", shlex.quote(str(source)))


def start(
    text: str, scheduler: str, folder: Path, source: Path, **more: str
) -> subprocess.Popen[bytes]:
    """bash on the script, in the copy of the folder. `more`: of the environment."""
    environment = {**prepare(folder), **more}
    script = placed(text, scheduler, folder, source)
    return subprocess.Popen(["bash", "-c", script], cwd=source, env=environment)


def seen(folder: Path, code: int) -> Ran:
    words = (folder / "seen").read_bytes().decode().split("\0")[:-1]
    calls = folder / "seen.calls"
    listed = calls.read_text().splitlines() if calls.exists() else []
    return Ran(code, words, (folder / "seen.run").read_text(), listed)


def ran(text: str, scheduler: str, folder: Path, source: Path, **more: str) -> Ran:
    """What became of the whole script."""
    for name in ("seen", "seen.run", "seen.calls"):
        (folder / name).unlink(missing_ok=True)
    return seen(folder, start(text, scheduler, folder, source, **more).wait(60))
