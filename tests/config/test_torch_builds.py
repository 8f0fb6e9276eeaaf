"""Which torch a card and its driver get, by one table, and what setup.sh makes of it."""

from itertools import product

import pytest
from support.examples import sample
from support.samples import ROOT

from agentlite.config.this_machine import Gpu
from agentlite.config.torch_builds import BUILDS, XFORMERS, NoBuild, build_for, version_numbers

CARDS = {
    "Tesla V100": 7.0,
    "Tesla T4": 7.5,
    "RTX 2080 Ti": 7.5,
    "A100": 8.0,
    "RTX 3060": 8.6,
    "RTX 4090": 8.9,
    "L4": 8.9,
    "H100": 9.0,
    "H200": 9.0,
    "RTX 5090": 12.0,
}
DRIVERS = ("525.60.13", "535.183.01", "550.54.14", "570.86.15", "580.65.06", "595.10")


@pytest.mark.parametrize(("driver", "name"), sample(12, [*product(DRIVERS, CARDS)]))
def test_every_card_from_rtx_20_to_50_gets_a_torch_that_its_driver_runs(name, driver):
    build = build_for(Gpu(name, 24, 24, CARDS[name]), driver)
    assert version_numbers(driver) >= build.driver
    assert build.capabilities[0] <= CARDS[name] < build.capabilities[1]
    newest = version_numbers(driver) >= (580,) and CARDS[name] >= 8
    assert build.torch == ("2.13.0" if newest else "2.10.0")
    # built for 2.10.0, with kernels from 7.5 on
    assert (XFORMERS in build.pins) == (build.torch == "2.10.0" and CARDS[name] >= 7.5)


@pytest.mark.parametrize(
    ("capability", "driver", "vllm", "cause"),
    [
        (8.6, "470.57.02", False, "2.10.0, built for CUDA 12.8, needs driver 525.60.13 or newer"),
        (8.6, "525.60.12", False, "with driver 525.60.12: torch 2.13.0, built for CUDA 13.0"),
        (6.1, "580.65.06", False, "no torch of the tested set runs on it (compute capability 6.1)"),
        (8.9, "550.54.14", True, "with vLLM on it"),
        (7.5, "580.65.06", True, "a card of compute capability 8.0 or more"),
        (13.0, "570.1", False, "2.13.0, built for CUDA 13.0, needs driver 580 or newer"),
    ],
)
def test_where_none_runs_the_true_cause_is_named(capability, driver, vllm, cause):
    with pytest.raises(NoBuild) as error:
        build_for(Gpu("it", 24, 24, capability), driver, vllm)
    assert cause in str(error.value)


def test_the_newest_torch_is_the_tested_one():
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    newest = BUILDS[0]
    assert {f"torch=={newest.torch}", *newest.pins.split(), XFORMERS} <= set(pinned)
    assert [one.driver for one in BUILDS] == sorted((one.driver for one in BUILDS), reverse=True)
