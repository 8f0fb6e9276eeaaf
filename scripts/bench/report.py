"""How long a report takes to write and to open, and how large it is: predictions of made-up words,
of several shapes.

    .venv/bin/python scripts/bench/report.py [--predictions 10000] [--models 4] [--keep FOLDER]

Prints a line of JSON a shape: `one model`, every prediction on a prompt of its own; `models`, a
prompt for all of them. `write_seconds`: of processor time, both reports, the best of three;
`megabytes`: report.html; `notes`: what did not fit. With Chromium, `load_seconds`: to the end of
the load event, and `ready_seconds`: until single predictions can be read, each the best of five.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.browser import browser, installed  # noqa: E402
from support.generated_run import write_run  # noqa: E402

from agentlite.report import write_report  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--predictions", type=int, default=10_000)
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="leave the runs in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for shape, models in (("one model", 1), ("models", options.models)):
            run = (options.keep or Path(folder)) / shape.replace(" ", "-")
            write_run(
                run, [f"model-{number}" for number in range(models)], options.predictions // models
            )
            print(json.dumps({"shape": shape, "models": models, **measure(run)}), flush=True)


def measure(run: Path) -> dict[str, Any]:
    seconds = []
    for _ in range(3):
        started = time.process_time()
        write_report(run)
        seconds.append(time.process_time() - started)
    page = run / "report.html"
    told: dict[str, Any] = {
        "write_seconds": round(min(seconds), 2),
        "megabytes": round(page.stat().st_size / 1e6, 2),
        "notes": re.findall('class="note">([^<]*)', page.read_text(encoding="utf-8")),
    }
    return told | (opened(page) if installed() else {"load_seconds": "not measured: no Chromium"})


def opened(path: Path) -> dict[str, float]:
    loads, readies = [], []
    with browser() as page:
        for _ in range(5):
            page.open(path, width=1280)
            loads.append(page.load_seconds())
            readies.append(
                page.value("Number(document.documentElement.dataset.milliseconds)") / 1000
            )
    return {"load_seconds": round(min(loads), 2), "ready_seconds": round(min(readies), 2)}


if __name__ == "__main__":
    main()
