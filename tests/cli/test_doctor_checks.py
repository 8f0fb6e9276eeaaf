"""Single checks of `agentlite doctor`, on machines that are made up."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.cli import doctor as checks
from agentlite.cli.doctor import hardware, model_access, packages, probe
from agentlite.cli.doctor.finding import Finding
from agentlite.cli.doctor.probe import HUB, MIRROR, ProbedFacts
from agentlite.config.gpu_profiles import Gpu
from agentlite.core.errors import UserError

BARE = ProbedFacts(Path("runs/default"), None, None, {})
RTX = Gpu("NVIDIA GeForce RTX 4090", 24.0, 23.0, 8.9)
T4 = Gpu("Tesla T4", 15.0, 14.5, 7.5)


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The version of each package that agentlite names, as it was tested; a test changes them."""
    pinned = packages.tested_set()
    names = [name for extra in packages.named().values() for name in extra]
    found = {name: pinned.get(name.lower().replace("_", "-"), "1.0") for name in names}
    found = {name.lower().replace("_", "-"): version for name, version in found.items()}
    monkeypatch.setattr(
        packages, "version", lambda name: found.get(name.lower().replace("_", "-"), "")
    )
    return found


@pytest.mark.parametrize(
    ("release", "state"),
    [((3, 10), "problem"), ((3, 11), "ok"), ((3, 14), "ok"), ((3, 15), "problem")],
)
def test_python_is_one_that_the_package_takes(monkeypatch, release, state):
    monkeypatch.setattr(sys, "version_info", (*release, 0))
    (found,) = packages.python(BARE)
    assert (found.state, bool(found.fix)) == (state, state != "ok")


@pytest.mark.parametrize(("card", "state"), [(None, "ok"), (RTX, "problem")])
def test_a_package_for_cuda_is_missed_on_a_gpu_only(versions, card, state):
    name = "bitsandbytes"
    del versions[name]
    (found,) = packages.installed(BARE._replace(card=card))
    assert found.state == state and (name in found.detail) is (state == "problem")


def test_the_tested_versions_are_those_without_what_they_are_built_for(versions):
    versions["torch"] += "+cpu"
    (found,) = packages.tested(BARE)
    assert found.state == "ok"


@pytest.mark.parametrize("count", [1, 5, 7])
def test_five_packages_of_another_version_are_named_and_the_others_counted(versions, count):
    pinned = packages.tested_set()
    others = [name for name in versions if name in pinned][:count]
    versions |= dict.fromkeys(others, "0.0.1")
    (found,) = packages.tested(BARE)
    assert found.detail.count(" (tested: ") == min(count, 5)
    assert found.detail.endswith(", and 2 others") is (count == 7)


def test_on_a_card_the_tested_torch_is_the_one_that_its_driver_runs(versions):
    versions["torch"] = "2.10.0+cu128"
    for driver, is_named in (("550.54.14", False), ("580.65", True)):
        found = [*packages.tested(BARE._replace(card=RTX, driver=driver))]
        assert any("torch 2.10.0+cu128 " in one.detail for one in found) is is_named


