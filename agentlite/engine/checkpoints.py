"""A trainer's state -> checkpoints/checkpoint-N, and back; under that name it is always whole.

The order of a save: the trainer writes into checkpoints/.saving/checkpoint-N; the files are synced
and listed with their digests; manifest.json, which holds that list, is written and synced; the
folder is renamed to checkpoints/checkpoint-N, and checkpoints/ is synced, so that the new name
outlasts a power cut. Only then do older checkpoints go. A kill at any moment leaves a whole
checkpoint under its name, or a .saving that the next start removes. Later damage to a checkpoint is
found by its list, before anything of it is loaded.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agentlite.core import console, distributed
from agentlite.core.errors import DISK, MODEL, UserError
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import replacing, sync_files, sync_folder, write_json
from agentlite.engine import processes, torch
from agentlite.workspace import hub, input_files, lookup

MANIFEST, LOGS = "manifest.json", "logs"
# a checkpoint has a copy of them
LOG_FILES = ("metrics.jsonl", "rollouts.jsonl", "trajectories.jsonl", "experience.jsonl")
SAVING, DROPPED = ".saving", ".dropped"  # what a kill may leave, and the next start takes away
NEWEST_KEPT = 2
REFERENCE = "ref"  # TRL's name for the frozen copy of the adapter that dpo and grpo start from
CARRIES_ON = ": a training carries on from the last whole checkpoint"
DISK_FULL_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
DISK_FULL_SIGNS = (  # in messages of safetensors, and of torch that cannot write
    "No space left",
    "os error 28",
    "os error 5)",
    "File too large",
    "PytorchStreamWriter",
    "inline_container",
    "iostream error",
)
# of the step that is to be saved: whether its loss and gradients are numbers, and its dev loss
CheckStep = Callable[[int], tuple[bool, float | None]]


class CheckpointManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`plan` names what it is a checkpoint of; `files`: bytes and sha256 of each, by its path."""

    step: int
    dev_loss: float | None
    plan: str
    files: dict[str, tuple[int, str]]
    threads: int = 0  # of the CPU, which decide the last bits of a sum


def take_over_saving(trainer: Any, folder: Path, check_step: CheckStep) -> None:
    """From now on the trainer's checkpoints are made in the order above."""
    trainer._save_checkpoint = partial(_save, trainer, trainer._save_checkpoint, folder, check_step)
    # TRL and PEFT would write a model card into each checkpoint, TRL's tags in any order
    trainer.create_model_card = lambda *_, **__: None
    trainer.model.create_or_update_model_card = lambda *_, **__: None


def _save(
    trainer: Any,
    write: Callable[[Any, Any], None],
    folder: Path,
    check_step: CheckStep,
    model: Any,
    trial: Any,
) -> None:
    step, parent = trainer.state.global_step, folder / "checkpoints"
    is_sound, dev_loss = check_step(step)
    if not is_sound:
        console.notice(
            f"{folder.name}: no checkpoint of step {step}: loss, gradient or weights are "
            "not finite numbers"
        )
        return
    checkpoint, saving_folder = parent / f"checkpoint-{step}", parent / SAVING
    draft = saving_folder / checkpoint.name
    if distributed.is_first():
        _remove_leftovers(folder)
        # not its parents: where the folder itself has vanished, nothing is made in its place
        parent.mkdir(exist_ok=True)
        saving_folder.mkdir()
    processes.barrier()  # .saving is there before any process writes into it
    output_dir, trainer._get_output_dir = trainer._get_output_dir, lambda trial: str(saving_folder)
    # no checkpoint needs the plan's tokenizer, which may be larger than an adapter
    tokenizer, trainer.processing_class = trainer.processing_class, None
    try:
        write(model, trial)
    finally:
        trainer._get_output_dir, trainer.processing_class = output_dir, tokenizer
    processes.barrier()  # each process has written its share before the files are listed
    if not distributed.is_first():
        return
    # with a second adapter next to it, transformers would not load the first one again; and the
    # reference never changes
    shutil.rmtree(draft / REFERENCE, ignore_errors=True)
    _normalize_config(draft / "adapter_config.json")
    (draft / LOGS).mkdir()
    for name in LOG_FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, draft / LOGS / name)
    paths = sorted(path for path in draft.rglob("*") if path.is_file())
    sync_files(paths)  # what is renamed must not be empty after a power cut
    files = {
        path.relative_to(draft).as_posix(): (path.stat().st_size, input_files.content_digest(path))
        for path in paths
    }
    manifest = CheckpointManifest(step, dev_loss, _plan_id(folder), files, torch.get_num_threads())
    write_json(draft / MANIFEST, manifest)
    if checkpoint.exists():  # a run that goes back behind a step makes its checkpoint again
        _remove(checkpoint)
    draft.rename(checkpoint)
    saving_folder.rmdir()
    sync_folder(parent)
    # Older ones go only now that this one outlasts a power cut. The best stays, whatever its age.
    by_path = manifests(folder)
    for path in by_path.keys() - {*[*by_path][-NEWEST_KEPT:], best(folder)}:
        _remove(path)


