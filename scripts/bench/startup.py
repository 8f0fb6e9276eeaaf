"""How long it takes to print help: ours against the peers', all installed and compiled, in turns,
with an A/A control.

    .venv/bin/python scripts/bench/startup.py [--runs 20]

Prints JSON: by program the median in ms; the ratio of the medians to `agentlite --help`, and its 95
% interval, for which turns are drawn again. `control` is our own program a second time: far from 1,
the machine was not quiet.
"""

import argparse
import compileall
import json
import os
import random
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

OURS = "agentlite --help"
DRAWS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    programs = found()
    taken = measured(programs, parser.parse_args().runs)
    print(json.dumps({name: told(times, taken[OURS]) for name, times in taken.items()}, indent=2))


def found() -> dict[str, list[str]]:
    """What is installed here."""
    own = Path(sysconfig.get_path("scripts"))
    programs = {
        OURS: [own / "agentlite", "--help"],
        "control": [own / "agentlite", "--help"],
        "agentlite sft --help": [own / "agentlite", "sft", "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
        "trl --help": [own / "trl", "--help"],
        "unsloth --help": [own / "unsloth", "--help"],
        "trl sft --help": [own / "trl", "sft", "--help"],
    }
    here = {
        name: [str(word) for word in words]
        for name, words in programs.items()
        if Path(words[0]).exists()
    }
    for site in own.parent.glob("lib/python*/site-packages"):
        compileall.compile_dir(site, quiet=2, workers=0)
    return here


def measured(programs: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    """Milliseconds of every turn. Each turn runs all of them, in an order of its own; the first one
    is not counted.
    """
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(runs + 1):
        for name in random.sample([*programs], len(programs)):
            started = time.perf_counter()
            subprocess.run(
                programs[name],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
            )
            if turn:
                taken[name].append(1000 * (time.perf_counter() - started))
    return taken


def told(times: list[float], ours: list[float]) -> dict[str, float | list[float]]:
    generator = random.Random(0)
    drawn = sorted(
        statistics.median(times[turn] for turn in turns)
        / statistics.median(ours[turn] for turn in turns)
        for turns in (generator.choices(range(len(ours)), k=len(ours)) for _ in range(DRAWS))
    )
    interval = [round(drawn[int(share * DRAWS)], 2) for share in (0.025, 0.975)]
    return {
        "ms": round(statistics.median(times), 1),
        "times_ours": round(statistics.median(times) / statistics.median(ours), 2),
        "interval": interval,
    }


if __name__ == "__main__":
    sys.exit(main())