@pytest.mark.parametrize(
    ("card", "driver", "cuda", "vision", "state", "words"),
    [
        (None, None, "", "", "ok", "built for the CPU"),
        (None, None, "", "0.28.0", "problem", "torchvision is built for CUDA"),
        (None, None, "", "0.28.0+cpu", "ok", "built for the CPU"),
        (RTX, "580.65", "", "", "problem", "the GPU is not used"),
        (RTX, "580.65", "13.0", "0.28.0", "ok", "built for CUDA 13"),
        (RTX, "550.54", "13.0", "", "problem", "needs driver 580; this is 550.54"),
        (RTX, "", "13.0", "", "ok", "built for CUDA 13"),
        (None, "550.54", "13.0", "", "ok", "built for CUDA 13"),
    ],
)
def test_torch_fits_the_card_and_its_driver(
    versions, monkeypatch, card, driver, cuda, vision, state, words
):
    versions |= {"torch": "2.13.0", "torchvision": vision}
    monkeypatch.setattr(packages, "cuda_of_torch", lambda: cuda)
    (found,) = packages.torch(BARE._replace(card=card, driver=driver))
    assert (found.state, bool(found.fix)) == (state, state != "ok") and words in found.detail


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        ({"card": RTX, "driver": "580.65"}, "ok", "23.0 of 24.0 GB free, driver 580.65"),
        ({"card": T4, "driver": "580.65"}, "ok", "driver 580.65, no bfloat16"),
        ({"driver": "470.1"}, "problem", "driver 470.1 does not say"),
        ({"driver": ""}, "problem", "fails"),
        ({}, "ok", "no NVIDIA GPU"),
        ({"late": True}, "problem", "does not answer in 2 s"),
    ],
)
def test_the_gpu_is_described_or_its_fault_is_named(monkeypatch, facts, state, words):
    monkeypatch.setattr(hardware, "is_hidden", lambda: False)
    (found,) = hardware.gpu(BARE._replace(**facts))
    assert (found.state, bool(found.fix)) == (state, state != "ok") and words in found.detail
    assert found.detail.endswith(words) or words[0].isalpha()


@pytest.mark.parametrize(
    ("available", "state", "words"),
    [
        (8.0, "ok", "8.0 of 16.0 GB"),
        (6.0, "ok", "6.0 of 16.0 GB"),
        (5.9, "warning", "5.9 of 16.0 GB"),
        (64.0, "ok", "16.0 of 16.0 GB"),  # the machine has more than we may take
        (None, "ok", "16.0 of 16.0 GB"),
    ],
)
def test_little_free_memory_is_a_warning(monkeypatch, available, state, words):
    monkeypatch.setattr(hardware, "machine_of", lambda name: SimpleNamespace(capacity=16e9))
    text = "" if available is None else f"MemAvailable:  {available * 1e9 / 1024:.0f} kB\n"
    monkeypatch.setattr(hardware, "_read", lambda path: f"MemTotal: 1 kB\n{text}")
    (found,) = hardware.memory(BARE)
    assert (found.state, found.detail) == (state, f"{words} available")


@pytest.mark.parametrize(
    ("free", "words"), [(500e9, "500 GB free for "), (10e9, "10 GB "), (9.94e9, "9.9 GB ")]
)
def test_free_disk_is_said_more_exactly_where_there_is_little(monkeypatch, tmp_path, free, words):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    (found, *_) = hardware.disk(BARE._replace(run=tmp_path))
    assert found.detail.startswith(words)


def test_a_folder_that_can_only_be_read_is_named_with_what_it_is_for(monkeypatch, tmp_path):
    for name in ("AGENTLITE_CACHE", "HF_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    found = [one.detail for one in hardware.disk(BARE._replace(run=tmp_path)) if one.fix]
    assert found == [
        f"{tmp_path} cannot be written: workspace",
        f"{tmp_path / 'AGENTLITE_CACHE'} cannot be written: cache",
        f"{tmp_path / 'HF_HOME'} cannot be written: models of the hub",
    ]


@pytest.mark.parametrize(
    ("release", "run", "warned"),
    [
        ("5.15.90.1-microsoft-standard-WSL2", "/mnt/c/work", True),
        ("5.15.90.1-microsoft-standard-WSL2", "/tmp/work", False),
        ("6.1.0", "/mnt/c/work", False),
    ],
)
def test_a_workspace_on_the_disk_of_windows_is_slow(monkeypatch, release, run, warned):
    monkeypatch.setattr("platform.release", lambda: release)
    found = [*hardware.disk(BARE._replace(run=Path(run)))]
    assert any("disk of Windows" in one.detail for one in found) is warned


@pytest.mark.parametrize(
    ("variable", "there", "found"),
    [("my-cc", ["my-cc", "gcc"], "my-cc"), ("my-cc", ["gcc"], "gcc"), ("", ["clang"], "clang")],
)
def test_the_compiler_is_the_one_of_the_variable_if_it_is_there(
    monkeypatch, tmp_path, variable, there, found
):
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: name if name in there else None)
    monkeypatch.setenv("CC", variable)
    (one,) = hardware.compiler(BARE)
    assert (one.state, one.detail) == ("ok", f"{found}, with Python.h")
    (tmp_path / "Python.h").unlink()
    (one,) = hardware.compiler(BARE._replace(card=RTX))
    assert one.state == "problem" and one.detail.startswith("Python.h: not there")


