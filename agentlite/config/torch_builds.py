"""A card and its driver -> the torch that runs on them; scripts/setup.sh runs it as a program."""

import sys
from typing import NamedTuple

from agentlite.config.this_machine import Gpu, driver_version, find_gpu

Version = tuple[int, ...]


class TorchBuild(NamedTuple):
    """A torch of the package index. `cuda`: what it is built for. `driver`: the oldest that runs
    it. `capabilities`: from the first to below the second. `pins`: itself, and the packages
    that are built for it, apart by blanks.
    """

    torch: str
    cuda: str
    driver: Version
    capabilities: tuple[float, float]
    pins: str


# The newest first. Drivers: docs.nvidia.com/deploy/cuda-compatibility, "Minor Version
# Compatibility" (CUDA 12.x: 525 or newer, 13.x: 580 or newer), and the release notes of the CUDA
# Toolkit (525.60.13). Capabilities of 2.10.0: those it is compiled for (torch.cuda.get_arch_list:
# sm_70 to sm_120). Below 8.0 xformers is 8 to 21 % faster than torch; from 8.0 on torch 2.12 and
# newer are as fast (measured by Unsloth: unsloth/utils/attention_dispatch.py). The newest xformers
# is built for torch 2.10.0.
BUILDS = (
    TorchBuild(
        "2.13.0", "13.0", (580,), (8.0, 99.0), "torch==2.13.0 torchvision==0.28.0 triton==3.7.1"
    ),
    TorchBuild(
        "2.10.0",
        "12.8",
        (525, 60, 13),
        (7.0, 13.0),
        "torch==2.10.0 torchvision==0.25.0 triton==3.6.0",
    ),
)
XFORMERS, XFORMERS_FROM = "xformers==0.0.35", 7.5  # built for torch 2.10.0 and CUDA 12.8


class NoBuild(Exception):
    """No torch of the table runs on this card with this driver; says what each needs."""


def build_for(gpu: Gpu, driver: str, vllm: bool = False) -> TorchBuild:
    """The newest torch that runs; of 2.10 with xformers, where it has kernels for the card. vLLM
    0.31 asks for the newest. `driver`: its version, 550.54.14. Raises NoBuild.
    """
    builds = BUILDS[:1] if vllm else BUILDS
    for build in builds:
        lowest, beyond = build.capabilities
        if version_numbers(driver) >= build.driver and lowest <= gpu.capability < beyond:
            # a T4 has kernels in xformers, a V100 (7.0) has none
            if build is BUILDS[-1] and gpu.capability >= XFORMERS_FROM:
                return build._replace(pins=f"{build.pins} {XFORMERS}")
            return build
    needs = [
        f"torch {build.torch}, built for CUDA {build.cuda}, needs driver "
        f"{'.'.join(map(str, build.driver))} or newer and a card of compute capability "
        f"{build.capabilities[0]} or more"
        for build in builds
    ]
    raise NoBuild(
        f"no torch of the tested set runs {'with vLLM ' if vllm else ''}on {gpu.name} (compute "
        f"capability {gpu.capability}) with driver {driver}: {'; '.join(needs)}. To train on the "
        "CPU instead: CUDA_VISIBLE_DEVICES=-1"
    )


def install_command(gpu: Gpu, driver: str) -> str:
    """The command that installs the torch of the table here, or why there is none."""
    try:
        build = build_for(gpu, driver)
    except NoBuild as error:
        return str(error)
    return f"uv pip install --reinstall {build.pins}"


def version_numbers(version: str) -> Version:
    """550.54.14 -> (550, 54, 14), since texts would sort 99 above 525."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def main(arguments: list[str]) -> None:
    """Prints the pins of this machine's torch, one a line, and on stderr what they are for."""
    version, gpu = driver_version(), find_gpu()
    if not version or not gpu:
        sys.exit(
            "nvidia-smi fails, or does not say which card there is: run it and do as it says; "
            "mostly, install the driver again (525 or newer)"
        )
    try:
        build = build_for(gpu, version, "--vllm" in arguments)
    except NoBuild as error:
        sys.exit(str(error))
    print(*build.pins.split(), sep="\n")
    summary = f"{gpu.name}, driver {version}: torch {build.torch}, built for CUDA {build.cuda}"
    print(summary, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
