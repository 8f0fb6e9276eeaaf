"""Installed packages: missing, other than tested, or known to be harmful. None is imported."""

import importlib.metadata
import importlib.util
import platform
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from agentlite.cli.doctor.finding import Facts, Finding
from agentlite.config.gpu_driver import DRIVERS, is_too_old
from agentlite.config.torch_builds import NoBuild, best_for, build_for

PYTHONS = ((3, 11), (3, 15))  # from, below: as pyproject.toml has it
WITH_CUDA = ("bitsandbytes",)
WITHOUT_TRAIN = (
    "pyarrow",
    "gguf",
    "accelerate",
    "datasets",
)  # many environments have these for something else
Release = tuple[int, ...]


class Bad(NamedTuple):
    """Versions of a package that do harm, why, and what to ask pip for."""

    package: str
    is_bad: Callable[[Release], bool]
    why: str
    instead: str


KNOWN_BAD = (
    Bad(
        "torch",
        lambda v: v < (2, 6),
        "loading a checkpoint can run code (CVE-2025-32434)",
        "torch==2.13.0",
    ),
    Bad(
        "torch",
        lambda v: v >= (2, 15),
        "Unsloth 2026.10.9 takes none from 2.15 on",
        "torch==2.13.0",
    ),
    Bad(
        "transformers",
        lambda v: v < (5, 3),
        "a model's config.json can run code (CVE-2026-4372, CVE-2026-5241)",
        "transformers==5.17.0",
    ),
    Bad(
        "transformers",
        lambda v: v >= (5, 18),
        "Unsloth 2026.10.9 takes none above 5.17",
        "transformers==5.17.0",
    ),
    Bad("trl", lambda v: v < (1, 15), "lacks what dpo and grpo stand on", "trl==1.15.0"),
    Bad(
        "trl", lambda v: v > (1, 15, 0), "Unsloth 2026.10.9 takes none above 1.15.0", "trl==1.15.0"
    ),
)


def python(facts: Facts) -> Iterator[Finding]:
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    fits = PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]
    yield Finding(
        "python", "ok" if fits else "problem", found, "" if fits else "Take one from 3.11 to 3.14."
    )


def installed(facts: Facts) -> Iterator[Finding]:
    """Without the extra `train` much works; with half of it, training does not."""
    by_extra = named()
    ours = f"agentlite {version('agentlite') or 'in a checkout, not installed'}"
    training = [name for name in by_extra["train"] if facts.card or name not in WITH_CUDA]
    missing = [name for name in by_extra[""] + training if not version(name)]
    fix = (
        f"bash scripts/setup.sh (in a checkout), or pip install -c {tested_file()} "
        "'agentlite[train]'"
    )
    if not missing:
        count = len(by_extra[""] + training)
        yield Finding(
            "packages",
            "ok",
            f"{ours}, and all {count} packages that it needs",
        )
    elif set(training) - set(missing) <= set(WITHOUT_TRAIN):
        yield Finding(
            "packages",
            "warning",
            f"{ours} without the extra `train`: prep, eval "
            "--predictions, pairs --from and reports work; what needs a model does not",
            fix,
        )
    else:
        yield Finding("packages", "problem", f"not installed: {', '.join(missing)}", fix)


def tested(facts: Facts) -> Iterator[Finding]:
    """Of the packages that agentlite names itself: what these bring along is theirs."""
    by_extra, pinned = named(), {**tested_set(), **built_for_card(facts)}
    ours = [
        name.lower().replace("_", "-")
        for extra in ("", "train", "retriever", "deepspeed", "serve")
        for name in by_extra[extra]
    ]
    there = {name: found for name in ours if name in pinned and (found := version(name))}
    other = [
        f"{name} {found} (tested: {pinned[name]})"
        for name, found in there.items()
        if found.partition("+")[0] != pinned[name]
    ]
    if not other:
        yield Finding(
            "tested set", "ok", f"{len(there)} packages, each in the version that was tested"
        )
        return
    yield Finding(
        "tested set",
        "warning",
        ", ".join(other),
        f"It may well work; to be sure: pip install -c {tested_file()} 'agentlite[train]'",
    )


def known_bad(facts: Facts) -> Iterator[Finding]:
    for bad in KNOWN_BAD:
        if (found := version(bad.package)) and bad.is_bad(release(found)):
            yield Finding(
                bad.package, "problem", f"{found}: {bad.why}", f"pip install {bad.instead}"
            )


def torch(facts: Facts) -> Iterator[Finding]:
    """Whether it is built for the GPU that is there, and the driver is new enough for it."""
    found = version("torch")
    if not found:
        return
    cuda = int(cuda_of_torch().partition(".")[0] or 0)
    text = f"{found}, built for {f'CUDA {cuda}' if cuda else 'the CPU'}"
    again = (
        best_for(facts.card, facts.driver) if facts.card and facts.driver else "scripts/setup.sh"
    )
    if facts.card and not cuda:
        yield Finding("torch", "problem", f"{text}: the GPU is not used", again)
    elif facts.card and facts.driver and is_too_old(facts.driver, cuda):
        yield Finding(
            "torch",
            "problem",
            f"{text}, which needs driver {DRIVERS[cuda]}; this is {facts.driver}",
            f"Update the driver, or: {again}",
        )
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
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    found = re.search(r"^cuda\b.*?'([\d.]+)'", text, re.MULTILINE)
    return found[1] if found else ""


def release(text: str) -> Release:
    """2.13.0+cpu -> 2, 13, 0."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


def named() -> dict[str, list[str]]:
    """The packages that agentlite asks for, by extra; under "" those that it always needs."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in importlib.metadata.requires("agentlite") or ():
        extra = re.search(r"""extra == ['"](\w+)['"]""", line)
        found[extra[1] if extra else ""] += re.findall(r"^[\w.-]+", line)
    return found


def tested_file() -> Path:
    """constraints.txt: beside the package in a checkout, inside it in a wheel."""
    inside = Path(__file__).parents[2] / "constraints.txt"
    return inside if inside.exists() else inside.parent.parent / inside.name


def built_for_card(facts: Facts) -> dict[str, str]:
    """Torch and what is built for it, as setup.sh takes them for the card and its driver."""
    if not facts.card or not facts.driver:
        return {}
    try:
        build = build_for(facts.card, facts.driver)
    except NoBuild:
        return {}
    return dict(pin.split("==") for pin in (f"torch=={build.torch}", *build.pins))


def tested_set() -> dict[str, str]:
    text = tested_file().read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE))