def test_the_embedded_model_is_ready_once_it_was_converted(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENTLITE_CACHE", str(tmp_path))
    monkeypatch.setattr(model_access, "embedded_file", lambda alias: tmp_path)
    (found,) = model_access.embedded(BARE)
    assert found.detail == "smollm2-135m, made ready when it is first used"
    folder = tmp_path / "models/smollm2-135m-0123"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").touch()
    (found,) = model_access.embedded(BARE)
    assert (found.state, found.detail) == ("ok", "smollm2-135m, ready")

    def missing(alias: str) -> Path:
        raise UserError("is missing.", "Install it.")

    monkeypatch.setattr(model_access, "embedded_file", missing)
    (found,) = model_access.embedded(BARE)
    assert (found.state, found.detail, found.fix) == ("warning", "is missing.", "Install it.")


@pytest.mark.parametrize(("down", "words"), [([], f"answers; {MIRROR} too"), ([MIRROR], "answers")])
def test_a_mirror_that_answers_as_well_is_named(monkeypatch, down, words):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    servers = {url: "refused" if url in down else "" for url in (HUB, MIRROR)}
    (found,) = model_access.hub(BARE._replace(unreached=servers))
    assert found.detail == f"{HUB} {words}"


def test_the_variables_that_matter_are_shown_also_where_they_are_empty(monkeypatch):
    for name in model_access.NAMED:
        monkeypatch.delenv(name, raising=False)
    (found,) = model_access.variables(BARE)
    assert found.detail == "none of the variables that matter is set"
    for name in ("CC", "AGENTLITE_RUN", "AGENTLITE_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HF_HOME", "y")
    (found,) = model_access.variables(BARE)
    shown = "CUDA_VISIBLE_DEVICES=, HF_HOME=y, HF_HUB_OFFLINE=x, HF_ENDPOINT=x, AGENTLITE_CACHE=x"
    assert found.detail == f"{shown}, AGENTLITE_RUN=x, CC=x"


@pytest.mark.parametrize("value", ["1", "on", "YES", "True", "0", "", "no"])
def test_offline_is_read_as_the_library_reads_it(monkeypatch, value):
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert probe.offline() is (value.lower() in ("1", "on", "yes", "true"))


@pytest.mark.parametrize(
    ("value", "address"), [(None, HUB), ("", HUB), ("https://m.example/", "https://m.example")]
)
def test_models_come_from_the_hub_or_from_where_the_variable_says(monkeypatch, value, address):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    if value is not None:
        monkeypatch.setenv("HF_ENDPOINT", value)
    assert probe.endpoint() == address


@pytest.mark.parametrize(
    ("answered", "late"),
    [
        ({"card": None, "driver": None}, False),
        ({"card": None}, True),
        ({"driver": None}, True),
        ({}, True),
    ],
)
def test_a_driver_is_late_where_one_of_its_two_answers_is_missing(monkeypatch, answered, late):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(probe, "answers", lambda tasks, seconds: {**answered, HUB: ""})
    found = probe.ask(Path("r"))
    assert found.late is late
    assert found.unreached[HUB] == "" and found.unreached[MIRROR] == "no answer in 2 s"


def test_no_finding_shows_a_secret(monkeypatch):
    def check(facts: ProbedFacts) -> Any:
        yield Finding("x", "warning", "a hunter2hunter2", "b hunter2hunter2")

    monkeypatch.setenv("MY_TOKEN", "hunter2hunter2")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(checks, "CHECKS", (check,))
    assert checks.findings(Path("r")) == [Finding("x", "warning", "a (hidden)", "b (hidden)")]
