"""The one door to torch: the environment first, then Unsloth, which patches TRL, then the rest."""

import atexit
import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentlite.config.settings import Engine
from agentlite.config.this_machine import SWITCHES, has_gpu, keep_private
from agentlite.core import console
from agentlite.core.errors import MODEL, UserError, install_fix, require

QUIET_VARIABLES = {
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",  # grpo's rollout function is called experimental
    "DEEPSPEED_LOG_LEVEL": "warning",
}
# in /tmp it would be gone after a restart: the first step on a GPU compiles for a minute or more
KERNEL_FOLDER = Path.home() / ".cache/agentlite/torchinductor"
# they would make torch run what a pickle holds, or refuse what it may hold
UNPICKLING_VARIABLES = ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_WEIGHTS_ONLY_LOAD")
PACKAGES = ("torch", "transformers", "trl", "peft")
INSTALL = 'pip install "agentlite[train]"'


class LazyModule:
    """A library that is imported when something of it is first used: `--help` and a dry run do
    without these seconds. What Unsloth patches is used after `load_libraries`, which imports it
    first.
    """

    def __init__(self, name: str):
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.name), attribute)


torch, transformers, trl, peft = map(LazyModule, PACKAGES)
datasets, unsloth, sentence_transformers = map(
    LazyModule, ("datasets", "unsloth", "sentence_transformers")
)


def check_libraries(engine: Engine) -> None:
    """Asked before anything slow: whether what `engine` needs is installed. Loads nothing. Raises
    UserError 5.
    """
    packages = (*PACKAGES, "unsloth") if engine == "unsloth" or not has_gpu() else PACKAGES
    require("training or asking a model", packages, INSTALL)


def be_quiet() -> None:
    """Before libraries are imported: no telemetry, no bars, nothing that makes torch run what a
    pickle holds.
    """
    keep_private()
    for name, value in {**QUIET_VARIABLES, "TORCHINDUCTOR_CACHE_DIR": str(KERNEL_FOLDER)}.items():
        os.environ.setdefault(name, value)
    for name in UNPICKLING_VARIABLES:
        os.environ.pop(name, None)
    if not on_gpu():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed looks for compilers otherwise


def load_libraries(engine: Engine) -> None:
    """Imports what `engine` needs, in the order that works. Raises UserError 5 if a package is
    missing.

    TRL's fused loss is a CUDA kernel; on a machine without a GPU it is Unsloth that replaces it,
    for both engines.
    """
    # Unsloth puts a folder of compiled code first on sys.path; a private one cannot be planted or
    # shared
    if "UNSLOTH_COMPILE_LOCATION" not in os.environ:
        folder = tempfile.mkdtemp(prefix="agentlite-compiled-")
        os.environ["UNSLOTH_COMPILE_LOCATION"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    check_libraries(engine)
    # later, nothing is loaded, and no time passes to measure in
    is_first = "trl" not in sys.modules
    busy_before = busy_seconds_of_others()
    started = time.monotonic()
    try:
        with console.waiting("loading torch, transformers and trl"):
            be_quiet()
            with console.hide_stdout():
                if on_gpu():
                    for name, value in SWITCHES.items():
                        os.environ.setdefault(name, value)
                # Unsloth first: it patches the others
                patches = engine == "unsloth" or not on_gpu()
                for name in ("unsloth", *PACKAGES) if patches else PACKAGES:
                    importlib.import_module(name)
                # of an output head, where Unsloth reads it
                peft.utils.other.TrainableTokensWrapper.bias = None
                transformers.logging.set_verbosity_error()
                transformers.utils.logging.disable_progress_bar()
    except ImportError as error:
        problem = f"a package cannot be loaded: {error}."
        raise UserError(problem, install_fix(INSTALL), exit_code=MODEL) from error
    if is_first and not on_gpu():
        busy_cores = (busy_seconds_of_others() - busy_before) / (time.monotonic() - started)
        leave_cores_to_others(busy_cores)


def busy_seconds_of_others() -> float:
    """The seconds that all cores have spent on other programs since the machine was started."""
    import psutil

    times = psutil.cpu_times()
    return float(times.user + getattr(times, "nice", 0.0) + times.system) - time.process_time()


def leave_cores_to_others(busy_cores: float) -> None:
    """`busy_cores`: how many other programs use. Torch splits each operation among its threads and
    waits for the last: one that has to share its core makes every step several times slower.
    """
    cores, usual_threads = os.cpu_count() or 1, torch.get_num_threads()
    threads = max(1, min(usual_threads, round(cores - busy_cores)))
    if "OMP_NUM_THREADS" not in os.environ and threads < usual_threads:
        torch.set_num_threads(threads)
        console.notice(
            f"other programs use {min(busy_cores, cores):.1f} of {cores} cores, so this one "
            f"computes with {threads} (OMP_NUM_THREADS={usual_threads}: with {usual_threads} all "
            "the same)"
        )


def on_gpu() -> bool:
    return bool(torch.cuda.is_available())


def load_dtype() -> Any:
    """float32 on CPU, where it is exact and the same on every machine; on a GPU bfloat16, or
    float16 if it has none.
    """
    if not on_gpu():
        return torch.float32
    # torch's own is_bf16_supported() counts a card that only emulates bfloat16, such as a T4
    return torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
