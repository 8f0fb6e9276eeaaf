"""Renews the tables in docs/planning.md: what `agentlite plan` says of five models on six cards.

usage: python scripts/planning_table.py
"""

import re
import sys
from pathlib import Path

from msgspec.structs import replace

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "planning.md"
sys.path.insert(0, str(ROOT))

from agentlite.config.resolve import UserSettings, resolve  # noqa: E402  (of this checkout)
from agentlite.engine.planning.choose import auto_settings  # noqa: E402
from agentlite.engine.planning.estimate import RowLengths, plan  # noqa: E402
from agentlite.engine.planning.gpus import machine_with_memory  # noqa: E402
from agentlite.engine.planning.model_shape import find_shape  # noqa: E402

MODELS = {
    **{f"Qwen2.5-{size}": f"Qwen/Qwen2.5-{size}-Instruct" for size in ("0.5B", "1.5B", "3B", "7B")},
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
}
COMMANDS = ("sft", "dpo", "grpo")
CARDS = (8, 12, 16, 24, 48, 80)
# GB in 4 and in 16 bit, "the absolute minimum", by the number of parameters:
# unsloth.ai/docs/get-started/fine-tuning-for-beginners/unsloth-requirements
UNSLOTH = {"Qwen2.5-3B": (3.5, 8), "Qwen2.5-7B": (5, 19), "Llama-3.1-8B": (6, 22)}
BEGIN, END = "<!-- planning_table -->\n", "<!-- /planning_table -->\n"
BLOCK = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)


def cell(model: str, command: str, card: int) -> str:
    """`agentlite plan --fit`: precision, micro-batch x accumulation, GiB; a dash: does not fit."""
    shape, machine = find_shape(MODELS[model]), machine_with_memory(card)
    settings = resolve(command, UserSettings(profile="gpu")).settings
    settings = replace(settings, **auto_settings(settings, set(), shape, machine).values)
    planned = plan(settings, shape, machine, RowLengths())
    if not planned.gib.fits:
        return "–"
    batch = f"{settings.batch_size} x {settings.gradient_accumulation}"
    return f"{planned.bits} bit, {batch}: {planned.gib.total:.1f}"


def least(model: str, bits: int) -> float:
    """GiB of `sft` with one row of 2,048 tokens."""
    flags = {"batch_size": 1, "load_in_4bit": bits == 4}
    settings = resolve("sft", UserSettings(flags, profile="gpu"))
    machine = machine_with_memory(80)
    planned = plan(settings.settings, find_shape(MODELS[model]), machine, RowLengths())
    return planned.gib.total


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def block() -> str:
    lines = ["Calculated, not measured on a GPU:", ""]
    lines += [row("model", "command", *(f"{card} GB" for card in CARDS)), row(*["---"] * 8)]
    for model in MODELS:
        for command in COMMANDS:
            lines.append(row(model, command, *(cell(model, command, card) for card in CARDS)))
    lines += [
        "",
        "The least that `sft` takes, with one row of 2,048 tokens, calculated as well:",
        "",
    ]
    heads = [
        f"{bits} bit, {whose}" for bits in (4, 16) for whose in ("planned", "Unsloth's minimum")
    ]
    lines += [row("model", *heads), row(*["---"] * 5)]
    for model in MODELS:
        cells = []
        for bits, published in zip((4, 16), UNSLOTH.get(model, (0, 0)), strict=True):
            cells += [f"{least(model, bits):.1f} GiB", f"{published} GB" if published else "–"]
        lines.append(row(model, *cells))
    return "\n".join([BEGIN.rstrip(), *lines, END])


def renew(text: str) -> str:
    return BLOCK.sub(lambda _: block(), text, count=1)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if (new := renew(text)) != text:
        PAGE.write_text(new, encoding="utf-8")
        print("planning.md: renewed")


if __name__ == "__main__":
    main()
