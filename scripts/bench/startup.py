"""How long it takes to print help: ours against the peers', all installed and compiled, in turns,
with an A/A control.

    .venv/bin/python scripts/bench/startup.py [--runs 20]

Prints JSON: by program the median in ms; the ratio of the medians to `agentlite --help`, and its 95
% interval, for which turns are drawn again. `control` is our own program a second time: far from 1,
the machine was not quiet.
"""

import compileall
import os
import random
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from common import make_parser, show

OURS = "agentlite --help"
DRAWS = 2000


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=20)
    programs = installed_programs()
    milliseconds = measure(programs, parser.parse_args().runs)
    show({name: summarize(times, milliseconds[OURS]) for name, times in milliseconds.items()})


def installed_programs() -> dict[str, list[str]]:
    """What is installed here, compiled."""
    folder = Path(sysconfig.get_path("scripts"))
    for site in folder.parent.glob("lib/python*/site-packages"):
        compileall.compile_dir(site, quiet=2, workers=0)
    lines = (OURS, "agentlite sft --help", "trl --help", "unsloth --help", "trl sft --help")
    programs = {line: [str(folder / line.split()[0]), *line.split()[1:]] for line in lines}
    programs = {line: words for line, words in programs.items() if Path(words[0]).exists()}
    return {**programs, "control": programs[OURS], "python -c pass": [sys.executable, "-c", "pass"]}


def measure(programs: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    """Milliseconds of every turn. Each turn runs all of them, in an order of its own; the first one
    is not counted.
    """
    milliseconds: dict[str, list[float]] = {name: [] for name in programs}
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
                milliseconds[name].append(1000 * (time.perf_counter() - started))
    return milliseconds


def summarize(times: list[float], ours: list[float]) -> dict[str, float | list[float]]:
    generator = random.Random(0)
    ratios = sorted(
        statistics.median(times[turn] for turn in turns)
        / statistics.median(ours[turn] for turn in turns)
        for turns in (generator.choices(range(len(ours)), k=len(ours)) for _ in range(DRAWS))
    )
    interval = [round(ratios[int(share * DRAWS)], 2) for share in (0.025, 0.975)]
    return {
        "ms": round(statistics.median(times), 1),
        "times_ours": round(statistics.median(times) / statistics.median(ours), 2),
        "interval": interval,
    }


if __name__ == "__main__":
    sys.exit(main())
