"""Faults, thousands of them: prep, eval and pairs are killed or failed at a file call, run again,
and what they leave is compared, byte by byte.

    .venv/bin/python scripts/bench/faults [prep] [eval] [pairs] [--all] [--seed 0] [--json FILE]

A sample of a few of each kind takes a minute or two; --all, hours. Rows lost or doubled, folders
that cannot be resumed, and files that are otherwise than they should be without a word: all should
be 0.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from commands import Tally, subjects, sweep

NAMES = ("prep", "eval", "pairs")
COUNTS = [one.name for one in fields(Tally) if one.type in (int, "int")]


def main() -> None:
    options = asked()
    # a shell's background jobs, and theirs, ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def take(points: list[Any], name: str) -> list[Any]:
        """All of what there is, or a few drawn by the seed."""
        few = min(options.few, len(points))
        chance = random.Random(f"{options.seed} {name}")
        return points if options.all else chance.sample(points, few)

    found: list[Tally] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as work:
        for subject in subjects(Path(work) / "commands"):
            if subject.arguments[0] in (options.commands or NAMES):
                found += sweep(subject, take)
    for tally in found:
        print(f"{tally.command} {tally.kind}", *tally.told, sep="\n  ", file=sys.stderr)
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps([asdict(tally) for tally in found]), encoding="utf-8")
    sys.exit(any(getattr(tally, name) for tally in found for name in COUNTS[1:]))


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help="[all of them]")
    parser.add_argument("--all", action="store_true", help="every point, in place of a few")
    parser.add_argument(
        "--few", type=int, default=4, help="points of each command and kind in a sample [4]"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for what was found")
    return parser.parse_args()


def table(found: list[Tally]) -> str:
    """Markdown, with sums."""
    rows = [[getattr(tally, name) for name in COUNTS] for tally in found]
    lines = [
        ["command", "fault", *COUNTS],
        ["---", "---", *["---:"] * len(COUNTS)],
        *([tally.command, tally.kind, *counts] for tally, counts in zip(found, rows, strict=True)),
        ["**all**", "", *map(sum, zip(*rows, strict=True))],
    ]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    main()
