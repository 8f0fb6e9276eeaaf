"""Trainers of a tiny model -> killed at any file call of a save, or at any step; and carried on.

Everything is imported once; each run is a forked child. On one thread, so that a fork takes nothing
half done along.
"""

import io
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import injection
import tiny
from commands import (
    DISK,
    KINDS,
    Subject,
    Take,
    Tally,
    compare,
    differing,
    fresh,
    state,
    write_rows,
    write_tools,
)

AT = 3  # the save that is disturbed: the first after which an earlier checkpoint goes
STEPS = 12
SHORT = (
    'def short(attempt):\n    "Fewer letters earn more."\n    return 1 / (1 + len(attempt.text))\n'
)


def warm() -> None:
    from agentlite.engine import load_libraries

    load_libraries("unsloth")
    import torch
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer  # noqa: F401

    from agentlite.engine import (
        checkpoints,  # noqa: F401
        dpo,  # noqa: F401
        grpo,  # noqa: F401
        sft,  # noqa: F401
    )
    from agentlite.engine import trainer as training  # noqa: F401

    torch.set_num_threads(1)


def subjects(work: Path, steps: int, save_steps: int) -> dict[str, Subject]:
    """Of a tiny model that is trained and asked in earnest."""
    run, base, model, encoder = (work / name for name in ("run", "base", "model", "encoder"))
    if not model.exists():
        _must(lambda: tiny.make_model(model))
        _must(lambda: tiny.make_encoder(encoder))
        write_rows(work / "rows.jsonl", 24)
        write_tools(work / "tools.jsonl")
        (work / "mine.py").write_text(SHORT, encoding="utf-8")
    told = ["--run", str(run), "--model", str(model)]
    few = ["--max-new-tokens", "6", "--max-length", "512"]
    rewards = ["--rewards", f"{work / 'mine.py'}:short"]
    train = [
        "--run",
        str(run),
        "--max-steps",
        str(steps),
        "--save-steps",
        str(save_steps),
        "--learning-rate",
        "0.01",
        "--lora-r",
        "4",
    ]
    pairs = ["pairs", *told, *few, *rewards, "-n", "3", "--margin", "0", "--batch-size", "4"]
    if not base.exists():
        (work / "empty").mkdir(exist_ok=True)
        prep = Subject(
            "prep",
            [
                "prep",
                str(work / "rows.jsonl"),
                *told,
                "--protocol",
                "hermes",
                "--test",
                "0.2",
                "--dev",
                "0.1",
            ],
            work / "empty",
            run,
            stubbed=False,
        )
        fresh(prep)
        _must(prep.job)
        _must(prep._replace(arguments=pairs).job)
        shutil.copytree(run, base)
    small = ["--batch-size", "2", "--gradient-accumulation", "1"]
    found = {
        "sft": ["sft", *train, *small, "--set", "sft.lora_dropout=0.1"],
        "dpo": ["dpo", *train, *small],
        "grpo": [
            "grpo",
            *train,
            "--model",
            str(model),
            *few,
            *rewards,
            "--batch-size",
            "4",
            "--gradient-accumulation",
            "2",
        ],
        "retriever": [
            "retriever",
            *train[:-2],
            "--model",
            str(encoder),
            "--tools",
            str(work / "tools.jsonl"),
            "--batch-size",
            "2",
            "--negatives",
            "2",
            "--max-length",
            "32",
        ],
        "pairs": [*pairs, "--out", "pairs-2"],
        "eval": ["eval", *told, "--max-new-tokens", "6", "--batch-size", "2"],
    }
    return {
        name: Subject(name, arguments, base, run, stubbed=False)
        for name, arguments in found.items()
    }


def _must(job: injection.Job) -> None:
    end = injection.forked(job)
    if end.code:
        raise RuntimeError(end.told)


# --- a save ---


def saves(subject: Subject, take: Take) -> Iterator[Tally]:
    """The third checkpoint of a real run, disturbed at each file call; what the run has then,
    checked byte by byte.
    """
    found = subject.run.parent / "found.json"
    found.unlink(missing_ok=True)

    def disturb(folder: Path, save: Callable[[], None]) -> None:
        tallies = [asdict(tally) for tally in _disturbed(subject.name, folder, save, take)]
        found.write_text(json.dumps(tallies), encoding="utf-8")

    def job() -> None:
        with _saving(
            lambda step, folder, save: _then_leave(disturb, folder, save) if step == AT else save()
        ):
            subject.job()

    fresh(subject)
    end = injection.forked(job)
    if not found.exists():
        raise RuntimeError(end.told)
    for told in json.loads(found.read_bytes()):
        yield Tally(**told)


def _then_leave(disturb: Callable[..., None], folder: Path, save: Callable[[], None]) -> None:
    disturb(folder, save)
    os._exit(0)


@contextmanager
def _saving(save: Callable[[int, Path, Callable[[], None]], None]) -> Iterator[None]:
    """In here every save of a trainer goes through `save`: the step, the folder, and what would
    save.
    """
    from agentlite.engine import checkpoints

    keep = checkpoints.keep

    def keeping(trainer: Any, folder: Path, *more: Any) -> None:
        keep(trainer, folder, *more)
        write = trainer._save_checkpoint
        trainer._save_checkpoint = lambda model, trial: save(
            trainer.state.global_step, folder, lambda: write(model, trial)
        )

    with patch.object(checkpoints, "keep", keeping):
        yield


