"""Eight cells on one NVIDIA card: what training takes under a cap, its tokens per second, MFU, and
the planner's error.

    .venv/bin/python scripts/bench/gpu.py --list
    .venv/bin/python scripts/bench/gpu.py [--cell NAME ...] [--again] [--models DIR]

Models have the shapes of published configs, random weights and the embedded model's tokenizer:
nothing is downloaded. Every measurement is a process of its own. Results are added to
runs/bench/gpu.json by cell and card; what is there is left out. A step's time is that from its
beginning to the next one's; the first half of the steps is left out, the last one as well, which
saves. docs/results.md has what was seen.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT, PARTS = Path(__file__).resolve().parents[2], Path(__file__).with_name("gpu_parts.py")
sys.path.insert(0, str(ROOT))  # a plain checkout, where nothing has been installed but the packages

from common import make_parser  # noqa: E402

from agentlite.config.settings import COMMANDS  # noqa: E402
from agentlite.config.this_machine import has_gpu  # noqa: E402
from agentlite.core import console  # noqa: E402
from agentlite.core.row_files import write_json  # noqa: E402
from agentlite.engine.planning.estimate import RowLengths, load_of, operations, plan  # noqa: E402
from agentlite.engine.planning.gpus import CARDS, GpuSpeed, Machine, speed_of  # noqa: E402
from agentlite.engine.planning.memory import GIB, Load, memory  # noqa: E402
from agentlite.engine.planning.model_shape import PUBLISHED, shape_of  # noqa: E402

# of steps in a cell, as the planner reckons; the rest of its minutes goes to building and loading
SECONDS = 70
FEWEST, MOST = 4, 40  # steps
PACKAGES = (
    *("torch", "transformers", "trl", "peft", "bitsandbytes"),
    *("unsloth", "unsloth_zoo", "xformers", "flash_attn"),
)


class Cell(NamedTuple):
    """`rows`: their lengths in eighths of max_length; `cap` in GiB, 0: none; `beside`: how plain
    TRL is told to run.
    """

    shows: str
    model: str
    command: str
    settings: Mapping[str, Any]
    rows: Sequence[int] = (8,)
    cap: float = 0
    beside: str = ""


MIXED = (7, 1, 6, 2, 5, 3, 4, 4)  # eight rows that pack into four full ones
ALIKE = (5, 3)  # two that pack into one, so that each full one is as much work
SMALL, MEDIUM, LARGE = (f"Qwen/Qwen2.5-{size}-Instruct" for size in ("0.5B", "1.5B", "7B"))
PACKED = {"max_length": 2048, "packing": True, "batch_tokens": 8192}
CELLS = {
    "sft-0.5b": Cell("0.5B in 16 bit, rows packed to 8,192 tokens", SMALL, "sft", PACKED, MIXED),
    "sft-1.5b": Cell("1.5B in 16 bit, rows packed to 8,192 tokens", MEDIUM, "sft", PACKED, MIXED),
    "sft-7b-12gb": Cell(
        "7B in 4 bit, a row of 8,192 tokens inside 12 GiB",
        LARGE,
        "sft",
        {"load_in_4bit": True, "max_length": 8192, "batch_size": 1},
        cap=12,
    ),
    "sft-7b-24gb": Cell(
        "7B in 4 bit, a row of 32,768 tokens inside 24 GiB",
        LARGE,
        "sft",
        {"load_in_4bit": True, "max_length": 32768, "batch_size": 1},
        cap=24,
    ),
    "dpo-7b-24gb": Cell(
        "7B in 4 bit, a pair of 2 x 4,096 tokens inside 24 GiB",
        LARGE,
        "dpo",
        {"load_in_4bit": True, "max_length": 4096, "batch_size": 1},
        cap=24,
    ),
    "grpo-1.5b-12gb": Cell(
        "1.5B in 16 bit, groups of 8, 1,024 + 512 tokens inside 12 GiB",
        MEDIUM,
        "grpo",
        {"max_length": 1536, "max_new_tokens": 512, "group_size": 8, "batch_size": 8},
        cap=12,
    ),
    "beside-defaults": Cell(
        "7B in 4 bit, 8 rows, beside plain TRL + PEFT + bitsandbytes at its defaults",
        LARGE,
        "sft",
        {"load_in_4bit": True, "max_length": 2048, "batch_size": 8},
        MIXED,
        beside="defaults",
    ),
    "beside-best": Cell(
        "7B in 16 bit, rows packed to 8,192 tokens, beside plain TRL + PEFT at its best",
        LARGE,
        "sft",
        {"max_length": 8192, "packing": True, "batch_tokens": 8192},
        ALIKE,
        beside="best",
    ),
}
TOY = {"max_length": 64, "max_new_tokens": 8, "batch_tokens": 128}
TOY_MODEL = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50_000,
    "tie_word_embeddings": True,
    "max_position_embeddings": 2048,
}


class Card(NamedTuple):
    """The card that is measured, as its driver names it and with its memory in GiB, and as its data
    sheet has it.
    """

    name: str
    gib: float
    speed: GpuSpeed


def main() -> int:
    options = _options()
    if options.list:
        print("\n".join(f"{name:16} {cell.shows}" for name, cell in CELLS.items()))
        return 0
    card = look(options.toy)
    if not card:
        console.notice("gpu.py: torch finds no CUDA device here: nothing is measured")
        return 2
    results = json.loads(options.json.read_bytes()) if options.json.exists() else {}
    with tempfile.TemporaryDirectory(prefix="agentlite-models-") as folder:
        models = options.models or Path(folder)
        for name in options.cell or CELLS:
            # drivers report a little less than is sold
            if not options.toy and card.gib + 0.5 < CELLS[name].cap:
                console.notice(f"{name}: needs a card of {CELLS[name].cap} GiB; left out")
            elif options.again or not is_settled(results.get(name, {}).get(card.name)):
                results.setdefault(name, {})[card.name] = measure(name, card, models, options)
                options.json.parent.mkdir(parents=True, exist_ok=True)
                write_json(options.json, results)
            else:
                console.notice(f"{name}: is there already; --again measures it again")
    show(results)
    chosen_results = [results.get(name, {}).get(card.name) for name in options.cell or CELLS]
    return 0 if all(is_settled(result) for result in chosen_results if result) else 1


def _options() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--cell", action="append", choices=CELLS, help="repeatable [all, in order]")
    parser.add_argument("--list", action="store_true", help="the cells, and nothing else")
    parser.add_argument("--again", action="store_true", help="also what is there already")
    parser.add_argument("--json", type=Path, default=ROOT / "runs/bench/gpu.json")
    models_help = "where models are built and kept, 16 GB for 7B [a temporary one]"
    parser.add_argument("--models", type=Path, help=models_help)
    parser.add_argument("--minutes", type=float, default=4, help="until a cell is given up [4]")
    seconds_help = f"of steps in a cell, as planned [{SECONDS}]"
    parser.add_argument("--seconds", type=float, default=SECONDS, help=seconds_help)
    parser.add_argument("--toy", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def is_settled(result: Mapping[str, Any] | None) -> bool:
    """Out of memory is a result; another error is worth another try."""
    return bool(result) and all(
        "error" not in side or side["out_of_memory"] for side in result["sides"].values()
    )


def look(toy: bool = False) -> Card | None:
    """The card, if torch sees one; toys run without one too."""
    if toy and not has_gpu():
        return Card("toy", 0.0, CARDS["cpu"])
    facts = run_part("look", time.monotonic() + 120)
    if "name" not in facts:
        return None
    return Card(facts["name"], facts["gib"], speed_of(facts["name"], facts["gib"]))


def measure(name: str, card: Card, models: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All sides of a cell, with the figures that two of them give."""
    cell, started = CELLS[name], time.monotonic()
    deadline, cap = started + 60 * options.minutes, cell.cap if has_gpu() else 0
    folder = models / ("toy" if options.toy else cell.model.replace("/", "--"))
    console.notice(f"{name}: {cell.shows}")
    error = {}
    if not folder.exists():
        error = run_part("build", deadline, folder=str(folder), facts=facts(cell, options.toy))
    sides: dict[str, Any] = {}
    steps = 3 if options.toy else steps_of(cell, card, options.seconds)
    for side in ("ours", "plain") if cell.beside else ("ours",):
        job = {"name": name, "toy": options.toy, "steps": steps, "folder": str(folder), "cap": cap}
        result = error or run_part(side, deadline, **job)
        if "error" not in result:
            result = figures(cell, options.toy, card, side, result)
        sides[side] = result
        console.notice(f"{name}, {side}: {summary(sides[side])}")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "seconds": round(time.monotonic() - started),
        "cap_gib": cap,
        "sides": sides,
        "against": ratios(sides),
        "versions": {name: version(name) for name in PACKAGES if importlib.util.find_spec(name)},
    }


