"""All that a GPU is needed for, step by step: tests/gpu, the cells of gpu.py, sampling, and the
pipeline on random weights -> OUT/results.md and results.json.

    bash scripts/gpu.sh [--minutes 30] [--only STEP ...] [--again] [--list] [--out DIR]

A step is a process group with a time limit of its own. Its result is written when it ends, so the
same command carries on with what is missing. A step that failed stays failed until `--again`, and
stops no other. `--minutes` starts no step whose limit would not fit any more.

exit code: 0 every step passed, 1 some failed, 75 some are still to be run (the same command goes
on), 2 wrong arguments or no GPU
"""

import argparse
import fcntl
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import gpu  # first: it finds agentlite in a plain checkout

from agentlite.config.gpu_driver import driver
from agentlite.config.gpu_profiles import has_gpu
from agentlite.core import console
from agentlite.core.row_files import write_json

ROOT, BENCH = gpu.ROOT, Path(__file__).parent
SAMPLES = ROOT / "tests/support/rows/weather.jsonl"
UNFINISHED = 75
TOY_SECONDS = 600
LAST_LINES = 12  # of a failed step's log, in the page


class GpuStep(NamedTuple):
    """`seconds`: its time limit. `command`: the words of a program. `needs`: the step whose
    `leaves` it reads; that step runs again where its file or folder is missing.
    """

    name: str
    shows: str
    seconds: int
    command: Sequence[str]
    needs: str = ""
    leaves: Path = ROOT


def steps(out: Path, toy: bool = False) -> list[GpuStep]:
    """All steps, in the order in which they run. `toy`: small shapes, for a machine without a GPU.

    The pipeline comes first: it answers the question that matters most.
    """
    # of the kind that its tokenizer belongs to, or export refuses it: it would cut texts otherwise
    one_layer = gpu.TOY_MODEL | {"model_type": "llama", "num_hidden_layers": 1}
    shape = one_layer if toy else gpu.shape("smollm2-135m")
    model = out / "models" / "pipeline"
    every = [
        *_pipeline(out, model, shape, toy),
        *_sampling(model, toy),
        *_tests(model, toy),
        *_cells(out, toy),
    ]
    # without a GPU the libraries alone may take minutes to load
    return [step._replace(seconds=TOY_SECONDS) for step in every] if toy else every


def _pipeline(out: Path, model: Path, shape: Mapping[str, Any], toy: bool) -> list[GpuStep]:
    """Every stage by its command, from rows to merged weights, on a model of random weights."""
    job = {"part": "build", "folder": str(model), "facts": shape, "result": str(out / "built.json")}
    build = ["scripts/bench/gpu_parts.py", json.dumps(job)]
    short = ["--max-steps", "4", "--save-steps", "2"]
    rows, answers = ["--batch-size", "2"], ["--max-new-tokens", "64"]
    group = ["--batch-size", "4"]
    if toy:
        short = ["--max-steps", "2", "--save-steps", "1", "--gradient-accumulation", "1"]
        rows, answers = ["--batch-size", "1"], ["--max-new-tokens", "4"]
        group = ["--batch-size", "2", "--group-size", "2"]
    commands = {  # stage: the step whose work it reads, and its arguments
        "prep": ("model", [str(SAMPLES), "--model", str(model), "--dev", "0.2", "--test", "0.3"]),
        "sft": ("run-prep", [*short, *rows]),
        # from random weights every answer is worthless: the recorded ones are the chosen side
        "pairs": ("run-sft", ["--num-samples", "4", "--gold", *answers]),
        "dpo": ("run-pairs", [*short, *rows]),
        "grpo": ("run-sft", [*short, *group, *answers]),
        "eval": ("run-sft", ["--model", str(model), "--model", "sft", *answers]),
        "export": ("run-sft", ["sft", "--merged", str(out / "merged"), "--force"]),
    }
    return [
        GpuStep("model", "the model of the pipeline is built", 120, build, "", model),
        *(
            GpuStep(
                f"run-{stage}",
                f"agentlite {stage}, on random weights",
                200,
                ["-m", "agentlite", stage, *words, "--run", str(out / "run"), "--json"],
                needs,
                out / "run" / stage,
            )
            for stage, (needs, words) in commands.items()
        ),
    ]


