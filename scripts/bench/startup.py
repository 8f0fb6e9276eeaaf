"""How long `--help` takes: the median of many starts, and which heavy packages it loads.

.venv/bin/python scripts/bench/startup.py [--runs 20]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {"agentlite --help": ["--help"], "agentlite sft --help": ["sft", "--help"], "python -c pass": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    print(json.dumps({name: milliseconds(arguments, runs) for name, arguments in COMMANDS.items()}, indent=2))


def milliseconds(arguments: list[str], runs: int) -> float:
    program = Path(sys.executable).with_name("agentlite")
    command = [str(program), *arguments] if arguments else [sys.executable, "-c", "pass"]
    taken = []
    for _ in range(runs + 1):  # the first fills the page cache
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        taken.append(1000 * (time.perf_counter() - started))
    return round(statistics.median(taken[1:]), 1)


if __name__ == "__main__":
    main()