def run_part(part: str, deadline: float, **job: Any) -> dict[str, Any]:
    """What a process of its own found, or the error that ended it. Its output goes to stderr."""
    environment = {
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        **os.environ,
    }
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        job_json = json.dumps({"part": part, "result": str(result), **job})
        command = [sys.executable, str(PARTS), job_json]
        timeout = max(1, deadline - time.monotonic())
        try:
            code = subprocess.run(command, timeout=timeout, stdout=2, env=environment).returncode
        except subprocess.TimeoutExpired:
            problem = "not done in the minutes that a cell has (--minutes)"
            return {"error": problem, "out_of_memory": False}
        if result.exists():
            return dict(json.loads(result.read_bytes()))
        return {"error": f"the process ended with {code}", "out_of_memory": False}


# What is reckoned


def facts(cell: Cell, toy: bool) -> dict[str, Any]:
    return TOY_MODEL if toy else published_config(cell.model)


def published_config(model: str) -> dict[str, Any]:
    """The config of a model."""
    return dict(json.loads(PUBLISHED.read_bytes())[model])


def settings_of(cell: Cell, toy: bool, steps: int) -> Any:
    """What the command is told, as if it stood in its configuration."""
    settings = dict(cell.settings)
    if toy:
        settings |= {key: value for key, value in TOY.items() if key in settings}
        settings["load_in_4bit"] = settings.get("load_in_4bit", False) and has_gpu()
    if cell.command != "grpo":
        settings["trl"] = {"include_num_input_tokens_seen": "non_padding"}
    fixed = {"gradient_accumulation": 1, "save_steps": 10_000, "learning_rate": 1e-5}
    return COMMANDS[cell.command](max_steps=steps, **fixed, **settings)


