"""A command as it was typed -> what its job needs: the card, the extras, the files, the keys."""

import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

from agentlite.cli.jobs import SchedulerJob
from agentlite.config.metavars import metavar
from agentlite.config.pipeline import TRAINERS, typed
from agentlite.config.resolve import Given, find_file, resolve
from agentlite.config.settings import default, fields
from agentlite.core.console import hidden, notice
from agentlite.core.errors import UserError
from agentlite.workspace.run_folder import RunTarget

CARDS = (16, 24, 48, 80, 141)  # GiB: T4, L4, L40S, A100, H200
OF_PROFILE = {"cpu": 0, "t4": 16, "rtx3060": 16, "rtx4090": 24, "a100": 80}
USABLE = 0.93  # of what is sold: a T4 has 15.0 of 16 GiB, an L4 22.5 of 24
GUESSED = 24  # GiB, where nothing is known
PATHS = re.compile("FILE|FOLDER|STAGE|MODEL|SOURCE|ENVIRONMENT")  # in how a setting is shown
PIECES = re.compile(r"[:=+\s]")  # between the parts of `general=chat.jsonl:0.2`, `shop.py:Shop`
LOCAL = re.compile(r"://(localhost|127\.|0\.0\.0\.0|\[::1\])")


class TypedCommand(NamedTuple):
    """`words`: what was typed behind `agentlite NAME`, without --print-job."""

    name: str
    words: tuple[str, ...]
    given: Given
    target: RunTarget
    run_from_env: bool = False


def job_of(command: TypedCommand, *, shared: bool) -> SchedulerJob:
    """`shared`: whether the job sees the files of this machine; otherwise it gets a copy of the
    current folder. Raises UserError 2 for what the job would not find."""
    settings = resolve(command.name, command.given).settings
    _check_paths(command, settings, shared)
    gib, why = _card(command, settings)
    workers = getattr(settings, "workers", 4)
    return SchedulerJob(
        (*typed(command.name).split(), *command.words),
        command.target.run,
        _extras(command.name, settings),
        gib,
        why,
        command.run_from_env,
        workers if isinstance(workers, int) and workers else 8,
        tuple(_keys(command.name, settings)),
        tuple(_notes(command.name, settings)),
    )


def _extras(name: str, settings: Any) -> str:
    """Of the package: `train,retriever`; "" for none."""
    named = {
        "train": name in TRAINERS or hasattr(settings, "load_in_4bit"),
        "retriever": name == "retriever" or bool(getattr(settings, "retrieve", None)),
        "deepspeed": bool(getattr(settings, "deepspeed", "")),
        "vllm": bool(getattr(settings, "vllm", False)),
    }
    needs = [extra for extra, is_needed in named.items() if is_needed]
    if "retriever" in needs:
        needs = ["train", *(extra for extra in needs if extra != "train")]
    return ",".join(needs)


def _card(command: TypedCommand, settings: Any) -> tuple[int, str]:
    """GiB of the smallest card that holds the command, 0 for none, and the reason."""
    from agentlite.stages.auto_profile import NO_MODEL_HERE

    if command.given.profile in OF_PROFILE:
        gib = OF_PROFILE[command.given.profile]
        return gib, f"as --profile {command.given.profile} needs"
    loads = hasattr(settings, "load_in_4bit") and not any(
        getattr(settings, key, None) for key in NO_MODEL_HERE
    )
    if command.name == "retriever":
        return CARDS[0], "the model of the retriever is small"
    if command.name == "ablate":
        return GUESSED, "a guess: `agentlite plan` calculates it for the stages that run"
    return _planned_card(command) if loads else (0, "no model is loaded")


def _planned_card(command: TypedCommand) -> tuple[int, str]:
    """By the plan of the settings that --profile auto would choose on each card."""
    from agentlite.engine.planning.estimate import data_of, plan
    from agentlite.engine.planning.gpus import with_memory
    from agentlite.engine.planning.model_shape import base_of, find_shape, with_teacher
    from agentlite.stages.api import settle
    from agentlite.stages.auto_profile import model_of

    name, given, target = command.name, command.given, command.target
    try:
        for gib in CARDS:
            machine = with_memory(gib * USABLE)._replace(bf16=gib > CARDS[0])
            with redirect_stderr(io.StringIO()):  # the notices of cards that are not taken
                settings = settle(name, given, target, machine).settings
            if not (model := model_of(settings)):
                first = default(name, "data")
                how = f"name one by --model, or run {first} first"
                return GUESSED, f"a guess: no model is known; {how}"
            shape = find_shape(base_of(model, target.run))
            shape = with_teacher(shape, settings, target.run)
            data = data_of(name, settings, target.run)
            total = plan(name, settings, shape, machine, data).gib
            if total.fits:
                return gib, f"the plan needs {total.total:.1f} GiB"
    except UserError as error:
        return GUESSED, f"a guess: {' '.join(error.problem.split()).rstrip('.')}"
    return CARDS[-1], "edit: the plan needs more than this; see `agentlite plan`"


