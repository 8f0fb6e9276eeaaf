"""What coresets and replay are worth: models trained on what they chose, for equal steps, asked the
same questions.

    .venv/bin/python scripts/bench/choosing.py coreset FOLDER [--seeds 0 1 2]
    .venv/bin/python scripts/bench/choosing.py replay FOLDER [--seeds 0 1 2]      after coreset: it
    goes on from there

coreset: of the train questions of BFCL's simple_python and multiple, each strategy chooses 60; 8
steps of sft on them. replay: the models of the random coreset then learn when not to call (BFCL's
irrelevance) for 24 steps, with and without earlier rows beside, none of them joined; both are asked
the first set's test questions again.

Prints JSON: by way and metric the mean over the seeds, and the paired difference to `random` or to
`without` with its 95 % interval, for which questions (not seeds) are drawn again. Each stage is
kept in FOLDER: a run that was stopped goes on.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from agentlite.core.records import Step
from agentlite.core.row_files import read_rows
from agentlite.scoring.metrics.confidence import bootstrap, paired_difference

Told = dict[str, dict[int, dict[str, dict[Step, float]]]]  # by way, seed and metric
STRATEGIES = ("random", "loss_topk", "diversity", "hybrid")
METRICS = ("tool_selection_accuracy", "exact_call", "call_decision")
SETS = {"calls": ["bfcl:simple_python", "bfcl:multiple"], "no-calls": ["bfcl:irrelevance"]}
FORM = {"model": "smollm2-135m", "protocol": "hermes", "max_length": 560, "long_rows": "filter"}
SPLIT = {"dev": 0, "test": 0.4, "split_by": "query,near,parent,calls,tools"}
CHOSEN = {"dev": 0, "test": 0, "coreset_target_size": 60, "join": 8, "join_tokens": 1400}
SECOND = {"coreset_strategy": "random", "join": 1, "steps": 24}
SFT = {"batch_size": 1, "gradient_accumulation": 2, "learning_rate": 1e-3}
EVAL = {"max_new_tokens": 64, "max_length": 1024, "batch_size": 25}
ASKED = {"calls": 60, "no-calls": 40}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["coreset", "replay"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    for name, sources in SETS.items():
        stage(options.folder, "prep", *sources, out=name, **FORM, **SPLIT)
    found = {"coreset": coresets, "replay": replay}[options.what](options.folder, options.seeds)
    print(json.dumps(found, indent=2))


def coresets(folder: Path, seeds: list[int]) -> dict[str, Any]:
    told: Told = {}
    for seed in seeds:
        for strategy in STRATEGIES:
            name = f"{strategy}-{seed}"
            buffer = {"replay": str(folder / f"buffer-{seed}")} if strategy == "random" else {}
            learn(folder, "calls", name, seed, coreset_strategy=strategy, **buffer)
            told.setdefault(strategy, {})[seed] = asked(folder, name, "calls")
    return {"calls": table(told, "random")}


def replay(folder: Path, seeds: list[int]) -> dict[str, Any]:
    told: dict[str, Told] = {name: {} for name in SETS}
    for seed in seeds:
        kept, used = (
            folder / f"buffer-{seed}",
            folder / f"buffer-with-{seed}",
        )  # what is learned is added to the second
        if not used.exists():
            shutil.copytree(kept, used)
        buffer = {"replay": str(used), "continual_replay_ratio": 0.5}
        for way, how in {"without": {}, "with": buffer}.items():
            learn(folder, "no-calls", f"{way}-{seed}", seed, f"random-{seed}", **SECOND, **how)
        for way, model in {"without": "without", "with": "with", "before": "random"}.items():
            for name, found in told.items():
                found.setdefault(way, {})[seed] = asked(folder, f"{model}-{seed}", name)
    return {name: table(found, "without") for name, found in told.items()}


def learn(
    folder: Path, data: str, name: str, seed: int, model: str = "", steps: int = 8, **how: Any
) -> None:
    """prep of the train rows of a set, then sft. They bear their split, so another seed only
    chooses otherwise.
    """
    train = str(folder / data / "train.jsonl")
    stage(folder, "prep", train, out=f"prep-{name}", seed=seed, **{**FORM, **CHOSEN, **how})
    stage(
        folder,
        "sft",
        out=name,
        data=f"prep-{name}",
        seed=seed,
        **({"model": model} if model else {}),
        **SFT,
        max_steps=steps,
        save_steps=steps,
    )


def asked(folder: Path, model: str, data: str) -> dict[str, dict[Step, float]]:
    """What the answers of a model score, by metric."""
    stage(folder, "eval", model=model, data=data, limit=ASKED[data], **EVAL)
    rows = list(read_rows(folder / "eval" / data / model / "predictions.jsonl"))
    return {
        metric: {
            Step(row["record_id"], row["turn"]): row["metrics"][metric]
            for row in rows
            if metric in row["metrics"]
        }
        for metric in METRICS
    }


def stage(folder: Path, command: str, *sources: str, **settings: Any) -> None:
    flags = [
        part
        for key in ("out", "seed", "model", "data", "limit", "replay")
        if key in settings
        for part in (f"--{key}", str(settings.pop(key)))
    ]
    sets = [
        part for key, value in settings.items() for part in ("--set", f"{command}.{key}={value}")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "agentlite", command, *sources, "--run", str(folder), *flags, *sets],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    print(f"{command} {' '.join(flags)}", file=sys.stderr)


def table(told: Told, against: str) -> dict[str, Any]:
    """By way and metric: the mean over seeds and questions, and what it has over `against`."""
    found: dict[str, Any] = {}
    for way, by_seed in told.items():
        for metric in METRICS:
            own, other = _mean(by_seed, metric), _mean(told[against], metric)
            if not own:
                continue
            low, high = bootstrap(list(own.values()), 0)
            each = [round(fmean(one[metric][step] for step in own), 3) for one in by_seed.values()]
            row = {
                "mean": fmean(own.values()),
                "low": low,
                "high": high,
                "questions": len(own),
                "by_seed": each,
            }
            if way != against:
                row["difference"] = msgspec.to_builtins(paired_difference(other, own, 0))
            found.setdefault(way, {})[metric] = row
    return found


def _mean(by_seed: dict[int, dict[str, dict[Step, float]]], metric: str) -> dict[Step, float]:
    """Of each question that all were asked, over the seeds."""
    tables = [one[metric] for one in by_seed.values()]
    common = set.intersection(*map(set, tables))
    return {step: fmean(one[step] for one in tables) for step in sorted(common)}


if __name__ == "__main__":
    main()
