"""`agentlite retriever` and --retrieve, as they are used: trained, killed, carried on, joined to
prep and eval.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from support.processes import agentlite
from support.processes import run as run_program
from support.samples import ROOT

from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows, row_file
from agentlite.data.formats.sage import TOOLS
from agentlite.retrieval.tool_pool import VECTORS

WORDS = "rain trains letters coins songs bread maps taxes planets poems shoes rivers"
DOES = WORDS.split()
TOWNS = ("Oslo", "Lima", "Rome", "Graz", "Bern", "Cork")
OTHERWISE = {
    "rivers": "Where might we both go swimming",
    "shoes": "Who could sell boots or sandals to me",
}
STEPS = "--max-steps 6 --save-steps 2 --batch-size 4 --negatives 2 --max-length 32"
TRAIN = STEPS.split()
PREPARED = ["--protocol", "hermes", "--set", "prep.split_by=parent", "--test", "0.3"]


def tool(what: str) -> dict[str, Any]:
    town = {"type": "string", "description": "a town"}
    function = {
        "name": f"find_{what}",
        "description": f"Tells all about {what} in a town",
        "parameters": {"type": "object", "properties": {"town": town}, "required": ["town"]},
    }
    return {"type": "function", "function": function}


def row(what: str, town: str, call: bool = True) -> dict[str, Any]:
    answer: dict[str, Any] = {"role": "assistant", "content": "I cannot say."}
    if call:
        function = {"name": f"find_{what}", "arguments": json.dumps({"town": town})}
        call = {"id": "a", "type": "function", "function": function}
        answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    question = OTHERWISE.get(what, f"What about {what} over there")
    asked = {"role": "user", "content": f"{question} in {town}?"}
    return {"messages": [asked, answer], "tools": [tool(what if call else "nothing")]}


@pytest.fixture(scope="module")
def workspace(
    tiny_model: Path, tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """prep and a retriever that was never disturbed."""
    run = tmp_path_factory.mktemp("retriever") / "run with blanks"
    rows = [row(what, town) for what in DOES for town in TOWNS] + [
        row("planets", town, False) for town in TOWNS
    ]
    source = run.parent / "rows.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    told = agentlite("prep", source, "--run", run, "--model", tiny_model, *PREPARED)
    assert told.returncode == 0, told.stderr.decode()
    told = agentlite("retriever", "--run", run, "--model", tiny_encoder, *TRAIN, "--json")
    assert told.returncode == 0, told.stderr.decode()
    (run / "told.json").write_bytes(told.stdout)
    return run


def test_it_tells_every_way_of_ranking_at_every_size_and_what_the_tuned_one_has_over_them(
    workspace,
):
    told = json.loads((workspace / "told.json").read_bytes())["figures"]
    assert (told["tools"], told["names"], told["steps"]) == (13, 13, 6)
    methods = told["ranking"]["all"]
    assert [*methods] == ["bm25", "untrained", "tuned"]
    # the sizes asked for are larger than the pool
    names = ("recall@5", "comp@5", "ndcg@5", "mrr", "map")
    assert [*methods["tuned"]] == [f"{name} of 13" for name in names]
    # most questions name what they ask for
    assert 0.6 < methods["bm25"]["recall@5 of 13"]["mean"] < 1
    assert {one["second"] for one in told["differences"]} == {"tuned"}
    again = agentlite("retriever", "--run", workspace, *same(workspace), "--json")
    assert json.loads(again.stdout)["status"] == "up to date", again.stderr.decode()


def same(workspace: Path) -> list[object]:
    plan = json.loads((workspace / "retriever" / "plan.json").read_bytes())
    return ["--model", plan["settings"]["model"], *TRAIN]


def test_killed_in_training_it_carries_on_and_ends_with_the_same_bits(workspace, tmp_path):
    shutil.copytree(workspace / "prep", tmp_path / "prep")
    arguments = ["retriever", "--run", tmp_path, *same(workspace)]
    killed = run_program(
        [sys.executable, ROOT / "tests/support/kill_at.py", "save 4", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
    )
    assert killed.returncode == -9, killed.stderr.decode()
    done = agentlite(*arguments)
    assert done.returncode == 0, done.stderr.decode()
    assert "carrying on after step 2 of 6" in done.stderr.decode()
    assert "widget" not in done.stderr.decode()  # a bar of the library's
    for name in (VECTORS, "index/tools.jsonl", "pairs.jsonl", "metrics.jsonl", "rankings.jsonl"):
        again, whole = (run / "retriever" / name for run in (tmp_path, workspace))
        assert again.read_bytes() == whole.read_bytes(), name
    weights = "retriever/model/model.safetensors"
    assert (tmp_path / weights).read_bytes() == (workspace / weights).read_bytes()


def test_prep_offers_what_is_brought_and_adds_what_was_not(workspace, tmp_path):
    source = workspace.parent / "rows.jsonl"
    retrieved = ["--out", "prep-3", "--retrieve", "3", "--set", "prep.retrieve_by=bm25", "--json"]
    plan = json.loads((workspace / "prep" / "plan.json").read_bytes())
    same_model = ["--model", plan["settings"]["model"]]
    told = agentlite("prep", source, "--run", workspace, *PREPARED, *same_model, *retrieved)
    assert told.returncode == 0, told.stderr.decode()
    figures = json.loads(told.stdout)["figures"]
    assert (
        figures["read"]
        == figures["kept"] + figures["duplicates"] + figures["rejected"] + figures["filtered"]
    )
    records = [
        from_row(one)
        for split in ("train", "dev", "test")
        for one in read_rows(workspace / "prep-3" / f"{split}.jsonl")
    ]
    assert figures["retrieved"]["records"] == len(records)
    assert all(len(one.tools) == 3 for one in records)
    missing = [one for one in records if one.meta["retrieved"].get("missing")]
    assert len(missing) == figures["retrieved"]["missing"] > 0
    for one in records:
        expected = {call.name for turn in one.turns for call in one.gold_at(turn).calls}
        assert expected <= {tool.name for tool in one.tools}


def test_an_example_of_a_tool_that_asks_a_held_out_question_is_not_learned(workspace, tmp_path):
    from agentlite.stages.retriever import _read_data

    prep = workspace / "prep"
    asked = [
        from_row(one).messages[0].content
        for split in ("test", "dev", "train")
        for one in read_rows(row_file(prep, split))
    ]
    examples = [
        {"instruction": text, "arguments": {}, "expected_output": {}}
        for text in (asked[0].upper(), "Is it wet?")
    ]
    row = {**json.loads(TOOLS.example), "invoke_examples": examples}
    file = tmp_path / "tools.jsonl"
    file.write_text(json.dumps(row) + "\n")
    work = _read_data(prep, [str(file)], trains=True)
    learned = {query.text for query in work.queries["train"]}
    assert "Is it wet?" in learned and asked[0].upper() not in learned
    assert [one["problem"] for one in work.problems if one["code"] == "held out"] == [
        "1 examples ask what dev or test ask: not learned"
    ]