def _disturbed(name: str, folder: Path, save: Callable[[], None], take: Take) -> Iterator[Tally]:
    parent, kept, logs = (
        folder / "checkpoints",
        folder.parent.parent / "kept",
        [*folder.glob("*.jsonl")],
    )
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(parent, kept)
    rows, drawn = [path.read_bytes() for path in logs], random.getstate()
    before = state(parent)

    def job() -> None:
        from agentlite.core.errors import UserError

        random.setstate(drawn)  # Python seeds it anew in a child
        try:
            save()
        except UserError as error:
            sys.exit(error.exit_code)
        except OSError:  # as the command line ends then
            sys.exit(DISK)

    def restore() -> None:
        shutil.rmtree(parent)
        shutil.copytree(kept, parent)
        restore_logs()

    def restore_logs() -> None:
        for path, content in zip(logs, rows, strict=True):
            path.write_bytes(content)

    points = injection.points(job, folder)
    after = state(parent)
    for kind in KINDS:
        tally = Tally(name, f"save: {kind}")
        for point in take([point for point in points if point.takes(kind)], f"{name} {kind}"):
            restore()
            end = injection.run(job, folder, kind, point)
            if end.came:
                tally.injected += 1
                _judge_save(
                    tally, f"{point.call} {point.number} ({point.told})", folder, end, before, after
                )
                restore_logs()
                if injection.forked(job).code or (others := differing(state(parent), after)):
                    tally.unresumable += 1
                    tally.note(
                        f"{point.call} {point.number}: the next save is not as it should be: "
                        f"{others}"
                    )
        yield tally


def _judge_save(
    tally: Tally,
    where: str,
    folder: Path,
    end: injection.End,
    before: dict[str, bytes],
    after: dict[str, bytes],
) -> None:
    if tally.kind != "save: kill" and end.code not in (0, DISK):
        tally.unclear += 1
        tally.note(f"{where}: exit {end.code}: {end.told[-600:]}")
    found = _newest(folder)
    if found is None:
        tally.unresumable += 1
        tally.note(f"{where}: no checkpoint is left")
        return
    here = state(folder / "checkpoints")
    of = [_of(one, found.name) for one in (here, before, after)]
    if of[0] not in of[1:]:
        tally.silent += 1
        tally.note(f"{where}: {found.name} has changed since it was saved")
    checkpoints = (name for name in before if name.startswith("checkpoint-"))
    gone = [name for name in checkpoints if after.get(name) == before[name] != here.get(name)]
    if gone:
        tally.lost += 1
        tally.note(f"{where}: {gone[0]} was good and is gone")


def _of(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path.startswith(f"{name}/")}


def _newest(folder: Path) -> Path | None:
    """As a new process finds it. What it says of those that it sets aside is left unsaid: they are
    thousands.
    """
    from agentlite.core.errors import UserError
    from agentlite.engine import checkpoints

    checkpoints._sound.clear()
    try:
        with redirect_stderr(io.StringIO()):
            return checkpoints.newest(folder)
    except UserError:
        return None


# --- a step ---


def resumed(subject: Subject, take: Take) -> Iterator[Tally]:
    """Killed at each step of twelve, once its loss is logged and once it is saved; carried on to
    the end.
    """
    expected = _undisturbed(subject)
    for moment in ("logged", "saved"):
        tally = Tally(subject.name, f"step {moment}")
        for step in take([*range(1, STEPS)], f"{subject.name} {moment}"):
            fresh(subject)
            end = injection.forked(partial(_dying, subject, moment, step))
            if end.code != -signal.SIGKILL:
                raise RuntimeError(
                    f"{subject.name} was not killed at step {step}: {end.told[-600:]}"
                )
            tally.injected += 1
            _finish(
                subject,
                tally,
                f"step {step} {moment}",
                lambda: injection.forked(subject.job),
                expected,
            )
        yield tally


def _dying(subject: Subject, moment: str, step: int) -> None:
    from agentlite.core import console

    def die(now: int) -> None:
        if now >= step:
            os.kill(os.getpid(), signal.SIGKILL)

    def save(now: int, folder: Path, write: Callable[[], None]) -> None:
        write()
        die(now if moment == "saved" else 0)

    @contextmanager
    def progress(title: str, total: int) -> Iterator[Any]:
        yield lambda done, note="": die(done if moment == "logged" and title == subject.name else 0)

    with _saving(save), patch.object(console, "progress", progress):
        subject.job()


def _undisturbed(subject: Subject) -> dict[str, bytes]:
    fresh(subject)
    _must(subject.job)
    return _last(state(subject.run))


def _last(files: dict[str, bytes]) -> dict[str, bytes]:
    """All but the checkpoints before the last: a signal makes others."""
    steps = [
        int(name.split("checkpoint-")[1].split("/")[0]) for name in files if "/checkpoint-" in name
    ]
    return {
        name: content
        for name, content in files.items()
        if "/checkpoint-" not in name or f"/checkpoint-{max(steps)}/" in name
    }


def _finish(
    subject: Subject,
    tally: Tally,
    where: str,
    again: Callable[[], injection.End],
    expected: dict[str, bytes],
    refused: Sequence[int] = (),
) -> None:
    end = again()
    if end.code in refused:
        return
    if end.code:
        tally.unresumable += 1
        tally.note(f"{where}: then exit {end.code}: {end.told[-600:]}")
        return
    compare(tally, where, expected, _last(state(subject.run)))
