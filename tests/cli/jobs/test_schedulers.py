"""The files of the schedulers: what is tried again, what survives, and what each tool accepts."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.examples import in_turn
from support.printed_jobs import SCHEDULERS, placed, prepare, printed, ran, seen, start

from agentlite.cli.jobs.schedulers import CARDS, RESTARTS
from agentlite.config import gpu_profiles
from agentlite.core.errors import NAMES

# The keys that SkyPilot 0.14.1 and dstack 0.22.5 were seen to take, the options of sbatch 22.05.8
# and of `hf jobs run` and `hf buckets` 2.4.0.
SKY = {
    "name": {},
    "resources": {
        "accelerators": {},
        "cpus": {},
        "memory": {},
        "disk_size": {},
        "use_spot": {},
        "job_recovery": {"max_restarts_on_errors": {}, "recover_on_exit_codes": {}},
    },
    "workdir": {},
    "secrets": {"HF_TOKEN": {}},
    "file_mounts": {"/agentlite-store": {"name": {}, "mode": {}}},
    "setup": {},
    "run": {},
}
DSTACK = {
    "type": {},
    "name": {},
    "python": {},
    "env": {},
    "files": {},
    "volumes": {},
    "commands": {},
    "resources": {"gpu": {}, "cpu": {}, "memory": {}},
    "spot_policy": {},
    "retry": {"on_events": {}, "duration": {}},
    "max_duration": {},
}
SBATCH = {
    *("--job-name", "--output", "--open-mode", "--time", "--mem", "--gres", "--cpus-per-task"),
    *("--requeue", "--signal"),
}
HF = {
    *("--namespace", "--name", "--flavor", "--timeout", "--secrets", "--volume"),
    *("--private", "--exist-ok", "--exclude", "--ignore-existing"),
}
FLAVORS = {"t4-small", "l4x1", "l40sx1", "a100-large", "h200"}
COMMANDS = (
    ["prep", "rows.jsonl"],
    ["sft", "--model", "Qwen/Qwen2.5-7B-Instruct"],
    ["eval", "--profile", "a100"],
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    (here / "runs" / "default" / "prep").mkdir(parents=True)
    (here / "rows.jsonl").write_text("{}\n")
    (here / "runs" / "default" / "prep" / "plan.json").write_text("mine")
    for name in ("AGENTLITE_RUN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_not_a_token")
    monkeypatch.chdir(here)
    monkeypatch.setattr(gpu_profiles, "card", lambda: None)
    return here


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("code", in_turn(3, [0, 1, *NAMES, 130, 143, 137]))
def test_a_job_ends_with_the_code_of_the_command_and_only_what_passes_is_tried_again(
    code, scheduler, folder, tmp_path
):
    text = printed("prep", "rows.jsonl", scheduler=scheduler).stdout
    done = ran(text, scheduler, tmp_path, folder, CODE=str(code))
    assert done.code == code
    if scheduler == "slurm":
        assert done.calls == (["scontrol requeue 7"] if code in (8, 75) else [])
        done = ran(
            text, scheduler, tmp_path, folder, CODE=str(code), SLURM_RESTART_COUNT=str(RESTARTS)
        )
        assert (done.code, done.calls) == (code, [])
    if scheduler == "sky":
        recovery = yaml.safe_load(text)["resources"]["job_recovery"]
        assert recovery == {"max_restarts_on_errors": 0, "recover_on_exit_codes": [8, 75]}
    if scheduler == "dstack":
        events = yaml.safe_load(text)["retry"]["on_events"]
        assert events == ["no-capacity", "interruption"]


@pytest.mark.parametrize("code", [0, 2, 143])
def test_what_skypilot_adds_behind_the_run_is_reached_whatever_the_code(code, folder, tmp_path):
    """It waits there until the bucket has everything."""
    text = printed("prep", "rows.jsonl", scheduler="sky").stdout
    added = "\n\n__code=$?\ntouch ../waited\nexit $__code"
    script = placed(text, "sky", tmp_path, folder) + added
    environment = {**prepare(tmp_path), "CODE": str(code)}
    assert subprocess.run(["bash", "-c", script], env=environment).returncode == code
    assert (tmp_path / "waited").exists()


@pytest.mark.parametrize("scheduler", ["sky", "dstack"])
def test_a_later_job_gets_new_files_and_keeps_the_results_of_earlier_ones(
    scheduler, folder, tmp_path
):
    text = printed("prep", "rows.jsonl", scheduler=scheduler).stdout
    store = tmp_path / "store"
    ran(text, scheduler, tmp_path, folder)
    plan = store / "runs" / "default" / "prep" / "plan.json"
    assert plan.read_text() == "mine" and (store / "rows.jsonl").read_text() == "{}\n"
    plan.write_text("of the job")
    (folder / "rows.jsonl").write_text("{}\n{}\n")
    (folder / "runs" / "default" / "sft").mkdir()
    (folder / "runs" / "default" / "sft" / "plan.json").write_text("later")
    ran(text, scheduler, tmp_path, folder)
    assert plan.read_text() == "of the job"
    assert (store / "rows.jsonl").read_text() == "{}\n{}\n"
    assert (store / "runs" / "default" / "sft" / "plan.json").read_text() == "later"


# what agentlite does at SIGTERM, and with which code it ends
STOPPED = "trap 'sleep .2; touch saved; exit 143' TERM; touch begun; while :; do sleep .05; done"
FINISHED = "trap 'sleep .2; touch saved; exit 0' TERM; touch begun; while :; do sleep .05; done"


@pytest.mark.long
@pytest.mark.parametrize(
    ("sent", "stub", "code", "calls"),
    [
        (signal.SIGUSR1, STOPPED, 143, ["scontrol requeue 7"]),  # the time limit comes
        (signal.SIGUSR1, FINISHED, 0, []),
        (signal.SIGTERM, STOPPED, 143, []),  # scancel, or a preemption: Slurm decides
        (signal.SIGTERM, FINISHED, 0, []),
    ],
)
def test_slurm_waits_for_the_step_under_way_and_starts_again_only_after_a_time_limit(
    sent, stub, code, calls, folder, tmp_path
):
    text = printed("sft", scheduler="slurm").stdout
    job = start(text, "slurm", tmp_path, folder, STUB=stub)
    end = time.monotonic() + 60
    while not (folder / "begun").exists() and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(job.pid, sent)
    if sent == signal.SIGTERM:  # Slurm sends it to every process of the job
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), sent)
    done = seen(tmp_path, job.wait(60))
    assert (done.code, done.calls, (folder / "saved").exists()) == (code, calls, True)


def known(found: Any, keys: dict[str, Any], at: str = "") -> None:
    for key, value in found.items():
        assert key in keys, f"{at}{key}"
        if isinstance(value, dict):
            known(value, keys[key], f"{at}{key}.")


@pytest.mark.parametrize("words", COMMANDS, ids=str)
def test_every_key_and_option_is_one_that_the_tool_was_seen_to_take(words):
    known(yaml.safe_load(printed(*words, scheduler="sky").stdout), SKY)
    known(yaml.safe_load(printed(*words, scheduler="dstack").stdout), DSTACK)
    lines = printed(*words, scheduler="slurm").stdout.splitlines()
    given = [line.split()[1].split("=")[0] for line in lines if line.startswith("#SBATCH")]
    assert given and set(given) <= SBATCH
    script = printed(*words, scheduler="hf").stdout
    lines = [line for line in script.splitlines() if line.startswith(("hf ", "  -", "[ "))]
    options = {word for line in lines for word in line.split() if word.startswith("--")}
    assert options and options <= HF
    assert {card.hf for card in CARDS.values()} == FLAVORS


@pytest.mark.parametrize("words", COMMANDS, ids=str)
def test_skypilot_reads_the_task(words, folder):
    sky = pytest.importorskip("sky")
    (folder / "job.yaml").write_text(printed(*words, scheduler="sky").stdout)
    task = sky.Task.from_yaml(str(folder / "job.yaml"))
    assert task.run and "/agentlite-store" in task.storage_mounts


@pytest.mark.parametrize("words", COMMANDS, ids=str)
def test_dstack_reads_the_task(words):
    models = pytest.importorskip("dstack._internal.core.models.configurations")
    text = printed(*words, scheduler="dstack").stdout
    found = models.parse_apply_configuration(yaml.safe_load(text))
    assert getattr(found, "root", found).retry.on_events


@pytest.mark.parametrize("words", COMMANDS, ids=str)
def test_the_hub_reads_the_command(words, folder, tmp_path):
    hub = pytest.importorskip("huggingface_hub", minversion="2.4")
    assert hub
    text = printed(*words, scheduler="hf").stdout
    run = f'exec {sys.executable} -m huggingface_hub.cli.hf jobs run --dry-run "${{@:3}}"'
    environment = {**prepare(tmp_path), "HF_TOKEN": "hf_not_a_token"}
    stub = f'#!/bin/bash\n[ "$1 $2" = "jobs run" ] || exit 0\n{run}\n'
    (tmp_path / "bin" / "hf").write_text(stub)
    shown = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True)
    assert shown.returncode == 0 and "Job not submitted" in shown.stdout, shown.stderr


@pytest.mark.skipif(
    not (shutil.which("sbatch") and os.environ.get("SLURM_CONF")), reason="needs a Slurm"
)
@pytest.mark.parametrize("words", COMMANDS, ids=str)
def test_slurm_takes_the_script(words, folder):
    (folder / "job.sh").write_text(printed(*words, scheduler="slurm").stdout)
    shown = subprocess.run(["sbatch", "--test-only", "job.sh"], capture_output=True, text=True)
    # a small cluster has no such node, and says so once it has read the script
    assert shown.returncode == 0 or "Requested node config" in shown.stderr, shown.stderr
