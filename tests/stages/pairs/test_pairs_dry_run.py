"""What a dry run of pairs counts, what is another ranking, and what needs a gold."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.generated_run import stage
from support.sampled_pairs import sampled
from support.samples import DATA

import agentlite
from agentlite.config.settings import PairsSettings
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.records import Gold, Record, from_row
from agentlite.core.row_files import read_rows
from agentlite.rendering import PROTOCOLS, prompts
from agentlite.stages.pairs import sample
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import load_template

MODEL = "smollm2-135m"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("dry")
    rows = str(DATA / "weather.jsonl")
    agentlite.prep(rows, run=str(run), model=MODEL, protocol="hermes", dev=0.0, test=0.0)
    return run


def dry(run: Path, **options: Any) -> dict[str, Any]:
    given = {"run": str(run), "model": MODEL, "dry_run": True, **options}
    return dict(agentlite.pairs(**given).figures)


def test_the_steps_their_candidates_and_their_prompts_are_counted(run: Path) -> None:
    records = map(from_row, read_rows(run / "prep" / "train.jsonl"))
    asked = prompts(records, lambda _: PROTOCOLS["hermes"], load_template(MODEL))
    lengths = sorted(len(one.ids) for one in asked)
    room = lengths[-2]
    figures = dry(run, num_samples=3, max_new_tokens=20, max_length=room + 20, out="never")
    fitting = [length for length in lengths if length <= room]
    del figures["memory_gib"]
    assert figures == {
        "folder": "new",
        "steps": len(fitting),
        "candidates": 3 * len(fitting),
        "too_long": len(lengths) - len(fitting),
        "prompt_tokens": sum(fitting),
        "longest_prompt": room,
    }
    assert figures["too_long"] > 0


def test_candidates_that_would_be_ranked_again_are_counted(run: Path) -> None:
    candidates = sampled(run)
    assert dry(run, candidates="pairs", out="again") == {
        "folder": "new",
        "candidates": len(candidates),
    }
    assert not (run / "again").exists()


@pytest.mark.parametrize("file", ["candidates.jsonl", "scores.jsonl"])
def test_candidates_or_scores_that_have_changed_are_another_ranking(file: str, run: Path) -> None:
    sampled(run)
    out = f"again-{file.partition('.')[0]}"
    agentlite.pairs(run=str(run), candidates="pairs", out=out)
    assert agentlite.pairs(run=str(run), candidates="pairs", out=out).status == "up to date"
    rows = {
        f"{name}.jsonl": list(read_rows(run / "pairs" / f"{name}.jsonl"))
        for name in ("records", "candidates", "scores")
    }
    rows[file] = rows[file][:-1]
    plan = {"command": "pairs", "settings": run_folder.read_plan(run / "pairs").settings}
    stage(run / "pairs", {**plan, "inputs": {}}, rows, {"pairs": 0})
    with pytest.raises(UserError, match=file.partition(".")[0]) as refused:
        agentlite.pairs(run=str(run), candidates="pairs", out=out)
    assert refused.value.exit_code == OTHER_PLAN


def test_a_gold_that_a_prompt_does_not_have_cannot_be_chosen(dialog: Record) -> None:
    unknown = msgspec.structs.replace(dialog, gold={2: Gold(known=False)})
    own = {"short": 1.0}
    for records, refused in (([dialog], False), ([dialog, unknown], True)):
        prepared: Any = SimpleNamespace(records=lambda found=records: iter(found), location="rows")
        assert sample.chosen_records(PairsSettings(), prepared, own) == records
        if not refused:
            assert sample.chosen_records(PairsSettings(gold=True), prepared, own) == records
            continue
        with pytest.raises(UserError, match="no gold") as found:
            sample.chosen_records(PairsSettings(gold=True), prepared, own)
        assert found.value.location == "--gold"
