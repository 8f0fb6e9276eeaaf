"""Rewards of 2,200 answers, metrics of 2,000 predictions, and the pairs of 200 steps."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, replace
from support.generated_run import stage
from support.golden import Golden, digest

import agentlite
from agentlite.core.records import Candidate, Record, from_row
from agentlite.core.row_files import read_rows
from agentlite.rendering import PROTOCOLS, prompts_of
from agentlite.scoring.preference_pairs import gold_candidates
from agentlite.scoring.rewards.scorer import Scorer
from agentlite.workspace.input_files import load_template

WEIGHTINGS = {
    "default": {},
    "exact": {"exact": 1.0, "task_completion": 0.0},
    "arguments": {"arguments": 0.5, "tool_accuracy": 0.5, "timeout": -1.0},
    "no penalty": {"wrong_tool": 0.0, "redundant_call": 0.0, "format_error": 0.0},
    "timing": {"timing_quality": 1.0, "missed_call": -1.0},
}
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'


def records_of(run: Path) -> dict[str, Record]:
    rows = map(from_row, read_rows(run / "prep/train.jsonl"))
    return {record.id: record for record in rows}


def answers(gold: Candidate, record: Record, generator: random.Random) -> list[Candidate]:
    """Ten answers at a step, from the right one to nothing at all."""
    right, tool = gold.text, record.tools[0].name
    texts = [
        right,
        f"I look it up first. {right}",
        right[:-4],
        right.replace(tool, "no_such_tool"),
        "".join(generator.choice((mark, mark, "7")) for mark in right),
        f"{right}\n{CALL % (tool, '{}')}",
        "I cannot answer that with what I have.",
        right.replace('"', "'"),
        f"{right}{right}",
        "",
    ]
    kept = replace(gold, model="sft", trained=0)
    return [
        replace(kept, sample=number, text=text, ended="cut" if number == 2 else gold.ended)
        for number, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def candidates(questions: Path) -> list[Candidate]:
    """The gold of 200 steps, each followed by ten answers."""
    records = records_of(questions)
    template, generator = load_template("smollm2-135m"), random.Random(1)
    steps = list(prompts_of([*records.values()], lambda _: PROTOCOLS["hermes"], template))
    return [
        candidate
        for gold in gold_candidates(steps)
        for candidate in (gold, *answers(gold, records[gold.record_id], generator))
    ]


def test_the_components_of_every_answer(
    questions: Path, candidates: list[Candidate], golden: Golden
) -> None:
    scores = list(Scorer(records_of(questions), PROTOCOLS, {})(candidates))
    assert len(scores) == 2200
    means = {
        name: sum(score.components[name] for score in scores) / len(scores)
        for name in scores[0].components
    }
    golden("components", means)
    golden("scores", digest([asdict(score) for score in scores]))


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_the_pairs_at_several_weightings(
    name: str, questions: Path, candidates: list[Candidate], golden: Golden
) -> None:
    if not (questions / "pairs/done.json").exists():
        scores = Scorer(records_of(questions), PROTOCOLS, {})(candidates)
        settings = {"split": "train", "model": "smollm2-135m", "protocol": "hermes", "data": "prep"}
        rows: dict[str, Any] = {
            "records.jsonl": list(read_rows(questions / "prep/train.jsonl")),
            "candidates.jsonl": map(asdict, candidates),
            "scores.jsonl": map(asdict, scores),
        }
        plan = {"command": "pairs", "settings": {**settings, "max_length": 2048}, "inputs": {}}
        stage(questions / "pairs", plan, rows, {"pairs": 0})
    out = f"pairs-{name.replace(' ', '-')}"
    agentlite.pairs(run=str(questions), candidates="pairs", weights=WEIGHTINGS[name], out=out)
    golden(f"pairs {name}", digest((questions / out / "pairs.jsonl").read_bytes()))


def test_the_metrics_of_predictions_from_files(
    questions: Path, candidates: list[Candidate], golden: Golden, tmp_path: Path
) -> None:
    for number in range(10):
        rows = [
            {"record_id": one.record_id, "turn": one.turn, "text": one.text}
            for one in candidates
            if one.model == "sft" and one.sample == number
        ]
        path = tmp_path / f"answers-{number}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        agentlite.evaluate(run=str(questions), predictions=(str(path),), split="train", out="eval")
        (found,) = (questions / "eval").rglob(f"answers-{number}/metrics.json")
        metrics = json.loads(found.read_text(encoding="utf-8"))
        means = {name: figure["mean"] for name, figure in metrics["metrics"].items()}
        golden(f"metrics {number}", {"all": digest(metrics), "means": means})
