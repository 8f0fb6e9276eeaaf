"""`agentlite doctor`: findings about packages and the machine, each with what to do."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlite.cli.options import Command, RunOptions
from agentlite.config import resolve, this_machine
from agentlite.config.pipeline import TRAINERS
from agentlite.config.this_machine import AUTO, CPU, DRIVERS, GPU, is_hidden, is_too_old
from agentlite.config.torch_builds import install_command
from agentlite.core.console import print_table, redact
from agentlite.core.errors import adapt_pip_command
from agentlite.engine.planning.choose import auto_settings, fixed_keys
from agentlite.engine.planning.estimate import estimate
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.model_shape import PUBLISHED, shape_of
from agentlite.workspace.input_files import cache_folder

LITTLE_DISK = 10  # GB
HEADERS = Path(sysconfig.get_path("include")) / "Python.h"


class Finding(Struct, frozen=True):
    """`fix`: what to do; only where the state is not ok."""

    name: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    fix: str = ""


class Facts(NamedTuple):
    """`driver`: the version, "" where nvidia-smi is there and fails, None without one."""

    run: Path
    card: this_machine.Gpu | None
    driver: str | None


def findings(run: Path) -> list[Finding]:
    """`run`: the workspace, whose disk counts. A check that fails is a finding itself."""
    facts = Facts(run, this_machine.find_gpu(), this_machine.driver_version())
    results: list[Finding] = []
    for check in CHECKS:
        try:
            results += check(facts)
        except Exception as error:
            name = check.__name__.replace("_", " ")
            detail = f"this check failed: {error}"
            results.append(Finding(name, "warning", detail, "Please report it."))
    return [replace(f, detail=redact(f.detail), fix=redact(f.fix)) for f in results]


# --- packages; none is imported


def packages(facts: Facts) -> Iterator[Finding]:
    """Without the extra `train` much works; with half of it, training does not."""
    system = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    yield Finding("python", "ok", system)
    names = [name for name in requirements("agentlite") if facts.card or name != "bitsandbytes"]
    missing = [name for name in names if not version(name)]
    agentlite = f"agentlite {version('agentlite') or 'in a checkout, not installed'}"
    # beside the package in a checkout, inside it in a wheel
    package = Path(__file__).parents[2]
    folder = package if (package / "constraints.txt").exists() else package.parent
    extra = adapt_pip_command(f"pip install -c {folder / 'constraints.txt'} 'agentlite[train]'")
    fix = f"bash scripts/setup.sh (in a checkout), or {extra}"
    if not missing:
        yield Finding("packages", "ok", f"{agentlite}, and all {len(names)} packages that it needs")
    elif "torch" in missing:
        works = "prep, eval --predictions, pairs --from and reports work"
        detail = f"{agentlite} without the extra `train`: {works}; what needs a model does not"
        yield Finding("packages", "warning", detail, fix)
    else:
        yield Finding("packages", "problem", f"not installed: {', '.join(missing)}", fix)


def torch(facts: Facts) -> Iterator[Finding]:
    """Whether it is built for the GPU that is there, and the driver is new enough for it."""
    installed = version("torch")
    if not installed:
        return
    cuda = int(cuda_of_torch().partition(".")[0] or 0)
    text = f"{installed}, built for {f'CUDA {cuda}' if cuda else 'the CPU'}"
    command = install_command(facts.card, facts.driver) if facts.card and facts.driver else ""
    if facts.card and not cuda:
        yield Finding("torch", "problem", f"{text}: the GPU is not used", command)
    elif facts.card and facts.driver and is_too_old(facts.driver, cuda):
        detail = f"{text}, which needs driver {DRIVERS[cuda]}; this is {facts.driver}"
        yield Finding("torch", "problem", detail, f"Update the driver, or: {command}")
    else:
        yield Finding("torch", "ok", text)


def version(package: str) -> str:
    """ "" where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cuda_of_torch() -> str:
    """The CUDA that torch is built for, by the file that says so; "" for none, or without torch."""
    spec = importlib.util.find_spec("torch") if version("torch") else None
    if not spec or not spec.origin:
        return ""
    # a line of it: `cuda: Optional[str] = '12.8'`, and None without CUDA
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b.*?'([\d.]+)'", text, re.MULTILINE)
    return match[1] if match else ""


def requirements(package: str) -> list[str]:
    """The packages that one asks for, with its extra `train`."""
    from packaging.requirements import Requirement

    parsed = map(Requirement, importlib.metadata.requires(package) or ())
    return [r.name for r in parsed if not r.marker or r.marker.evaluate({"extra": "train"})]


# --- the machine


