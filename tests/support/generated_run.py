"""Counts -> a finished run as the stages leave it, its texts of made-up words; not a test
itself.
"""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from agentlite.core.records import (
    Call,
    Gold,
    GoldCall,
    Message,
    Parsed,
    Prediction,
    Record,
    Tool,
    to_json,
    to_row,
)
from agentlite.core.row_files import write_json, write_rows
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.step_metrics import score_step, wrong_kind
from agentlite.scoring.metrics.summarize import compare, figures, scores
from agentlite.workspace.input_files import file_digest

ZIPF = list(
    accumulate(1 / rank for rank in range(1, 5001))
)  # how often words occur, the first the most often
Text = Callable[[int], str]
Say = Callable[[Record, random.Random], tuple[str, Parsed]]


def write_run(
    run: Path, models: Sequence[str], prompts: int, say: Say | None = None, seed: int = 0
) -> Path:
    """prep, sft, and an evaluation of `models`; what `say` makes them say at every prompt, a call
    by default.
    """
    generator = random.Random(seed)
    words = [
        "".join(generator.choices("aeioudlmnrst", k=generator.randint(2, 9))) for _ in range(5000)
    ]

    def text(count: int) -> str:
        return " ".join(generator.choices(words, cum_weights=ZIPF, k=count))

    tools = [_tool(text) for _ in range(3 + prompts // 4)]
    records = [_record(generator, text, tools) for _ in range(prompts)]
    stage(
        run / "prep",
        {
            "command": "prep",
            "settings": {"sources": ["dialogs.jsonl"], "test": 0.5},
            "inputs": {"dialogs.jsonl": "ab" * 32},
        },
        {"test.jsonl": map(to_row, records)},
        {"kept": prompts},
    )
    curve = [
        {"step": step, "loss": 1 / step, "learning_rate": 1e-3, "reward/exact": 0.5}
        for step in range(1, 301)
    ]
    stage(
        run / "sft",
        {
            "command": "sft",
            "settings": {"data": "prep", "model": "base", "lora_r": 64},
            "inputs": {"data": file_digest(run / "prep" / "test.jsonl")[:16], "model": "cd" * 32},
        },
        {"metrics.jsonl": curve},
        {"steps": 300},
    )
    said = {
        name: [_predicted(record, say or called, generator) for record in records]
        for name in models
    }
    by_id, by_model = {record.id: record for record in records}, {}
    for name, predictions in said.items():
        whole = dialogs(predictions, by_id)
        metrics, by_model[name] = figures(predictions, whole, by_id, 0), scores(predictions, whole)
        plan = {
            "command": "eval",
            "settings": {"split": "test", "model": name},
            "inputs": {"data": file_digest(run / "prep" / "test.jsonl")},
        }
        stage(
            run / "eval" / "prep" / name,
            plan,
            {"predictions.jsonl": map(_row, predictions)},
            {},
            metrics,
        )
    write_json(run / "eval" / "prep" / "compare.json", compare(by_model, 0))
    return run


def stage(
    folder: Path,
    plan: dict[str, Any],
    rows: dict[str, Iterable[dict[str, Any]]],
    figures: dict[str, Any],
    metrics: dict[str, Any] | None = None,
) -> None:
    """A folder as a finished stage leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", {"versions": {"agentlite": "0"}, **plan})
    for name, content in rows.items():
        write_rows(folder / name, content)
    if metrics is not None:
        write_json(folder / "metrics.json", metrics)
    names = [*rows, *(["metrics.json"] if metrics is not None else [])]
    outputs = {name: file_digest(folder / name) for name in names}
    write_json(folder / "done.json", {"outputs": outputs, "figures": figures, "seconds": 1.0})


def called(record: Record, generator: random.Random) -> tuple[str, Parsed]:
    """The right call or, as often, one of a tool on offer with a thought before it; now and then
    one that is torn.
    """
    expected = record.messages[-1].calls[0]
    thought = "" if generator.random() < 0.5 else record.messages[0].content[:60]
    call = (
        expected if not thought else Call(generator.choice(record.tools).name, expected.arguments)
    )
    text = (
        f'{thought}<tool_call>\n{{"name": "{call.name}", "arguments": '
        f"{to_json(call.arguments)}}}\n</tool_call>"
    )
    torn = generator.random() < 0.05
    return (
        (text[:-12], Parsed("", (), "call not closed"))
        if torn
        else (text, Parsed(thought, (call,)))
    )


def _tool(text: Text) -> Tool:
    parameters = {text(1): {"type": "string", "description": text(10)} for _ in range(3)}
    return Tool(text(2).replace(" ", "_"), text(12), {"type": "object", "properties": parameters})


def _record(generator: random.Random, text: Text, tools: Sequence[Tool]) -> Record:
    offered = tuple(generator.sample(tools, generator.randint(1, 3)))
    expected = generator.choice(offered)
    arguments = {name: text(2) for name in expected.parameters["properties"]}
    messages = (
        Message("user", text(25)),
        Message("assistant", calls=(Call(expected.name, arguments, "call_0"),)),
    )
    gold = Gold((GoldCall(expected.name, {name: [value] for name, value in arguments.items()}),))
    return Record(
        messages=messages,
        tools=offered,
        gold={1: gold},
        source=generator.choice(["a.jsonl", "b.jsonl"]),
        task="tool_selection",
        split="test",
    )


def _predicted(record: Record, say: Say, generator: random.Random) -> Prediction:
    text, parsed = say(record, generator)
    gold, length = record.gold_at(1), len(text) // 4
    metrics = score_step(parsed, gold, record.tools)
    slices = {"tools": str(len(record.tools)), "source": record.source}
    wrong = wrong_kind(parsed, gold, record.tools)
    return Prediction(
        record.id, 1, text, parsed.problem, parsed.calls, metrics, slices, length, wrong
    )


def _row(prediction: Prediction) -> dict[str, Any]:
    calls = [{"name": call.name, "arguments": to_json(call.arguments)} for call in prediction.calls]
    return json.loads(json.dumps({**asdict(prediction), "calls": calls}))
