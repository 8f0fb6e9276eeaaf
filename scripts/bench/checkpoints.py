"""What crash-safe checkpoints cost a run that nothing disturbs, beside plain ones of transformers'
Trainer.

    .venv/bin/python scripts/bench/checkpoints.py [PART ...] [--disk runs] [--saves 12] [--rounds 6]

`plain`: the newest two are kept, written straight into place; none is synced, digested, listed or
read back. Steps are as small as they get (a row, a pair, a group of four answers), so that
checkpoints weigh most.

Parts `sft`, `dpo`, `grpo`: every step of a run is saved both ways, in turns; the first ones are not
counted. By part the milliseconds of a save each way, and of what they go into; the ratio of the
two; and what the difference is, in percent, of a run with a checkpoint every 10 steps, and every
50, the default. Part `run`: `sft` whole, from its first row to its adapter, with the one or the
other, each run a process of its own, in turns. Intervals are of 95 %; saves, or turns, are drawn
again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import rl_overhead
import sft_overhead
from msgspec.structs import replace

from agentlite.engine import checkpoints
from agentlite.engine import trainer as training
from agentlite.scoring.metrics.confidence import middle, redrawn
from agentlite.workspace import digests

WAYS = ("safe", "plain")
EVERY = (10, 50)  # steps between checkpoints: often, and as it is by default
WARM_UP = 2
SMALLEST: dict[str, dict[str, int]] = {
    "sft": {},
    "dpo": {"gradient_accumulation": 1},
    "grpo": {"gradient_accumulation": 1},
}
PARTS = (*SMALLEST, "run")
Row = dict[str, float]


def main() -> None:
    options = asked()
    sft_overhead.ALIAS = rl_overhead.ALIAS = options.model
    if options.side:
        print(json.dumps(whole(options) if options.side in WAYS else saved(options)))
        return
    options.disk.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.disk.resolve()) as folder:
        os.environ["TMPDIR"] = folder  # of the runs
        print(
            json.dumps(
                {
                    part: of_runs(options) if part == "run" else of_saves(part, options)
                    for part in options.parts or PARTS
                },
                indent=2,
            )
        )


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [all of them]"
    )
    parser.add_argument(
        "--disk",
        type=Path,
        default=Path("runs"),
        help="a folder on the disk that is measured [runs]",
    )
    parser.add_argument("--saves", type=int, default=12, help="of each command [12]")
    parser.add_argument("--rounds", type=int, default=6, help="whole runs a side [6]")
    parser.add_argument("--steps", type=int, default=20, help="of a whole run [20]")
    parser.add_argument(
        "--save-steps", type=int, default=10, help="between the checkpoints of a whole run [10]"
    )
    parser.add_argument("--model", default=sft_overhead.ALIAS)
    parser.add_argument("--side", choices=[*WAYS, *SMALLEST], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := {*options.parts} - {*PARTS}:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return options


def one_run(side: str, options: argparse.Namespace) -> dict[str, Any]:
    told = {
        "--saves": options.saves,
        "--steps": options.steps,
        "--save-steps": options.save_steps,
        "--model": options.model,
        "--side": side,
    }
    command = [sys.executable, __file__, *(str(word) for pair in told.items() for word in pair)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


# --- every step saved both ways ---


def of_saves(command: str, options: argparse.Namespace) -> dict[str, Any]:
    found = one_run(command, options)
    rows: list[Row] = found["rows"]
    means = {name: mean(rows, name) for name in rows[0]}
    print(f"{command}: {means['safe']:.3f} s a save, plain {means['plain']:.3f}", file=sys.stderr)
    return {
        "megabytes": round(found["bytes"] / 1e6, 1),
        "saves": len(rows),
        "step_seconds": round(means.pop("step"), 2),
        "milliseconds": {name: round(1000 * seconds, 1) for name, seconds in means.items()},
        "ms_a_megabyte": {
            name: round(1e9 * means[name] / found["bytes"], 2) for name in ("synced", "digested")
        },
        "save_ratio": told(rows, lambda some: mean(some, "safe") / mean(some, "plain")),
        "percent_of_run": {
            str(every): told(rows, lambda some, every=every: percent(some, every))
            for every in EVERY
        },
    }


def mean(rows: Sequence[Row], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def percent(rows: Sequence[Row], every: int) -> float:
    """What a run takes longer than with plain checkpoints, by so many steps for each."""
    plain = mean(rows, "plain")
    return 100 * (mean(rows, "safe") - plain) / (every * mean(rows, "step") + plain)


def told(rows: Sequence[Any], figure: Callable[[Sequence[Any]], float]) -> dict[str, Any]:
    low, high = middle(figure(drawn) for drawn in redrawn(rows, 0))
    return {"value": round(figure(rows), 3), "interval": [round(low, 3), round(high, 3)]}


def saved(options: argparse.Namespace) -> dict[str, Any]:
    """A run of the command: a row a save, and the bytes of a checkpoint."""
    rows: list[Row] = []
    sizes: list[int] = []
    steps = argparse.Namespace(steps=options.saves + WARM_UP, answers=os.devnull)
    runs = {
        "sft": lambda: sft_overhead.ours(steps.steps),
        "dpo": lambda: rl_overhead.ours_dpo(steps),
        "grpo": lambda: rl_overhead.ours_grpo(steps),
    }
    with as_set(save_steps=1, **SMALLEST[options.side]), both_ways(rows, sizes):
        runs[options.side]()
    return {"rows": rows[WARM_UP:], "bytes": sizes[-1]}


@contextmanager
def as_set(**settings: int) -> Iterator[None]:
    """In here the runs by hand have other settings."""
    ours, theirs = sft_overhead.settings, rl_overhead.settings
    with (
        patch.object(sft_overhead, "settings", lambda *given: replace(ours(*given), **settings)),
        patch.object(rl_overhead, "settings", lambda *given: replace(theirs(*given), **settings)),
    ):
        yield


@contextmanager
def both_ways(rows: list[Row], sizes: list[int]) -> Iterator[None]:
    """In here a trainer saves safely and plainly, one after the other, the first one in turns."""
    keep, spent = checkpoints.keep, defaultdict[str, float](float)

    def keep_both(trainer: Any, folder: Path, steps: int, facts: Any) -> None:
        write = trainer._save_checkpoint
        trainer._save_checkpoint = timing(spent, "written", write)
        keep(trainer, folder, steps, facts)
        ways = {
            "safe": timing(spent, "safe", trainer._save_checkpoint),
            "plain": timing(spent, "plain", plainly(trainer, write, folder / "plain")),
        }
        ended = time.perf_counter()

        def save(model: Any, trial: Any) -> None:
            nonlocal ended
            spent.clear()
            spent["step"] = time.perf_counter() - ended
            for way in WAYS if len(rows) % 2 else reversed(WAYS):
                os.sync()  # what the other one left to be written is not its burden
                ways[way](model, trial)
            rest = spent["safe"] - spent["written"] - spent["synced"] - spent["digested"]
            rows.append({**spent, "rest": rest})
            sizes.append(
                sum(
                    size for size, _ in [*checkpoints.manifests(folder).values()][-1].files.values()
                )
            )
            ended = time.perf_counter()

        trainer._save_checkpoint = save

    with (
        patch.object(checkpoints, "keep", keep_both),
        patch.object(digests, "content_digest", timing(spent, "digested", digests.content_digest)),
        patch.object(os, "fsync", timing(spent, "synced", os.fsync)),
    ):
        yield


def timing(spent: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*given: Any) -> Any:
        started = time.perf_counter()
        result = function(*given)
        spent[name] += time.perf_counter() - started
        return result

    return timed


def plainly(trainer: Any, write: Callable[..., None], folder: Path) -> Callable[..., None]:
    def save(model: Any, trial: Any) -> None:
        where = trainer._get_output_dir
        trainer._get_output_dir, trainer.args.save_total_limit = (
            lambda trial: str(folder),
            checkpoints.KEPT,
        )
        write(model, trial)
        trainer._get_output_dir, trainer.args.save_total_limit = where, None

    return save


# --- whole runs ---


def of_runs(options: argparse.Namespace) -> dict[str, Any]:
    turns: list[Row] = []
    losses = []
    for number in range(options.rounds):
        turn = {way: one_run(way, options) for way in (WAYS if number % 2 else reversed(WAYS))}
        losses += [run["losses"] for run in turn.values()]
        turns.append({way: run["seconds"] for way, run in turn.items()})
        print(
            f"run {number + 1}: {turns[-1]['safe']:.2f} s, plain {turns[-1]['plain']:.2f}",
            file=sys.stderr,
        )
    return {
        "steps": options.steps,
        "save_steps": options.save_steps,
        "rounds": options.rounds,
        "seconds": {way: round(mean(turns, way), 2) for way in WAYS},
        "time_ratio": told(turns, lambda some: mean(some, "safe") / mean(some, "plain")),
        "losses_equal": all(other == losses[0] for other in losses),
    }


def whole(options: argparse.Namespace) -> dict[str, Any]:
    """`sft` with the checkpoints of that side; loading the model is left out."""
    spent = defaultdict[str, float](float)
    timed = timing(spent, "run", training.train)
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "safe": nullcontext,
        "plain": plain_ones,
    }
    with (
        as_set(save_steps=options.save_steps),
        ways[options.side](),
        patch.object(training, "train", timed),
    ):
        losses = sft_overhead.ours(options.steps)["losses"]
    return {"seconds": spent["run"], "losses": losses}


@contextmanager
def plain_ones() -> Iterator[None]:
    """In here the trainer's own way stays as it is, and the adapter is a copy of what it saved
    last.
    """

    def keep(trainer: Any, folder: Path, steps: int, facts: Any) -> None:
        trainer.args.save_total_limit = checkpoints.KEPT

    def keep_last(folder: Path) -> dict[str, Any]:
        last = max((folder / "checkpoints").iterdir(), key=checkpoints.step_of)
        (folder / "adapter").mkdir()
        for path in last.glob("adapter_*"):
            shutil.copyfile(path, folder / "adapter" / path.name)
        return {}

    with patch.object(checkpoints, "keep", keep), patch.object(training, "_keep_best", keep_last):
        yield


if __name__ == "__main__":
    main()