def gpu(facts: Facts) -> Iterator[Finding]:
    if card := facts.card:
        memory = f"{card.free:.1f} of {card.total:.1f} GB free"
        bf16 = "" if card.bf16 else ", no bfloat16"
        yield Finding("gpu", "ok", f"{card.name}, {memory}, driver {facts.driver}{bf16}")
    elif facts.driver is None:
        yield Finding("gpu", "ok", "no NVIDIA GPU is found: the CPU is used")
    elif is_hidden():
        fix = "To use it: unset CUDA_VISIBLE_DEVICES"
        yield Finding("gpu", "warning", "hidden by CUDA_VISIBLE_DEVICES", fix)
    else:
        detail = "nvidia-smi is there, and fails or does not say what the GPU can compute"
        fix = "Run nvidia-smi and do as it says: mostly, install the driver again (525 or newer)."
        yield Finding("gpu", "problem", detail, fix)


def disk(facts: Facts) -> Iterator[Finding]:
    """What is free for the workspace, for what is kept of models and data, and for the hub's."""
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    free = {}
    for name, path in {"workspace": facts.run, "cache": cache_folder(), "hub": hub}.items():
        # a folder that is not there yet will be made on the disk of the nearest one that is
        parents = (path.absolute(), *path.absolute().parents)
        folder = next(parent for parent in parents if parent.exists())
        free[name] = shutil.disk_usage(folder).free / 1e9
    detail = ", ".join(f"{gigabytes:.0f} GB free for {name}" for name, gigabytes in free.items())
    if min(free.values()) >= LITTLE_DISK:
        yield Finding("disk", "ok", detail)
    else:
        fix = "Free some: agentlite runs says how much finished stages can do without."
        yield Finding("disk", "warning", detail, fix)


def compiler(facts: Facts) -> Iterator[Finding]:
    """Triton compiles a small C file for each kernel, against Python's headers."""
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    if not facts.card:
        return
    if any(map(shutil.which, compilers)) and HEADERS.exists():
        yield Finding("compiler", "ok", "a C compiler, with Python.h")
    else:
        detail = "no C compiler with Python.h, and Triton needs it on the GPU"
        fix = "On Debian and Ubuntu: apt install gcc python3-dev"
        yield Finding("compiler", "problem", detail, fix)


def trains(facts: Facts) -> Iterator[Finding]:
    """The largest of the models whose shape is known that fits, in each precision, as
    `--profile auto` has it.
    """
    machine, trainer = machine_of(AUTO), TRAINERS[0]
    resolved = resolve.resolve(trainer, resolve.UserSettings(profile=GPU if machine.gpu else CPU))
    published = json.loads(PUBLISHED.read_bytes())
    shapes = {name: shape_of(config, name) for name, config in published.items()}
    largest: dict[int, str] = {}
    # the largest first, so that the first of each precision that fits is the one to tell
    for name in sorted(shapes, key=lambda name: -shapes[name].parameters):
        settings = resolved.settings
        if machine.gpu:
            by_memory = auto_settings(settings, fixed_keys(resolved), shapes[name], machine)
            settings = replace(settings, **by_memory.values)
        planned = estimate(settings, shapes[name], machine)
        if planned.fits:
            batch = f"{settings.batch_size} x {settings.max_length} tokens at once"
            largest.setdefault(planned.load.bits, f"{name} ({batch})")
    memory = f"{machine.capacity / 2**30:.1f} GiB{f' on {machine.name}' if machine.name else ''}"
    if largest:
        models = "; ".join(f"in {bits} bit up to {model}" for bits, model in largest.items())
        yield Finding("can train", "ok", f"{trainer} {models}, calculated for {memory}")
    else:
        fix = "What would fit: agentlite plan --model smollm2-135m"
        yield Finding("can train", "warning", f"{memory}: {trainer} of no model fits", fix)


CHECKS: list[Callable[[Facts], Iterator[Finding]]] = [packages, torch, gpu, disk, compiler, trains]


def doctor(options: RunOptions) -> None:
    """Prints the findings, each that is not ok with what to do."""
    started = time.monotonic()
    results = findings(Path(options.run))
    problems = sum(finding.state == "problem" for finding in results)
    if options.as_json:
        report = {
            "command": "doctor",
            "findings": results,
            "problems": problems,
            "seconds": round(time.monotonic() - started, 1),
        }
        print(msgspec.json.encode(report).decode())
    else:
        rows = [["", "", ""]]
        for finding in results:
            rows.append([finding.state, finding.name, finding.detail])
            if finding.fix:
                rows.append(["", "", f"-> {finding.fix}"])
        print_table(rows, text_columns=3)
        warnings = sum(finding.state == "warning" for finding in results)
        print(f"problems: {problems}, warnings: {warnings}")
    if problems:
        sys.exit(1)


COMMAND = Command(
    "doctor",
    RunOptions,
    doctor,
    epilog="The exit code is 1 if there is a problem; warnings do not count.",
)
