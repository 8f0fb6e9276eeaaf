"""A card and its driver -> the torch that runs on them; scripts/setup.sh runs it as a program."""

import sys
from typing import NamedTuple

from agentlite.config.gpu_profiles import Gpu, card, driver

Version = tuple[int, ...]
CPU_INSTEAD = "To train on the CPU instead: CUDA_VISIBLE_DEVICES=-1"


class TorchBuild(NamedTuple):
    """A torch of the package index. `cuda`: what it is built for. `driver`: the oldest that runs
    it. `capabilities`: from the first to below the second. `pins`: itself, and the packages
    that are built for it.
    """

    torch: str
    cuda: str
    driver: Version
    capabilities: tuple[float, float]
    pins: tuple[str, ...]


# The newest first. Drivers: docs.nvidia.com/deploy/cuda-compatibility, "Minor Version
# Compatibility" (CUDA 12.x: 525 or newer, 13.x: 580 or newer), and the release notes of the CUDA
# Toolkit (525.60.13). Capabilities of 2.10.0: those it is compiled for (torch.cuda.get_arch_list:
# sm_70 to sm_120). Below 8.0 xformers is 8 to 21 % faster than torch; from 8.0 on torch 2.12 and
# newer are as fast (measured by Unsloth: unsloth/utils/attention_dispatch.py). The newest xformers
# is built for torch 2.10.0.
BUILDS = (
    TorchBuild(
        "2.13.0",
        "13.0",
        (580,),
        (8.0, 99.0),
        ("torch==2.13.0", "torchvision==0.28.0", "triton==3.7.1"),
    ),
    TorchBuild(
        "2.10.0",
        "12.8",
        (525, 60, 13),
        (7.0, 13.0),
        ("torch==2.10.0", "torchvision==0.25.0", "triton==3.6.0"),
    ),
)
XFORMERS, XFORMERS_FROM = "xformers==0.0.35", 7.5  # built for torch 2.10.0 and CUDA 12.8
VLLM_TORCH = "2.13.0"  # the one that vLLM 0.31 asks for


class NoBuild(Exception):
    """No torch of the table runs on this card with this driver; says why, and what would help."""


def build_for(found: Gpu, driver: str, vllm: bool = False) -> TorchBuild:
    """The newest torch that runs; of 2.10 with xformers, where it has kernels for the card.
    `driver`: its version, 550.54.14. Raises NoBuild.
    """
    version = numbers(driver)
    name = f"{found.name} (compute capability {found.capability})"
    capability = found.capability
    for_card = [one for one in BUILDS if one.capabilities[0] <= capability < one.capabilities[1]]
    if not for_card:
        raise NoBuild(f"no torch of the tested set runs on {name}. {CPU_INSTEAD}")
    running = [one for one in for_card if version >= one.driver]
    if not running:
        oldest = for_card[-1]
        raise NoBuild(
            f"driver {driver} is too old: torch {oldest.torch} is built for CUDA {oldest.cuda}, "
            f"which needs driver {'.'.join(map(str, oldest.driver))} or newer. {CPU_INSTEAD}"
        )
    chosen = running[0]
    if vllm and chosen.torch != VLLM_TORCH:
        newest = BUILDS[0]
        raise NoBuild(
            f"vLLM needs torch {VLLM_TORCH}, built for CUDA {newest.cuda}: driver "
            f"{newest.driver[0]} or newer, and a card of compute capability "
            f"{newest.capabilities[0]} or more. Here are driver {driver} and {name}"
        )
    if chosen.torch == "2.10.0" and found.capability >= XFORMERS_FROM:
        return chosen._replace(pins=(*chosen.pins, XFORMERS))
    return chosen


def best_for(found: Gpu, driver: str) -> str:
    """The command that installs the torch of the table here, or why there is none."""
    try:
        build = build_for(found, driver)
    except NoBuild as error:
        return str(error)
    return f"uv pip install --reinstall {' '.join(build.pins)}"


def numbers(version: str) -> Version:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def main(arguments: list[str]) -> int:
    """Prints the pins of this machine's torch, one a line, and on stderr what was found."""
    version, found = driver(), card()
    try:
        if not version:
            again = "mostly install the driver again"
            raise NoBuild(f"nvidia-smi fails: run it and do as it says, {again}")
        if found is None and numbers(version) >= BUILDS[-1].driver:
            raise NoBuild(f"driver {version} does not say which card there is: run nvidia-smi")
        found = found or Gpu("the card", 0, 0)
        build = build_for(found, version, "--vllm" in arguments)
    except NoBuild as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(build.pins))
    print(
        f"{found.name}, driver {version}: torch {build.torch}, built for CUDA {build.cuda}",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
