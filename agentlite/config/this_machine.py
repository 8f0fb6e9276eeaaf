"""The GPU of this machine and its driver, and the named profile whose memory it has."""

import functools
import os
import re
import subprocess
from typing import Final, Literal, NamedTuple

AUTO: Final = "auto"  # `GPU` and then what the planner chooses by memory; without a GPU `CPU`
GPU, CPU = "gpu", "cpu"
ProfileName = Literal["auto", "cpu", "gpu", "rtx3060", "t4", "rtx4090", "a100"]
# free GB that each needs, the largest first; each stands in ProfileName too, has its
# configs/NAME.yaml, and its card in the CARDS of engine/planning/gpus.py
PROFILES = {"a100": 70, "rtx4090": 20, "t4": 12.5, "rtx3060": 0}
# of Unsloth on CUDA, without loss, and off unless asked for: a decoding step is launched as a whole
SWITCHES = {"UNSLOTH_DECODE_CUDA_GRAPHS": "1"}
DRIVERS = {11: 450, 12: 525, 13: 580}  # the oldest that runs a torch which is built for this CUDA
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")  # there with a driver, also where nvidia-smi is not

# no library reports what is done here; who wants to be counted says so in the environment
PRIVATE = {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "UNSLOTH_DISABLE_STATISTICS": "1"}
LIBRARY_DEFAULTS = {
    "HF_HUB_VERBOSITY": "error",  # it would print each try of a request
    # CUDA would count the fastest card first, and the driver, which is asked, does not
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}


class Gpu(NamedTuple):
    """An NVIDIA GPU. `total`, `free`: GB of memory. `capability`: of compute, 7.5 for a T4."""

    name: str
    total: float
    free: float
    capability: float = 8.6

    @property
    def bf16(self) -> bool:
        """Whether it computes in bfloat16, as from Ampere on."""
        return self.capability >= 8


def keep_private() -> None:
    """To be called before a library is imported that would tell others, or the screen."""
    for name, value in {**PRIVATE, **LIBRARY_DEFAULTS}.items():
        os.environ.setdefault(name, value)


def _ask_driver(query: str) -> str | None:
    """What nvidia-smi answers, a line for each GPU; "" where it fails, None without it."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except FileNotFoundError:
        return None
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout


def driver_version() -> str | None:
    """The version; "" where nvidia-smi is there and fails, None without one."""
    answer = _ask_driver("driver_version")
    if answer is None:
        return None
    version = re.match(r"[\d.]+", answer)
    return version[0] if version else ""


def has_driver() -> bool:
    return driver_version() is not None or any(map(os.path.exists, DRIVER_FILES))


def is_too_old(version: str, cuda: int) -> bool:
    """Whether the driver `version` does not run what is built for this CUDA; 0: for none."""
    return int(version.partition(".")[0]) < DRIVERS.get(cuda, 0)


def is_hidden() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")


@functools.cache
def find_gpu() -> Gpu | None:
    """The NVIDIA GPU that CUDA_VISIBLE_DEVICES names first, by its number or UUID; the first if it
    names none, or a slice of one (MIG). None without one. Asked of its driver, since torch takes
    seconds to load.
    """
    if is_hidden():
        return None
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    answer = _ask_driver("index,uuid,name,memory.total,memory.free,compute_cap") or ""
    for line in answer.splitlines():  # "0, GPU-5f0c..., NVIDIA A100-SXM4-80GB, 81920, 81000, 8.0"
        # "No devices were found" has no commas: the columns are ""
        number, uuid, columns = (*line.split(",", 2), "", "")[:3]
        name, *figures = map(str.strip, columns.rsplit(",", 3))
        if device == number or uuid.strip().startswith(device) or device.startswith("MIG"):
            return _gpu(name, *figures) if len(figures) == 3 else None
    return None


def _gpu(name: str, total: str, free: str, capability: str) -> Gpu | None:
    """Of the driver's MiB. A GPU that shares the memory of the machine names none."""
    try:
        if "N/A" in total:  # "[N/A]"
            mib = os.sysconf("SC_PAGE_SIZE") / 2**20
            total, free = (
                str(os.sysconf(f"SC_{pages}_PAGES") * mib) for pages in ("PHYS", "AVPHYS")
            )
        return Gpu(name, float(total) / 1024, float(free) / 1024, float(capability))
    except ValueError:
        return None


def has_gpu() -> bool:
    return find_gpu() is not None


def profile_for(free: float) -> str:
    """The largest that so many GB are enough for."""
    return next((name for name, least in PROFILES.items() if free >= least), [*PROFILES][-1])
