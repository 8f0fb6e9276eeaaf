"""The exit code and the JSON of each command's ordinary run."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.golden import Golden
from support.processes import agentlite

TINY = ["--max-steps", "1", "-b", "2", "--gradient-accumulation", "1"]
SHORT = ["--max-new-tokens", "6", "--limit", "2"]
COMMANDS: dict[str, list[str]] = {
    "prep": ["prep", "weather.jsonl", "--dev", "0", "--test", "0.4", "--out", "prep-split"],
    "sft": ["sft", *TINY],
    "pairs": ["pairs", *SHORT, "--gold", "--out", "pairs-sampled"],
    "dpo": ["dpo", *TINY],
    "grpo": ["grpo", *TINY, "--group-size", "2", *SHORT],
    "distill": ["distill", *TINY, "--model", "MODEL", *SHORT],
    "eval": ["eval", "--model", "MODEL", "--model", "sft", "--split", "train", *SHORT],
    "export": ["export", "sft", "--merged", "EXPORT"],
    "plan": ["plan", "--model", "MODEL", "--fit", "12GB"],
    "retriever": ["retriever", "--model", "ENCODER", "--max-steps", "1"],
    "rollout": ["rollout", "--env", "bfcl:multi_turn_base", "--model", "gold", "--limit", "1"],
    "ablate": ["ablate", "--dry-run", "--grid", "grid.yaml", "--from", "pairs-sampled"],
    "init": ["init", "HOME"],
    "chat": ["chat", "sft", "--max-new-tokens", "4"],
    "doctor": ["doctor"],
    "runs": ["runs"],
    "report": ["report"],
    "not a setting": ["prep", "weather.jsonl", "--set", "prep.sead=1"],
    "not a file": ["prep", "nowhere.jsonl"],
    "not finished": ["dpo", "--data", "nothing"],
    "other settings": ["sft", *TINY, "--lr", "1e-3"],
}


def shape(value: Any, key: str = "") -> Any:
    """The keys and counts of a value, without its texts and fractions, which may differ."""
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if "/" not in name and name != "by"}
        return {name: shape(inner, key if key == "bytes" else name) for name, inner in kept.items()}
    if isinstance(value, list):
        return [shape(inner, key) for inner in value[:1]]
    return type(value).__name__ if isinstance(value, float | str) or key == "bytes" else value


@pytest.mark.torch
def test_each_command_ends_and_says_so_as_before(
    tiny_run: Path, tiny_model: Path, tiny_encoder: Path, tmp_path: Path, golden: Golden
) -> None:
    places = {"MODEL": tiny_model, "ENCODER": tiny_encoder, "EXPORT": tmp_path / "model"}
    places["HOME"] = tmp_path / "home"
    grid = "by: dpo\nsettings:\n  dpo.beta: [0.1, 0.2]\n"
    (tiny_run / "grid.yaml").write_text(grid, encoding="utf-8")
    for name, words in COMMANDS.items():
        run = [] if name in ("init", "doctor", "plan") else ["--run", tiny_run]
        words = [str(places.get(word, word)) for word in words]
        done = agentlite(*words, *run, "--json", stdin=b"Is it wet?\n", cwd=tiny_run)
        said = json.loads(done.stdout or b"null")
        golden(name, {"exit": done.returncode, "json": shape(said)})
