"""The table of docs/install.md: what is installed, by Python, driver and vLLM."""

import subprocess
import sys

import pytest
from support.examples import ALL
from support.samples import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from resolve_sets import CARD, DRIVERS, PYTHONS, SHOWN, constraints

from agentlite.config.torch_builds import NoBuild, build_for

HEAD = "| Python | vLLM | driver | resolves to |\n|---|---|---|---|\n"
PAGE = (ROOT / "docs/install.md").read_text(encoding="utf-8")
TABLE = PAGE.partition(HEAD)[2].partition("\n\n")[0].splitlines()


def cell(python: str, driver: str, vllm: bool) -> str:
    """The last column, of the one row that names all three."""
    words, number = "with" if vllm else "without", driver.partition(".")[0]
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in TABLE]
    (found,) = [
        row[3] for row in rows if row[:2] == [python, words] and number in row[2].split(", ")
    ]
    return found


@pytest.mark.parametrize("vllm", [False, True], ids=["without-vllm", "with-vllm"])
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_and_driver_has_a_row_with_the_torch_that_setup_takes(python, driver, vllm):
    found = cell(python, driver, vllm)
    try:
        build = build_for(CARD, driver, vllm)
    except NoBuild as error:
        refused = str(error).partition(":")[0]
    else:
        refused = ""
        pins = {pin.replace("==", " ") for pin in build.pins if pin.partition("==")[0] in SHOWN}
        assert {f"torch {build.torch}", *pins} <= {*found.split(", ")}
        assert ("vllm 0.31." in found) is vllm
    assert not refused or found == f"refused: {refused}"


def test_vllm_lets_go_of_the_pins_that_it_does_not_go_with():
    pins = ("torch==2.13.0", "triton==3.7.1")
    tested, with_vllm = constraints(pins, False), constraints(pins, True)
    assert "numpy==" in tested and "numpy==" not in with_vllm
    assert tested.count("torch==") == with_vllm.count("torch==") == 1


@pytest.mark.skipif(not ALL, reason="asks the package index; with --all")
def test_the_table_is_what_the_package_index_says_now():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/resolve_sets.py")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == HEAD + "\n".join(TABLE) + "\n", "renew the table in docs/install.md"
