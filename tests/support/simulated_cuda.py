"""A test's function, called in a process of its own that sees a simulated card.

Of its own, because Unsloth patches torch, transformers and TRL when it is imported, once and for
good. It is a fork of a warm Python where one is kept for the card. What the simulation can tell is
in support/simulated_card.py.
"""

import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support.processes import TIMEOUT, environment, run
from support.simulated_card import FOLDER, environment_with
from support.warm_python import LOADERS

from agentlite.config.this_machine import has_gpu
from agentlite.engine import load_libraries

PACKAGES = ("bitsandbytes", "triton")


def needs_simulation(card: str | None) -> None:
    """Skips the test where a card cannot be simulated, or a real one is there."""
    if not sys.platform.startswith("linux"):
        pytest.skip("triton is for Linux")
    if card and has_gpu():
        pytest.skip("here is a real card, which tests/gpu use")
    missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
    assert FOLDER.is_dir() or not missing, f"{FOLDER} is missing: run scripts/setup.sh --all"


def simulated(case: Callable[..., Any], *arguments: object, card: str | None = "rtx3060") -> Any:
    """What `case(*arguments)` returns in a new process that sees the card `card` of CARDS. None:
    the machine as it is, with the packages of the folder, as bitsandbytes also works on a CPU.

    `case` is a function of a file's top level. Its arguments reach it as JSON has them (paths as
    strings), and so does its result.
    """
    needs_simulation(card)
    file, request = case.__code__.co_filename, [case.__name__, *arguments]
    with tempfile.TemporaryDirectory(prefix="agentlite-simulated-") as scratch:
        whole = environment_with(card, Path(scratch), environment())
        result = Path(scratch, "result.json")
        words = [file, json.dumps(request, default=os.fspath), card or "", str(result)]
        command = [sys.executable, "-m", "support.simulated_cuda", *words]
        how: Any = {"env": whole, "cwd": scratch, "capture_output": True, "text": True}
        server = card or "no card"
        if server in LOADERS and not has_gpu():  # CUDA is not forked
            done = run(command, **how, timeout=TIMEOUT, server=server)
        else:
            # tests/gpu may itself run on a simulated card, at a tenth of the speed
            slowly = "AGENTLITE_SIMULATED_CARD" in os.environ
            done = subprocess.run(command, **how, timeout=TIMEOUT * (6 if slowly else 1))
        assert result.exists(), f"{done.stdout}\n{done.stderr}"
        return json.loads(result.read_text(encoding="utf-8"))


def _main(file: str, request: str, card: str, result: str) -> NoReturn:
    if card:
        load_libraries("unsloth")  # first: it patches the others
    case, *arguments = json.loads(request)
    spec = importlib.util.spec_from_file_location("simulated_case", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    gc.freeze()  # Unsloth's loader collects garbage often: not among what was imported
    returned = getattr(module, case)(*arguments)
    Path(result).write_text(json.dumps(returned), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking every module of torch apart takes a second


if __name__ == "__main__":
    _main(*sys.argv[1:])
