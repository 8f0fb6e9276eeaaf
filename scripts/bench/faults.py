"""Faults, thousands of them: a command is killed or failed, run again, and what it leaves compared, byte by byte.

    .venv/bin/python scripts/bench/faults.py [PART ...] [--all] [--seed 0] [--json runs/bench/faults.json]

A sample of a few of each kind takes a minute or two; --all, hours. Parts that were run are added to the JSON as they
come, so that the rest can be run later. Rows lost or doubled, folders that cannot be resumed, and files that are
otherwise than they should be without a word: all should be 0.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import fault_injection as injection
from fault_commands import Tally, subjects, sweep

FEW = 4  # of each command and kind, in a sample
COUNTS = [one.name for one in fields(Tally) if one.type in (int, "int")]


def commands(work: Path, options: argparse.Namespace) -> Iterator[Tally]:
    """prep, eval and pairs, without a model."""
    for subject in subjects(work):
        yield from sweep(subject, lambda found, name: chosen(found, name, options))


PARTS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Tally]]] = {
    "commands": commands,
}


def chosen(found: list[Any], name: str, options: argparse.Namespace) -> list[Any]:
    """All of them, or a few drawn by the seed."""
    return found if options.all else random.Random(f"{options.seed} {name}").sample(found, min(FEW, len(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [all of them]")
    parser.add_argument("--all", action="store_true", help="every point, in place of a few")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file that what is found is added to")
    options = parser.parse_args()
    if unknown := {*options.parts} - {*PARTS}:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    found: list[Tally] = []
    for part in options.parts or PARTS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="faults-") as work:
            for tally in PARTS[part](Path(work), options):
                found.append(tally)
                print(f"{tally.command} {tally.kind}: {tally.injected}", *tally.told, sep="\n  ", file=sys.stderr)
        print(f"{part}: {time.monotonic() - started:.0f} s", file=sys.stderr)
        if options.json:
            add(options.json, part, found, options)
    print(table(found))
    print(f"{sum(one.injected for one in found)} faults, by {injection.tool()}")
    sys.exit(any(bad(tally) for tally in found))


def bad(tally: Tally) -> int:
    return sum(getattr(tally, name) for name in COUNTS[1:])


def add(path: Path, part: str, found: Iterable[Tally], options: argparse.Namespace) -> None:
    """What was found before stays, unless it is of the same command and kind."""
    before = json.loads(path.read_bytes())["found"] if path.exists() else []
    now = [{**asdict(tally), "by": injection.tool(), "all": options.all, "seed": options.seed} for tally in found]
    names = {(one["command"], one["kind"]) for one in now}
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [one for one in before if (one["command"], one["kind"]) not in names]
    path.write_text(json.dumps({"found": kept + now}, indent=1, ensure_ascii=False), encoding="utf-8")


def table(found: Iterable[Tally]) -> str:
    """Markdown, with sums."""
    rows = [[tally.command, tally.kind, *(getattr(tally, name) for name in COUNTS)] for tally in found]
    sums = ["**all**", "", *(sum(row[place] for row in rows) for place in range(2, 2 + len(COUNTS)))]
    lines = [["command", "fault", *COUNTS], ["---", "---", *["---:"] * len(COUNTS)], *rows, sums]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    main()