def lengths_of(cell: Cell, settings: Any) -> list[int]:
    return [settings.max_length * eighths // 8 for eighths in cell.rows]


def steps_of(cell: Cell, card: Card, seconds: float) -> int:
    """As many as the planner thinks will fill the seconds of a cell, which its sides share."""
    machine = Machine(True, card.speed, card.gib * GIB)
    shape = shape_of(facts(cell, False), cell.model)
    a_step = plan(settings_of(cell, False, 1), shape, machine, RowLengths())
    a_side = seconds / (2 if cell.beside else 1)
    return max(FEWEST, min(MOST, int(a_side / a_step.time["seconds_a_step"])))


def figures(cell: Cell, toy: bool, card: Card, side: str, output: dict[str, Any]) -> dict[str, Any]:
    """What was measured, as figures to compare. `output`: tokens, seconds, losses, GiB, as
    gpu_parts.py tells them.
    """
    first, last = output["losses"][0], output["losses"][-1]
    if not (math.isfinite(first) and math.isfinite(last) and output["tokens"]):
        problem = f"losses from {first} to {last}, {output['tokens']} tokens: nothing to measure"
        return {"error": problem, "out_of_memory": False}
    planned_load, computed_load = loads(cell, toy)
    load_once = computed_load._replace(regime=computed_load.regime._replace(checkpoints="none"))
    rate = output["tokens"] / sum(output["seconds"])
    result = {
        "tokens_a_second": round(rate, 1),
        "seconds_a_step": round(statistics.mean(output["seconds"]), 4),
        "steps": output["steps"],
        "mfu": round(share_of_peak(rate, operations(load_once), card.speed), 4),
        "hfu": round(share_of_peak(rate, operations(computed_load), card.speed), 4),
        **output["gib"],
        "first_loss": first,
        "last_loss": last,
        **output["besides"],
    }
    if side == "plain":
        return result
    # torch knows nothing of the CUDA context
    planned = (memory(planned_load).total - planned_load.regime.overhead) / GIB
    error = planner_error(planned, output["gib"]["allocated_gib"])
    return {**result, "planned_gib": round(planned, 3), "planner_error": round(error, 4)}


def loads(cell: Cell, toy: bool) -> tuple[Load, Load]:
    """What is planned: the longest rows. What is computed: rows of lengths that cost as much as the
    real ones.
    """
    settings = settings_of(cell, toy, 1)
    lengths = lengths_of(cell, settings)
    shape = shape_of(facts(cell, toy), cell.model)
    load = load_of(settings, shape, not toy or has_gpu(), max(lengths))
    return load, load._replace(length=round(equal_length(lengths)))


def equal_length(lengths: Sequence[int]) -> float:
    """The length of rows that are all alike and cost as much attention a token as these do."""
    return sum(length**2 for length in lengths) / sum(lengths)


def share_of_peak(tokens_a_second: float, operations_a_token: float, speed: GpuSpeed) -> float:
    """MFU where the operations are the model's, HFU where what is computed again counts as well."""
    return tokens_a_second * operations_a_token / (speed.tflops * 1e12)


def planner_error(planned: float, allocated: float) -> float:
    """Above 0: more was planned than was needed."""
    return planned / allocated - 1


def ratios(sides: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Ours over plain; nothing where one of them has no figures."""
    if len(sides) < 2 or any("error" in side for side in sides.values()):
        return {}
    return {
        name: round(sides["ours"][key] / sides["plain"][key], 3)
        for name, key in (("tokens_a_second", "tokens_a_second"), ("allocated", "allocated_gib"))
    }


# What is shown

COLUMNS = {
    "tokens/s": ("tokens_a_second", "{:,.0f}"),
    "s a step": ("seconds_a_step", "{:.3f}"),
    "MFU": ("mfu", "{:.1%}"),
    "HFU": ("hfu", "{:.1%}"),
    "GiB": ("allocated_gib", "{:.2f}"),
    "reserved": ("reserved_gib", "{:.2f}"),
    "planned": ("planned_gib", "{:.2f}"),
    "error": ("planner_error", "{:+.1%}"),
}
HEADING = ("", "side", *COLUMNS, "")


def summary(side: Mapping[str, Any]) -> str:
    if "error" in side:
        return f"error: {side['error']}"
    return f"{side['tokens_a_second']:,.0f} tokens/s, {side['allocated_gib']:.2f} GiB"


def show(results: Mapping[str, Mapping[str, Any]]) -> None:
    """A table a card."""
    for card in dict.fromkeys(card for cell in results.values() for card in cell):
        cells = {name: results[name][card] for name in CELLS if card in results.get(name, {})}
        print(f"{card}, {max(cell['date'] for cell in cells.values())}")
        rows = (row for name, result in cells.items() for row in table_rows(name, result))
        console.print_table([HEADING, *rows])


def table_rows(name: str, result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row for each side of a cell, under HEADING."""
    lines = []
    for side, figures in result["sides"].items():
        if "error" in figures:
            note = "out of memory" if figures["out_of_memory"] else figures["error"][:60]
            lines.append((name, side, *("-" * len(COLUMNS)), note))
            continue
        shown = (f.format(figures[k]) if k in figures else "-" for k, f in COLUMNS.values())
        lines.append((name, side, *shown, _note(side, figures, result)))
    return lines


def _note(side: str, figures: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    notes = []
    if result["cap_gib"]:
        notes.append(f"{figures['used_gib']:.1f} of {result['cap_gib']} GiB used")
    if "batch_size" in figures:
        notes.append(f"halved to {figures['batch_size']} rows")
    if result["against"] and side == "ours":
        ratio = "speed x {tokens_a_second:.2f}, GiB x {allocated:.2f}"
        notes.append(ratio.format(**result["against"]))
    return "; ".join([*notes, *figures.get("with", [])])


if __name__ == "__main__":
    sys.exit(main())
