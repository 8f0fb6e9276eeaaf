"""Where no sampled answer was right, does it help to show two solved questions? docs/learning.md.

    .venv/bin/python scripts/bench/few_shot.py [--run runs/learning]

Takes the steps of a finished `pairs` of which no candidate is right, and samples them again: plain,
with another seed, and behind the two training questions whose words are nearest. Prints how many
steps have a right answer then. Run again, it carries on.
"""

import argparse
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bm25s

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 2
SHOWN_RESULT, SHOWN_ANSWER = '{"ok": true}', "Done."  # prep refuses a call that has none


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def right(folder: Path) -> dict[str, bool]:
    """By record: whether one of the sampled candidates is exactly right."""
    found: dict[str, bool] = {}
    for row in rows(folder / "scores.jsonl"):
        if row["model"] != "(gold)":
            is_right = row["components"]["exact"] == 1
            found[row["record_id"]] = found.get(row["record_id"], False) or is_right
    return found


def question(row: dict[str, Any]) -> str:
    return " ".join(one["content"] for one in row["messages"] if one["role"] == "user")


def solved(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a training row, which are not learned, with a result of each call."""
    *before, answer = row["messages"]
    calls = answer.get("tool_calls") or []
    results = [
        {"role": "tool", "tool_call_id": one["id"], "content": SHOWN_RESULT} for one in calls
    ]
    said = {"role": "assistant", "content": SHOWN_ANSWER, "loss": False}
    return [*before, {**answer, "loss": False}, *results, said]


def names(row: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in json.loads(row["tools"])}


def with_shown(
    given: list[dict[str, Any]], learned: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Each row behind the two nearest, which call and have neither a system turn nor its tools."""
    calling = [
        row
        for row in learned
        if row["messages"][-1].get("tool_calls") and row["messages"][0]["role"] == "user"
    ]
    index = bm25s.BM25()
    texts = [question(row) for row in calling]
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    for row in given:
        words = bm25s.tokenize([question(row)], show_progress=False)
        [nearest], _ = index.retrieve(words, k=min(10, len(calling)), show_progress=False)
        others = [calling[number] for number in nearest if not names(calling[number]) & names(row)]
        shown = others[SHOWN - 1 :: -1]  # the nearest stands last
        tools = [tool for one in [*shown, row] for tool in json.loads(one["tools"])]
        named = {tool["function"]["name"]: tool for tool in tools}
        before = [message for one in shown for message in solved(one)]
        system = [message for message in row["messages"] if message["role"] == "system"]
        messages = [*system, *before, *row["messages"][len(system) :]]
        golds = json.loads(row["gold"]).items()
        gold = {str(int(turn) + len(before)): calls for turn, calls in golds}
        # as agentlite writes a record, with JSON as text
        written = {"tools": json.dumps([*named.values()]), "gold": json.dumps(gold)}
        yield {**row, "messages": messages, **written}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, default=Path("runs/learning"))
    parser.add_argument("--data", default="learn")
    parser.add_argument("--pairs", default="pairs-0")
    options = parser.parse_args()
    run, before = options.run, right(options.run / options.pairs)
    records = rows(run / options.pairs / "records.jsonl")
    without = [row for row in records if not before[row["id"]] and row.get("gold")]
    learned = [*rows(run / options.data / "train.jsonl")]
    kinds = {
        "few-plain": without,
        "few-shown": [*with_shown(without, learned)],
    }
    settings = json.loads((run / options.pairs / "plan.json").read_bytes())["settings"]
    print(
        f"{len(without)} of {len(before)} steps have no right answer in {settings['num_samples']}"
    )
    for name, given in kinds.items():
        file = run / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in given), encoding="utf-8")
        recipe = "--config recipes/best.yaml"
        all_dev = "--dev 1 --test 0 --max-length 2048"
        agentlite(run, f"prep {file} {recipe} {all_dev} --out {name}")
        sampled = f"--data {name} --split dev --model {settings['model']} --gold --seed 1 -b 4"
        tokens = settings["max_new_tokens"]
        agentlite(run, f"pairs {sampled} {recipe} --max-new-tokens {tokens} --out pairs-{name}")
        found = right(run / f"pairs-{name}")
        print(f"{name}: {sum(found.values())} of {len(found)} have one now", flush=True)


def agentlite(run: Path, command: str) -> None:
    program = shlex.split(os.environ.get("AGENTLITE", ".venv/bin/agentlite"))
    subprocess.run([*program, *shlex.split(command), "--run", str(run)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
