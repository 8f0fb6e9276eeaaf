"""GPU, memory, disk and compiler: whether they will do, and what can be trained with them."""

import json
import os
import re
import shutil
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from agentlite.cli.doctor.finding import Facts, Finding
from agentlite.config import resolve
from agentlite.config.gpu_driver import is_hidden
from agentlite.config.gpu_profiles import AUTO, CPU, GPU
from agentlite.config.pipeline import TRAINERS
from agentlite.engine.planning.auto_settings import auto_settings, set_already
from agentlite.engine.planning.estimate import RowLengths, plan
from agentlite.engine.planning.gpus import machine_of
from agentlite.engine.planning.model_shape import PUBLISHED, shape_of
from agentlite.workspace.digests import cache_folder

LITTLE_MEMORY, LITTLE_DISK, NO_DISK = 6, 10, 1  # GB
GB = 1e9
HEADERS = Path(sysconfig.get_path("include")) / "Python.h"


def gpu(facts: Facts) -> Iterator[Finding]:
    if card := facts.card:
        yield Finding(
            "gpu",
            "ok",
            f"{card.name}, {card.free:.1f} of {card.total:.1f} GB free, driver {facts.driver}"
            + ("" if card.bf16 else ", no bfloat16"),
        )
    elif facts.driver is not None and is_hidden():
        yield Finding(
            "gpu",
            "warning",
            "hidden by CUDA_VISIBLE_DEVICES",
            "To use it: unset CUDA_VISIBLE_DEVICES",
        )
    elif facts.driver is not None:
        yield Finding(
            "gpu",
            "problem",
            "nvidia-smi is there, and fails or does not say what the GPU can compute",
            "Run nvidia-smi and do as it says: mostly, install the driver again (525 or newer). If "
            "no GPU is to be used: export CUDA_VISIBLE_DEVICES=-1",
        )
    else:
        yield Finding("gpu", "ok", "no NVIDIA GPU is found: the CPU is used")


def memory(facts: Facts) -> Iterator[Finding]:
    total = machine_of("cpu").capacity / GB
    available = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
    free = min(total, int(available[1]) * 1024 / GB) if available else total
    found = f"{free:.1f} of {total:.1f} GB available"
    if free >= LITTLE_MEMORY:
        yield Finding("memory", "ok", found)
    else:
        yield Finding(
            "memory",
            "warning",
            found,
            "Close what else is running; take a small batch_size and max_length.",
        )


def disk(facts: Facts) -> Iterator[Finding]:
    """A finding for each disk, and for each folder that cannot be written."""
    hub = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    places = {
        "workspace": (facts.run, "--run FOLDER"),
        "cache": (cache_folder(), "AGENTLITE_CACHE=FOLDER"),
        "models of the hub": (Path(hub), "HF_HOME=FOLDER"),
    }
    disks: dict[int, list[str]] = defaultdict(list)
    for name, (place, instead) in places.items():
        folder = _nearest(place)
        disks[folder.stat().st_dev].append(name)
        if not os.access(folder, os.W_OK):
            yield Finding(
                "disk",
                "problem",
                f"{folder} cannot be written: {name}",
                f"Name another folder: {instead}",
            )
    for names in disks.values():
        free = shutil.disk_usage(_nearest(places[names[0]][0])).free / GB
        found = f"{free:.{0 if free >= LITTLE_DISK else 1}f} GB free for {', '.join(names)}"
        if free >= LITTLE_DISK:
            yield Finding("disk", "ok", found)
        else:
            yield Finding(
                "disk",
                "warning" if free >= NO_DISK else "problem",
                found,
                "Free some: agentlite runs says how much finished stages can do without.",
            )


def compiler(facts: Facts) -> Iterator[Finding]:
    """Triton compiles a small C file for each kernel, against Python's headers."""
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    if not facts.card:
        return
    if any(map(shutil.which, compilers)) and HEADERS.exists():
        yield Finding("compiler", "ok", "a C compiler, with Python.h")
    else:
        yield Finding(
            "compiler",
            "problem",
            "no C compiler with Python.h, and Triton needs it on the GPU",
            "On Debian and Ubuntu: apt install gcc python3-dev",
        )


def trains(facts: Facts) -> Iterator[Finding]:
    """The largest of the models whose shape is known that fits, in each precision, as
    `--profile auto` has it.
    """
    machine, trainer = machine_of(AUTO), TRAINERS[0]
    given = resolve.Given(profile=GPU if machine.gpu else CPU)
    resolved = resolve.resolve(trainer, given)
    shapes = {
        name: shape_of(known, name) for name, known in json.loads(PUBLISHED.read_bytes()).items()
    }
    largest: dict[int, str] = {}
    for name in sorted(shapes, key=lambda name: -shapes[name].parameters):
        chosen = resolved.settings
        if machine.gpu:
            by_memory = auto_settings(chosen, set_already(resolved), shapes[name], machine)
            chosen = replace(chosen, **by_memory.values)
        planned = plan(chosen, shapes[name], machine, RowLengths())
        if planned.gib.fits:
            batch = f"{chosen.batch_size} rows of {chosen.max_length} tokens at once"
            largest.setdefault(planned.bits, f"{name} ({batch})")
    found = f"{machine.capacity / 2**30:.1f} GiB{f' on {machine.name}' if machine.name else ''}"
    if largest:
        models = "; ".join(f"in {bits} bit up to {model}" for bits, model in largest.items())
        yield Finding("can train", "ok", f"{trainer} {models}, calculated for {found}")
    else:
        yield Finding(
            "can train",
            "warning",
            f"{found}: {trainer} of no model fits",
            "What would fit: agentlite plan --model smollm2-135m",
        )


def _nearest(place: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
