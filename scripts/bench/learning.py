"""What each stage teaches SmolLM2-135M about tools that it never saw: docs/learning.md.

    .venv/bin/python scripts/bench/learning.py [--jobs 1] [--sft NAME] [--sampler hf]

Ordinary commands on configs/recipes/best.yaml, each behind those that it needs. `sft` is tried in
several ways, of which the dev questions choose one; it is trained with three seeds, from each of
which the later stages start. Only what was chosen is asked the test questions. Commands run side by
side, as many as `--jobs` says, each with a log in the workspace. Run again, it carries on.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE, RECIPE = "smollm2-135m", "--config recipes/best.yaml"
SEEDS = (0, 1, 2)
ASKED = "bfcl:simple_python,multiple,irrelevance --dev .05 --test .8 --max-length 560"
# Every kind of question; those with a tool of the test's are left out by the recipe's split_by.
KINDS = (
    "bfcl:multiple,live_simple,live_multiple,live_irrelevance,parallel,parallel_multiple"
    ",simple_java,simple_javascript"
)
# What prep makes of those: the options that differ from the recipe's.
DATA = {
    "learn": "",
    "learn-distractors": "--set prep.distractors=3",
    "learn-renamed": "--set prep.mask_names=.5",
}
# Ways of sft: their data, and the options that differ from the recipe's.
SFT = {
    "recipe": ("learn", ""),
    "five": ("learn", "--epochs 5"),
    "fast": ("learn", "--lr 2e-3"),
    "full": ("learn", "--lr 3e-4 --full"),
    "distractors": ("learn-distractors", ""),
    "renamed": ("learn-renamed", ""),
    "r64": ("learn", "--lora-r 64 --set sft.lora_alpha=128"),
}
# Later stages, the quickest first; {sft} is the model of a seed. They use the dev questions, which
# sft has not learned; distill uses those that it has.
AFTER = {
    "simpo": "dpo --data pairs-{seed} --loss-type simpo --beta 2 --lr 2e-5 --epochs 2 -b 8",
    "dpo": "dpo --data pairs-{seed} --lr 3e-5 --epochs 2 -b 8",
    "rft": "sft --model {sft} --data best-{seed} --lr 2e-4 --epochs 2",
    "grpo": "grpo --model {sft} {rl} -b 256 --lr 2e-4 --max-steps 32",
    "ppo": "grpo --model {sft} {rl} -b 64 --advantage value --set grpo.rollouts=256 --lr 1e-4"
    " --max-steps 48",
    "distill": "distill --teacher {sft} --data learn --lr 1e-3 --epochs 1 -b 16 --lmbda 0 --fade 1"
    " --beta 0 --max-new-tokens 64",
}
RL = "--data learn --split dev --group-size 8 --max-new-tokens 64 --beta .02 --weights exact=1"
ONE_BATCH = "--gradient-accumulation 1 --save-steps 10000"


@dataclass
class Job:
    """One command, behind the jobs that it needs; `makes`: later jobs, known when it is done."""

    name: str
    command: str
    after: tuple[str, ...] = ()
    makes: Callable[[], list["Job"]] = list


class Search:
    """The jobs of the workspace, and what is chosen from their figures."""

    def __init__(self, run: Path, chosen: str = "") -> None:
        self.run, self.chosen = run, chosen

    def start(self) -> list[Job]:
        if self.chosen:
            data = {"learn", SFT[self.chosen][0]}  # the later stages learn from `learn`
            return self.after_sft(self.chosen, [*self.prep(data), self.sft(self.chosen, 0)])
        jobs = [*self.prep({*DATA}), *(self.sft(name, 0) for name in SFT)]
        jobs += [self.measured(f"sft-{name}-0", "dev") for name in SFT]
        names = tuple(f"sft-{name}-0-dev" for name in SFT)
        return [*jobs, Job("choose", "", names, lambda: self.after_sft(self.best(), []))]

    def prep(self, names: set[str]) -> Iterator[Job]:
        yield Job("asked", f"prep {ASKED} {RECIPE} --out asked")
        for name in sorted(names):
            yield self.learned(name, DATA[name])

    def learned(self, name: str, options: str) -> Job:
        files = " ".join(f"{self.run}/asked/{split}.jsonl" for split in ("test", "dev", "train"))
        return Job(name, f"prep {files} {KINDS} {RECIPE} {options} --out {name}", ("asked",))

    def sft(self, name: str, seed: int) -> Job:
        data, options = SFT[name]
        return self.trained(f"sft-{name}-{seed}", data, options, seed)

    def trained(self, out: str, data: str, options: str, seed: int) -> Job:
        words = f"sft --data {data} {options} {RECIPE} --save-steps 10000"
        return Job(out, f"{words} --seed {seed} --out {out}", (data,))

    def measured(self, model: str, split: str) -> Job:
        data = "learn" if split == "dev" else "asked"
        command = f"eval --data {data} --split {split} --model {model} {RECIPE} -b 256"
        needs = (data,) if model == BASE else (model, data)
        return Job(f"{model}-{split}", f"{command} --out eval-{split}-{model}", needs)

    def best(self) -> str:
        """By the exact calls on dev, among those that tell a call from none where one does."""
        found = {name: self.figures(f"sft-{name}-0", "dev") for name in SFT}
        for name, one in found.items():
            print(f"sft {name}: {one}", flush=True)
        able = [name for name in found if found[name]["balanced_accuracy"] >= 0.85] or [*found]
        return max(able, key=lambda name: found[name]["exact_call"])

    def figures(self, model: str, split: str) -> dict[str, float]:
        """Shares of the questions that expect a call, and the balanced accuracy of calling."""
        found = [*self.run.glob(f"eval-{split}-{model}/*/{model}/metrics.json")]
        if not found:  # the job has failed
            return {"tool_selection_accuracy": -1.0, "exact_call": -1.0, "balanced_accuracy": -1.0}
        metrics = json.loads(found[0].read_bytes())
        names = ("tool_selection_accuracy", "exact_call")
        balanced = metrics["timing"]["balanced_accuracy"]
        return {
            **{name: metrics["metrics"][name]["mean"] for name in names},
            "balanced_accuracy": balanced["mean"] if balanced else 0.0,
        }

    def after_sft(self, best: str, jobs: list[Job]) -> list[Job]:
        print(f"sft: {best}", flush=True)
        for seed in SEEDS:
            if seed:
                jobs.append(self.sft(best, seed))
            model = f"sft-{best}-{seed}"
            jobs += [self.measured(model, "test"), *self.sampled(model, seed)]
        for name in AFTER:
            jobs += [self.after(best, name, seed) for seed in SEEDS]
            jobs += [self.measured(f"{name}-{seed}", "test") for seed in SEEDS]
        # what else the dev questions could be used for: sft from the start, with them
        data, options = SFT[best]
        jobs.append(self.learned(f"{data}-all", f"{DATA[data]} --dev 0"))
        more = [self.trained(f"more-{seed}", f"{data}-all", options, seed) for seed in SEEDS]
        tests = [self.measured(name, "test") for name in (*(job.name for job in more), BASE)]
        # nothing waits for these, and sampling waits for sft: they do not run beside it
        sampled = tuple(f"pairs-{seed}" for seed in SEEDS)
        return [*jobs, *(replace(job, after=(*job.after, *sampled)) for job in (*more, *tests))]

    def sampled(self, model: str, seed: int) -> Iterator[Job]:
        """Candidates of a seed's model, and the best of them as training rows."""
        words = f"pairs --model {model} {RECIPE} --gold --seed {seed} -b 64"
        dev = f"pairs-{seed}"
        yield Job(dev, f"{words} --split dev --out {dev}", (model,))
        words = f"prep --from {dev} --keep best,exact>=1 {RECIPE} --dev 0"
        yield Job(f"best-{seed}", f"{words} --out best-{seed}", (dev,))

    def after(self, best: str, name: str, seed: int) -> Job:
        sft, out = f"sft-{best}-{seed}", f"{name}-{seed}"
        words = AFTER[name].format(sft=sft, seed=seed, rl=RL)
        parts = words.split()
        needs = parts[parts.index("--data") + 1]
        return Job(out, f"{words} {RECIPE} {ONE_BATCH} --seed {seed} --out {out}", (sft, needs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, help="commands at the same time [1]")
    parser.add_argument("--sft", choices=SFT, default="", help="go on from it, without a search")
    parser.add_argument("--sampler", default="", help="engine of eval and pairs [as trained]")
    parser.add_argument("--run", type=Path, default=Path("runs/learning"))
    options = parser.parse_args()
    jobs = Search(options.run, options.sft).start()
    failed = run(jobs, options.run, options.jobs, options.sampler)
    sys.exit(bool(failed))


def run(waiting: list[Job], folder: Path, slots: int, sampler: str) -> set[str]:
    """Runs the jobs, as many at a time as there are slots; returns the names of those that failed
    or needed one that did.
    """
    agentlite = shlex.split(os.environ.get("AGENTLITE", ".venv/bin/agentlite"))
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    done, failed = set[str](), set[str]()
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    began = time.monotonic()
    while waiting or running:
        for name, (process, since) in [*running.items()]:
            if process.poll() is None:
                continue
            del running[name]
            (failed if process.returncode else done).add(name)
            state = f"exit {process.returncode}" if process.returncode else "done"
            at, took = time.monotonic() - began, time.monotonic() - since
            print(f"{at:6.0f} s  {name}: {state} after {took:.0f} s", flush=True)
        for job in [*waiting]:
            if not done | failed >= set(job.after):
                continue
            if not job.command:
                done.add(job.name)
                waiting += job.makes()
            elif failed & set(job.after):
                failed.add(job.name)
            elif len(running) < slots:
                command = [*agentlite, *shlex.split(job.command), "--run", str(folder)]
                if sampler and job.command.startswith(("eval", "pairs")):
                    command += ["--engine", sampler]
                with (logs / f"{job.name}.log").open("wb") as log:
                    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
                running[job.name] = process, time.monotonic()
            else:
                continue
            waiting.remove(job)
        time.sleep(0.2)
    print(f"{time.monotonic() - began:6.0f} s  failed: {', '.join(sorted(failed)) or 'none'}")
    return failed


if __name__ == "__main__":
    main()
