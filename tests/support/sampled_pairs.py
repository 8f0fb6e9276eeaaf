"""Right and wrong candidates at every step of a prep, as a finished pairs or grpo leaves them."""

from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace
from support.generated_run import stage

from agentlite.core.records import GOLD, Candidate, Record, from_row
from agentlite.core.row_files import read_rows
from agentlite.rendering import PROTOCOLS, prompts_of
from agentlite.scoring.preference_pairs import gold_candidates
from agentlite.scoring.rewards.scorer import Scorer
from agentlite.workspace.input_files import load_template

CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'


def records_of(run: Path) -> list[Record]:
    return [from_row(row) for row in read_rows(run / "prep" / "train.jsonl")]


def sampled(
    run: Path, out: str = "pairs", command: str = "pairs", **settings: Any
) -> list[Candidate]:
    """A finished pairs with four candidates at every step: one without an end, a call of a tool
    that does not exist, the right answer twice; and the gold, which is not the model's.
    """
    records = records_of(run)
    template = load_template("smollm2-135m")
    steps = list(prompts_of(records, lambda _: PROTOCOLS["hermes"], template))
    candidates = []
    for gold in gold_candidates(steps):
        right = replace(gold, model="sft", trained=0)
        wrong = CALL % ("no_such_tool", "{}")
        candidates += [
            gold,
            replace(right, sample=0, text=right.text[:-4], ended="cut"),
            replace(right, sample=1, text=wrong),
            replace(right, sample=2),
            replace(right, sample=3),
        ]
    scorer = Scorer({record.id: record for record in records}, PROTOCOLS, {})
    scores = list(scorer(candidates))
    plan = {"split": "train", "model": "smollm2-135m", "protocol": "hermes", "data": "prep"}
    plan |= {"max_length": 2048}
    rows: dict[str, Any] = {"records.jsonl": list(read_rows(run / "prep" / "train.jsonl"))}
    if command == "grpo":
        rows["rollouts.jsonl"] = [
            {**asdict(one), "trained": 0, "components": score.components}
            for one, score in zip(candidates, scores, strict=True)
            if one.model != GOLD
        ]
    else:
        rows |= {"candidates.jsonl": map(asdict, candidates), "scores.jsonl": map(asdict, scores)}
    stage(
        run / out,
        {"command": command, "settings": {**plan, **settings}, "inputs": {}},
        rows,
        {"pairs": 0},
    )
    return candidates
