"""How fast stored candidates are ranked again: 10,000 of them, four a step, every one with parts of
its own.

    .venv/bin/python scripts/bench/reranking.py [--runs 5]

`candidates_a_second`: from candidates.jsonl and scores.jsonl to pairs.jsonl, by the processor time
of one core, in a fresh process, imports left out (target: 40,000). `command_seconds`: `agentlite
pairs --from ... --json`, start-up included (target: 3). Medians.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import make_parser, python, show

STEPS, SAMPLES = 2500, 4


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        print(seconds_to_rank(options.rank))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_stage(Path(folder) / "pairs")
        run = Path(folder)
        show({**measure_ranking(run, options.runs), **measure_command(run, options.runs)})


def measure_ranking(run: Path, runs: int) -> dict[str, Any]:
    seconds = [python(__file__, "--rank", run / "pairs") for _ in range(runs)]
    return {
        "candidates": STEPS * SAMPLES,
        "candidates_a_second": round(STEPS * SAMPLES / statistics.median(seconds)),
    }


def measure_command(run: Path, runs: int) -> dict[str, Any]:
    command = f"-m agentlite pairs --run {run} --from pairs --out again --force --json".split()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        python(*command)
        seconds.append(time.perf_counter() - started)
    traced_command = [sys.executable, "-X", "importtime", *command]
    imports = subprocess.run(traced_command, capture_output=True, text=True, check=True).stderr
    loaded = {
        line.rpartition("|")[2].strip()
        for line in imports.splitlines()
        if line.startswith("import time:")
    }
    return {
        "command_seconds": round(statistics.median(seconds), 2),
        "torch_loaded": "torch" in loaded,
    }


def seconds_to_rank(folder: Path) -> float:
    from agentlite.core.records import Candidate, Score
    from agentlite.core.row_files import read_structs
    from agentlite.scoring.preference_pairs import PairRule, build_pairs, group_by_step, write_pairs
    from agentlite.scoring.rewards import settle_weights

    started = time.process_time()
    scores = {score.key: score for score in read_structs(folder / "scores.jsonl", Score)}
    rule = PairRule()
    steps = group_by_step(read_structs(folder / "candidates.jsonl", Candidate), scores)
    pairs, _ = build_pairs(steps, settle_weights({}), rule)
    write_pairs(folder.parent / "again.jsonl", pairs)
    return time.process_time() - started


def make_stage(folder: Path) -> None:
    """A finished stage as `pairs` leaves it."""
    from msgspec.structs import asdict

    from agentlite.config import resolve
    from agentlite.config.settings import PairsSettings
    from agentlite.core.records import Candidate, Message, Record, Score, Tool, to_row
    from agentlite.core.row_files import write_rows
    from agentlite.scoring.rewards import COMPONENTS, PENALTIES
    from agentlite.workspace import lookup, stage_folder

    generator = random.Random(0)
    tool = Tool("add_numbers", "Adds whole numbers.")
    rows: dict[str, list[Any]] = {"records": [], "candidates": [], "scores": [], "pairs": []}
    for number in range(STEPS):
        record = Record(
            messages=(Message("user", f"Add {number}."), Message("assistant", "No.")), tools=(tool,)
        )
        rows["records"].append(to_row(record))
        for sample in range(SAMPLES):
            text = (
                f'<tool_call>\n{{"name": "add_numbers", "arguments": {{"n": '
                f"{generator.random()}}}}}\n</tool_call>"
            )
            candidate = Candidate(record.id, 1, "hermes", "sft", sample, text, "turn", 40)
            parts = {name: generator.random() for name in COMPONENTS}
            parts |= {name: float(generator.random() < 0.2) for name in PENALTIES}
            score = Score(*candidate.key, parts, "city has a value that is not accepted")
            rows["candidates"].append(asdict(candidate))
            rows["scores"].append(asdict(score))
    plan = lookup.Plan(
        "pairs", {**resolve.plain_settings(PairsSettings()), "protocol": "hermes"}, {}
    )
    with stage_folder.open_stage(folder, plan, force=False) as stage:
        for name, stage_rows in rows.items():
            write_rows(folder / f"{name}.jsonl", stage_rows)
        stage.finish([f"{name}.jsonl" for name in rows], {})


if __name__ == "__main__":
    main()