def _sampling(model: Path, toy: bool) -> list[GpuStep]:
    size = ["--prompts", "2", "--samples", "2", "--new-tokens", "4"] if toy else []
    words = ["scripts/bench/sampling.py", "--model", str(model), *size]
    engines = [("hf", "engine hf"), ("unsloth", "engine unsloth")]
    if not toy and importlib.util.find_spec("vllm"):
        engines.append(("vllm", "vLLM"))
    return [
        GpuStep(
            f"sampling-{engine}",
            f"tokens per second, {name}",
            240,
            [*words, "--engine", engine],
            "model",
        )
        for engine, name in engines
    ]


def _tests(model: Path, toy: bool) -> list[GpuStep]:
    """A step for each case of tests/gpu. A case that is skipped, without a GPU, has not passed."""
    if toy and not has_gpu():
        return []
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/gpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    cases = [line for line in found.stdout.splitlines() if "::" in line]
    if not importlib.util.find_spec("vllm"):
        cases = [case for case in cases if "::test_vllm" not in case]
    run = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    run += ["--gpu-model", str(model)] if toy else []
    needs = "model" if toy else ""
    return [GpuStep(_test_name(case), case, 240, [*run, case], needs) for case in cases] or [
        GpuStep("tests", "tests/gpu", 240, [*run, "tests/gpu"])  # fails with the reason
    ]


def _test_name(case: str) -> str:
    """FILE::test_WORD_AND_MORE[PARAMETERS] -> test-WORD-PARAMETERS"""
    name, _, parameters = case.partition("::test_")[2].partition("[")
    return "-".join(filter(None, ["test", name.split("_")[0], parameters.rstrip("]")]))


def _cells(out: Path, toy: bool) -> list[GpuStep]:
    words = ["scripts/bench/gpu.py", "--json", str(out / "cells.json")]
    words += ["--models", str(out / "models"), "--again"]
    words += ["--toy", "--minutes", "10"] if toy else []
    return [
        GpuStep(f"cell-{name}", cell.shows, 270, [*words, "--cell", name])
        for name, cell in gpu.CELLS.items()
    ]