def _normalize_config(path: Path) -> None:
    """PEFT keeps some names as sets, and writes them in another order each time. It names the base
    by its folder: in the hub's cache, by another one on each machine.
    """
    if path.exists():
        config = json.loads(path.read_bytes())
        sets = {key: config.get(key) for key in ("target_modules", "exclude_modules")}
        config |= {key: sorted(names) for key, names in sets.items() if isinstance(names, list)}
        model, commit = hub.hub_id_and_commit(str(config.get("base_model_name_or_path")))
        if commit:
            config |= {"base_model_name_or_path": model, "revision": commit}
        path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def restore_threads(checkpoint: Path) -> None:
    """As many as before, or the adapter would end with other bits. The user may say how many."""
    if (threads := _read_manifest(checkpoint).threads) and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)


def restore_log(name: str, folder: Path) -> int:
    """As it was when the newest checkpoint was made: what is missing or was harmed comes back, what
    came later goes. Returns the step of that checkpoint; 0 without one, and the log stays as it is.
    """
    if not (checkpoint := newest_whole(folder)):
        return 0
    with replacing(folder / name) as file:
        file.write((checkpoint / LOGS / name).read_bytes())
    return step_of(checkpoint)


def newest_whole(folder: Path) -> Path | None:
    """The newest whole checkpoint; those that are not are set aside by name. None where none was
    ever made.

    Raises UserError 5 where there are some, and none of them is whole: nothing is lost by itself.
    """
    _remove_leftovers(folder)
    for path in reversed(_list_checkpoints(folder)):
        if _is_whole(path, folder):
            return path
    if broken := sorted(path.name for path in (folder / "checkpoints").glob("*.broken*")):
        raise UserError(
            f"holds no checkpoint that is whole ({', '.join(broken)}).",
            "Put a copy in place if there is one, or start over with --force.",
            location=str(folder),
            exit_code=MODEL,
        )
    return None


def best_whole(folder: Path) -> Path:
    """The best of those that are whole; those that are not are set aside by name. Raises UserError
    5 if none is.
    """
    while manifests(folder):
        if _is_whole(path := best(folder), folder):
            return path
    newest_whole(folder)
    raise AssertionError("a run that was trained has checkpoints")


def best(folder: Path) -> Path:
    """Least dev loss; the newest where none was taken."""
    by_path = manifests(folder)
    losses = {path: loss for path in by_path if (loss := by_path[path].dev_loss) is not None}
    return min(losses, key=losses.__getitem__) if losses else [*by_path][-1]


def manifests(folder: Path) -> dict[Path, CheckpointManifest]:
    """Checkpoints, oldest first, as they say they are; none that cannot say."""
    by_path = {}
    for path in _list_checkpoints(folder):
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            by_path[path] = _read_manifest(path)
    return by_path


def step_of(checkpoint: Path) -> int:
    """-1 for what is none."""
    number = checkpoint.name.removeprefix("checkpoint-")
    return int(number) if number.isdecimal() else -1


def _list_checkpoints(folder: Path) -> list[Path]:
    paths = [path for path in (folder / "checkpoints").glob("checkpoint-*") if step_of(path) >= 0]
    return sorted(paths, key=step_of)


_verified: set[tuple[Path, int]] = set()  # read through and found whole by this process


def _is_whole(path: Path, folder: Path) -> bool:
    """If it is not, it is set aside by name."""
    if problem := _problem(path, folder):
        names = (f"{path.name}.broken{number or ''}" for number in range(1000))
        name = next(name for name in names if not path.with_name(name).exists())
        path.rename(path.with_name(name))
        console.notice(f"{path}: {problem}; set aside as {name}")
    return not problem


def _problem(checkpoint: Path, folder: Path) -> str:
    """Why a checkpoint cannot be used, "" if it can."""
    try:
        key = (checkpoint.resolve(), (checkpoint / MANIFEST).stat().st_mtime_ns)
        manifest = _read_manifest(checkpoint)
    except OSError:
        return f"has no {MANIFEST}"
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"its {MANIFEST} cannot be read ({error})"
    if manifest.plan != _plan_id(folder):
        return "was made under another plan.json"
    for name, (size, expected_digest) in {} if key in _verified else manifest.files.items():
        path = checkpoint / name
        if not path.is_file():
            return f"has no {name}"
        if path.stat().st_size != size or input_files.content_digest(path) != expected_digest:
            return f"{name} has changed since it was saved"
    _verified.add(key)
    return ""


def _read_manifest(checkpoint: Path) -> CheckpointManifest:
    return msgspec.json.decode((checkpoint / MANIFEST).read_bytes(), type=CheckpointManifest)


def _plan_id(folder: Path) -> str:
    if not lookup.is_stage(folder):  # trained from Python, without a stage
        return ""
    plan = lookup.read_plan(folder)
    return digest(canonical([plan.command, plan.settings, plan.inputs]))


def _remove(checkpoint: Path) -> None:
    """Renamed first: a kill in between leaves none that looks whole."""
    dropped = checkpoint.parent / DROPPED
    shutil.rmtree(dropped, ignore_errors=True)
    checkpoint.rename(dropped)
    shutil.rmtree(dropped)


def _remove_leftovers(folder: Path) -> None:
    for name in (SAVING, DROPPED):
        shutil.rmtree(folder / "checkpoints" / name, ignore_errors=True)


def disk_full_error(error: BaseException, folder: Path, then: str = CARRIES_ON) -> UserError | None:
    """Where the system says so, or a library above it. `then`: what the same command does next."""
    has_code = isinstance(error, OSError) and error.errno in DISK_FULL_CODES
    if not has_code and not any(sign in str(error) for sign in DISK_FULL_SIGNS):
        return None
    fix = f"Free some space and run the same command again{then}."
    return UserError("the disk is full.", fix, location=str(folder), exit_code=DISK)
