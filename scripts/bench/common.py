"""What several benches do: read options, make up words, run a process, let sides take turns."""

import argparse
import json
import os
import random
import string
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Shows the text of a bench as it is written."""
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=doc, formatter_class=formatter)


def show(figures: object) -> None:
    print(json.dumps(figures, indent=2))


def make_words(chance: random.Random) -> list[str]:
    letters = string.ascii_lowercase
    return ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(5000)]


def python(*arguments: object) -> Any:
    """The JSON in the last line that a process of Python prints."""
    process = subprocess.run(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"},
    )
    return json.loads(process.stdout.splitlines()[-1])


def in_turns(
    sides: Mapping[str, Callable[[], object]],
    turns: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """The seconds of each call of each side; every other turn begins with the last one."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in [*sides] if turn % 2 == 0 else reversed([*sides]):
            started = clock()
            sides[name]()
            seconds[name].append(clock() - started)
            print(f"{name}: {seconds[name][-1]:.2f} s", file=sys.stderr)
    return seconds
