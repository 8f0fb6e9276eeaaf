"""Faults, thousands of them: a command is killed or failed, run again, and what it leaves compared,
byte by byte.

    .venv/bin/python scripts/bench/faults [PART ...] [--all] [--seed 0] [--json
    runs/bench/faults.json] .venv/bin/python scripts/bench/faults --show runs/bench/faults.json
    [FILE ...]

A sample of a few of each kind takes a minute or two; --all, hours. Parts that were run are added to
the JSON as they come, so that the rest can be run later, or beside it into another file. Rows lost
or doubled, folders that cannot be resumed, and files that are otherwise than they should be without
a word: all should be 0.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import training
from commands import Subject, Take, Tally, subjects, sweep

Part = Callable[[Path, argparse.Namespace], Iterator[Tally]]
COUNTS = [one.name for one in fields(Tally) if one.type in (int, "int")]


def command(name: str) -> Part:
    """prep, eval or pairs, without a model."""

    def part(work: Path, options: argparse.Namespace) -> Iterator[Tally]:
        for subject in subjects(work / "commands"):
            if subject.arguments[0] == name:
                yield from sweep(subject, taking(options))

    return part


TRAINERS = ("sft", "dpo", "grpo", "retriever")


def trained(
    each: Callable[[Subject, argparse.Namespace], Iterator[Tally]],
    steps: int,
    save_steps: int,
    names: tuple[str, ...] = TRAINERS,
) -> Part:
    """Of a tiny model that is trained and asked in earnest."""

    def part(work: Path, options: argparse.Namespace) -> Iterator[Tally]:
        training.warm()
        (work / "training").mkdir(exist_ok=True)
        found = training.subjects(work / "training", steps, save_steps)
        for name in names:
            if not options.only or name in options.only:
                yield from each(found[name], options)

    return part


PARTS: dict[str, Part] = {
    **{name: command(name) for name in ("prep", "eval", "pairs")},
    "saves": trained(lambda one, told: training.saves(one, taking(told)), 4, 1),
    "steps": trained(lambda one, told: training.resumed(one, taking(told)), training.STEPS, 1),
}


def taking(options: argparse.Namespace) -> Take:
    """All of what there is, or a few drawn by the seed."""

    def take(found: list[Any], name: str) -> list[Any]:
        few = min(options.few, len(found))
        return found if options.all else random.Random(f"{options.seed} {name}").sample(found, few)

    return take


def main() -> None:
    options = asked()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs, and theirs, ignore it
    if options.show:
        rows = [row for path in options.show for row in stored(path)]
        print(table(Tally(**{one.name: row[one.name] for one in fields(Tally)}) for row in rows))
        return
    with tempfile.TemporaryDirectory(prefix="faults-") as work:
        found = run(Path(work), options)
    print(table(found))
    print(f"{sum(one.injected for one in found)} faults")
    sys.exit(any(bad(tally) for tally in found))


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [all of them]"
    )
    parser.add_argument("--all", action="store_true", help="every point, in place of a few")
    parser.add_argument(
        "--few", type=int, default=4, help="points of each command and kind in a sample [4]"
    )
    parser.add_argument("--only", action="append", metavar="COMMAND", help="of those of a part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file that what is found is added to")
    parser.add_argument(
        "--show",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="print what such files hold, as one table",
    )
    options = parser.parse_args()
    if unknown := {*options.parts} - {*PARTS}:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if missing := [str(path) for path in options.show or () if not path.exists()]:
        parser.error(f"no such file: {', '.join(missing)}")
    return options


def run(work: Path, options: argparse.Namespace) -> list[Tally]:
    found: list[Tally] = []
    for part in options.parts or PARTS:
        started = time.monotonic()
        for tally in PARTS[part](work, options):
            found.append(tally)
            print(
                f"{tally.command} {tally.kind}: {tally.injected}",
                *tally.told,
                sep="\n  ",
                file=sys.stderr,
            )
            if options.json:
                add(options.json, tally, options)
        print(f"{part}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return found


def bad(tally: Tally) -> int:
    return sum(getattr(tally, name) for name in COUNTS[1:])


def add(path: Path, tally: Tally, options: argparse.Namespace) -> None:
    """What was found before stays, unless it is of the same command and kind."""
    found = stored(path)
    now = {**asdict(tally), "all": options.all, "seed": options.seed}
    kept = [one for one in found if (one["command"], one["kind"]) != (tally.command, tally.kind)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"found": [*kept, now]}, indent=1, ensure_ascii=False), encoding="utf-8"
    )


def stored(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_bytes())["found"]) if path.exists() else []


def table(found: Iterable[Tally]) -> str:
    """Markdown, with sums; the ways in which files are harmed are one line."""
    rows: dict[tuple[str, str], list[int]] = {}
    for tally in found:
        group = tally.kind.partition(": ")[0]
        name = (tally.command, group if group in ("harmed", "checkpoint") else tally.kind)
        before = rows.setdefault(name, [0] * len(COUNTS))
        rows[name] = [
            one + getattr(tally, count) for one, count in zip(before, COUNTS, strict=True)
        ]
    sums = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines = [
        ["command", "fault", *COUNTS],
        ["---", "---", *["---:"] * len(COUNTS)],
        *([*name, *counts] for name, counts in rows.items()),
        ["**all**", "", *sums],
    ]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


if __name__ == "__main__":
    main()