def _keys(name: str, settings: Any) -> Iterator[str]:
    """Variables of the environment that the command reads, and that are set here."""
    found = [getattr(settings, key) for key, kind in fields(name).items() if _is(kind, "VARIABLE")]
    yield from (one for one in dict.fromkeys([*found, "HF_TOKEN"]) if os.environ.get(one))


def _is(kind: Any, shown: str) -> bool:
    return re.search(shown, metavar(kind)) is not None


def _values(name: str, settings: Any, shown: str) -> Iterator[tuple[str, str, Any]]:
    """The settings shown so: key, one text, default."""
    for key, kind in fields(name).items():
        if re.search(shown, metavar(kind)):
            value = getattr(settings, key)
            for one in value if isinstance(value, tuple | list) else (value,):
                if isinstance(one, str) and one:
                    yield key, one, default(name, key)


def _check_paths(command: TypedCommand, settings: Any, shared: bool) -> None:
    name, here = command.name, Path.cwd().resolve()
    files = [("config", one, "") for one in command.given.files if find_file(one) == Path(one)]
    for key, value, usual in (*_values(name, settings, PATHS.pattern), *files):
        flag = "SOURCE" if key == "sources" else f"--{key.replace('_', '-')}"
        if key in ("sources", "data") and value == "-":
            raise UserError(
                "a job has no stdin to read.", "Name a file in this folder.", location=flag
            )
        is_file = key == "config" or _is(fields(name)[key], "^FILE(,...)?$")
        if is_file and value != usual and _is_missing(value):
            raise UserError(
                f"the file {value} is not here, so the job would not have it either.",
                "Make it, or correct the name.",
                location=flag,
            )
        for path in () if shared else _outside((value, *PIECES.split(value)), here):
            raise _not_in_the_job(path, flag)
    run = command.target.run
    if not shared and (run.is_absolute() or not _is_inside(run, here) or run.resolve() == here):
        raise UserError(
            f"{run} is not in a folder of its own inside this one, and the job gets a copy of this "
            "one alone.",
            "Name a workspace such as --run runs/NAME.",
            location="AGENTLITE_RUN" if command.run_from_env else "--run",
        )


def _is_missing(value: str) -> bool:
    is_named = re.match(r"[a-z]{2,}:", value)  # bfcl:simple_python
    return not is_named and not find_file(value).exists()


def _is_inside(path: Path, here: Path) -> bool:
    return path.resolve().is_relative_to(here)


def _outside(pieces: Iterable[str], here: Path) -> Iterator[Path]:
    """Those that are files or folders of this machine, and not of this folder by a relative
    name."""
    for piece in filter(None, pieces):
        path = Path(piece).expanduser()
        try:
            exists = path.exists()
        except (OSError, ValueError):  # a text, too long for a path
            continue
        if exists and (path.is_absolute() or not _is_inside(path, here)):
            yield path


def _not_in_the_job(path: Path, flag: str) -> UserError:
    here = Path.cwd().resolve()
    if _is_inside(path, here):
        return UserError(
            f"{path} is an absolute path, and the job runs in a copy of this folder elsewhere.",
            f"Name it {flag} {path.resolve().relative_to(here)}.",
            location=flag,
        )
    copy = f"cp -rL {path} ./{path.name or 'NAME'}"
    size = _gigabytes(path) if flag.endswith("model") else ""
    return UserError(
        f"{path}{size} is not in this folder, and the job gets a copy of this folder alone.",
        f"Copy it: `{copy}`, and name it {flag} {path.name or 'NAME'}.",
        location=flag,
    )


def _gigabytes(path: Path) -> str:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return f" ({sum(one.stat().st_size for one in files) / 1e9:.2f} GB)"


def _notes(name: str, settings: Any) -> Iterator[str]:
    """What the user has to know, each a line."""
    for key, value, _ in _values(name, settings, "^MODEL"):
        if Path(value).is_dir():
            flag = f"--{key.replace('_', '-')}"
            yield f"{flag} is a folder of this machine, and is copied{_gigabytes(Path(value))}."
    for key, value, _ in _values(name, settings, "^URL"):
        flag = f"--{key.replace('_', '-')}"
        if LOCAL.search(value):
            yield f"{flag} names this machine; the job needs an address that it can reach."
        if hidden(value) != value:
            notice(f"{flag}: the address holds a password, and the job's file holds it too")
    if getattr(settings, "deepspeed", ""):
        yield "For several cards, start it by torchrun: docs/full.md."