def main() -> int:
    options = _options()
    out: Path = options.out.resolve()
    every = steps(out, options.toy)
    if options.list:
        print("\n".join(f"{step.name:28} {step.shows}" for step in every))
        return 0
    chosen = _chosen(every, options.only)
    card = gpu.look(options.toy)
    if not card:
        print("gpu.sh: torch sees no CUDA device; agentlite doctor says why.", file=sys.stderr)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"gpu.sh: another one is at work in {out}.", file=sys.stderr)
            return UNFINISHED
        return _run(every, chosen, card.name, out, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=30, help="no step starts that may end later [30]"
    )
    parser.add_argument("--only", action="append", help="a step, or a part of names; repeatable")
    parser.add_argument("--again", action="store_true", help="also steps that failed")
    parser.add_argument("--list", action="store_true", help="the steps, and nothing else")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/gpu", help="[runs/gpu]")
    parser.add_argument("--toy", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _chosen(every: Sequence[GpuStep], only: Sequence[str] | None) -> list[GpuStep]:
    for part in only or ():
        if not any(part in step.name for step in every):
            print(f"gpu.sh: no step's name holds '{part}'; --list shows them.", file=sys.stderr)
            sys.exit(2)
    return [step for step in every if not only or any(part in step.name for part in only)]


def _run(
    every: Sequence[GpuStep],
    chosen: Sequence[GpuStep],
    card: str,
    out: Path,
    options: argparse.Namespace,
) -> int:
    path, end = out / "results.json", time.monotonic() + 60 * options.minutes
    results = json.loads(path.read_bytes()) if path.exists() else {"steps": {}}
    results |= {"card": card, "versions": gpu.versions()}
    results["driver"] = driver() or ""
    waiting = _waiting(every, chosen, results["steps"], options.again)
    for index, step in enumerate(waiting):
        if time.monotonic() + step.seconds > end:
            console.notice(
                f"{len(waiting) - index} steps are left; {step.name} may take "
                f"{step.seconds} s, more than is left of --minutes {options.minutes:g}. "
                "The same command goes on from here."
            )
            break
        console.notice(f"{step.name}: {step.shows}")
        results["steps"][step.name] = result = run_step(step, out)
        console.notice(f"{step.name}: {result['state']} in {result['seconds']} s")
        write_json(path, results)
        (out / "results.md").write_text(page(every, results, out), encoding="utf-8")
    print(f"The results are in {out / 'results.md'}.", file=sys.stderr)
    states = [results["steps"].get(step.name, {}).get("state") for step in chosen]
    if None in states:
        return UNFINISHED
    return 1 if "failed" in states else 0


def _waiting(
    every: Sequence[GpuStep],
    chosen: Sequence[GpuStep],
    found: Mapping[str, Mapping[str, Any]],
    again: bool,
) -> list[GpuStep]:
    """The steps to run: those without a result, with `again` those that failed as well, and those
    whose files one of them needs and which are not in this folder.
    """
    names = {
        step.name
        for step in chosen
        if step.name not in found or (again and found[step.name]["state"] == "failed")
    }
    missing = {step.name for step in every if not step.leaves.exists()}
    for step in reversed(every):  # what a step needs comes before it
        if step.name in names and step.needs in missing:
            names.add(step.needs)
    return [step for step in every if step.name in names]


def run_step(step: GpuStep, out: Path) -> dict[str, Any]:
    """Its state, seconds and exit code; `figures` where its stdout is a JSON object, else `why` of
    a failure: the last lines of its log.
    """
    (out / "logs").mkdir(exist_ok=True)
    log, printed = out / "logs" / f"{step.name}.log", out / "logs" / f"{step.name}.out"
    # `timeout` bounds the step also where this process is killed: nothing is left on the card
    words = ["timeout", "--signal=KILL", str(step.seconds), sys.executable, *step.command]
    environment = {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1", **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    began = time.monotonic()
    with log.open("wb") as errors, printed.open("wb") as output:
        process = subprocess.Popen(
            words, stdout=output, stderr=errors, cwd=ROOT, env=environment, start_new_session=True
        )
        with _ended_with_us(process):
            code = process.wait()
    seconds = round(time.monotonic() - began, 1)
    text, logged = (path.read_text(encoding="utf-8", errors="replace") for path in (printed, log))
    skipped = "pytest" in step.command and not re.search(r"\d+ passed", text)
    result: dict[str, Any] = {
        "state": "failed" if code or skipped else "passed",
        "seconds": seconds,
        "exit": code,
        "date": time.strftime("%Y-%m-%d"),
    }
    if figures := _figures(text):
        result["figures"] = figures
    if result["state"] == "failed":
        lines = [line for line in (text + logged).splitlines() if line.strip()]
        late = [f"not done in {step.seconds} s"] if seconds >= step.seconds else []
        result["why"] = [*late, *lines[-LAST_LINES:]]
    return result


@contextmanager
def _ended_with_us(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Ctrl+C and a polite kill end the step too; then the run ends, with nothing written for it."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        os.killpg(process.pid, signal.SIGKILL)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _figures(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# The page


def page(every: Sequence[GpuStep], results: Mapping[str, Any], out: Path) -> str:
    """What was run, on what, and what failed, as Markdown."""
    found = results["steps"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    count = [step["state"] for step in found.values()].count
    lines = [
        f"# {results['card']}",
        "",
        f"Driver {results['driver'] or 'unknown'}. {versions}.",
        "",
        f"{count('passed')} of {len(every)} steps passed, {count('failed')} failed, "
        f"{len(every) - len(found)} not run yet.",
        "",
        *_table(["step", "state", "seconds", "shows"], [_row(step, found) for step in every]),
        *_sampling_table(found),
        *_cell_table(out / "cells.json"),
    ]
    for name, step in found.items():
        if step["state"] == "failed":
            lines += [f"## {name}: failed, exit code {step['exit']}", "", "```text"]
            lines += [*step["why"], "```", ""]
    return "\n".join(lines) + "\n"


def _row(step: GpuStep, found: Mapping[str, Any]) -> list[str]:
    result = found.get(step.name, {})
    return [step.name, result.get("state", "-"), str(result.get("seconds", "-")), step.shows]


def _sampling_table(found: Mapping[str, Any]) -> list[str]:
    rows = [
        [name.removeprefix("sampling-"), way, f"{rate:,.0f}"]
        for name, step in found.items()
        if name.startswith("sampling-")
        for way, rate in step.get("figures", {}).get("tokens_a_second", {}).items()
    ]
    if not rows:
        return []
    return ["## Sampling", "", *_table(["engine", "way", "tokens/s"], rows)]


def _cell_table(path: Path) -> list[str]:
    cells = json.loads(path.read_bytes()) if path.exists() else {}
    rows = [
        list(row)
        for name in gpu.CELLS
        for result in cells.get(name, {}).values()
        for row in gpu.table_rows(name, result)
    ]
    if not rows:
        return []
    return ["## Training", "", *_table(gpu.HEADING, rows)]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heading, ["---"] * len(heading), *rows]
    return [
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines),
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
