"""Prompt templates through the stages: prep draws them, training and eval need no file of them, and
`eval --protocol` asks in templates that the records were not prepared in.
"""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.samples import PROMPT_TEMPLATES

import agentlite
from agentlite.config.settings import EvalSettings
from agentlite.core.errors import UserError
from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows
from agentlite.rendering import PROTOCOLS
from agentlite.stages.eval.subjects import data_folder

pytestmark = pytest.mark.long

CLERK = next(path for path in PROMPT_TEMPLATES if path.stem == "clerk")
OPERATOR = next(path for path in PROMPT_TEMPLATES if path.stem == "operator")


def prep(run: Path, model: Any, **options: Any) -> Any:
    usual = {"protocol": "react", "limit": 30, "dev": 0.0, "test": 0.6, "max_length": 4096}
    return agentlite.prep("bfcl:multiple", run=str(run), model=str(model), **(usual | options))


def records(run: Path, name: str = "test") -> list[Any]:
    return [from_row(row) for row in read_rows(run / "prep" / f"{name}.jsonl")]


def answers(run: Path, file: Path, protocol: str) -> list[str]:
    """What the test records say, as another system that writes in this protocol."""
    rows = []
    for record in records(run):
        (turn,) = record.prompted_turns
        text = PROTOCOLS[protocol].write(record.messages[turn], record.tools)
        rows.append({"record_id": record.id, "turn": turn, "text": text})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [str(file)]


def test_prep_draws_a_template_for_each_record_and_show_prints_it(tmp_path, capsys):
    folder = tmp_path / "templates"
    folder.mkdir()
    for path in (CLERK, OPERATOR):
        shutil.copy(path, folder)
    prep(tmp_path / "run", "smollm2-135m", protocol=f"hermes,{folder}")
    drawn = Counter(
        record.meta["protocol"]
        for name in ("train", "test")
        for record in records(tmp_path / "run", name)
    )
    assert drawn.keys() == {"hermes", "clerk", "operator"} and min(drawn.values()) >= 4


def test_answers_are_read_in_the_protocol_that_is_asked_for(tmp_path):
    run = tmp_path / "run"
    prep(run, "smollm2-135m")
    written = answers(run, tmp_path / "texts.jsonl", "hermes")
    means = {}
    for protocol in ("", str(CLERK), str(OPERATOR)):
        figures = agentlite.evaluate(run=str(run), predictions=written, protocol=protocol).figures
        means[protocol] = figures["texts"]["metrics"]["exact_call"]["mean"]
    assert means == {"": 0.0, str(CLERK): 1.0, str(OPERATOR): 0.0}
    folders = {path.name for path in (run / "eval").iterdir() if path.is_dir()}
    assert len(folders) == 3 and "prep" in folders


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"endpoint": ["http://localhost:1/v1"], "model": ["m"]}, "prompts itself"),
        ({"env": "bfcl:multi_turn_base"}, "--env has none"),
    ],
)
def test_protocol_is_refused_where_agentlite_does_not_write_the_prompt(tmp_path, options, problem):
    prep(tmp_path / "run", "smollm2-135m")
    with pytest.raises(UserError, match=problem) as refused:
        agentlite.evaluate(run=str(tmp_path / "run"), protocol="react", **options)
    assert refused.value.location == "eval.protocol"


def test_an_evaluation_in_weighted_protocols_is_found_where_it_was_begun():
    assert data_folder(EvalSettings(protocol="hermes=2,react")) == "prep-in-hermes-2-react"


def test_a_model_that_was_trained_in_a_template_needs_no_file_of_it(tmp_path, tiny_model):
    run, mine = tmp_path / "run", tmp_path / "mine.txt"
    shutil.copy(CLERK, mine)
    prep(run, tiny_model, protocol=str(mine), limit=12)
    agentlite.sft(run=str(run), model=str(tiny_model), max_steps=1, profile="cpu")
    mine.unlink()
    usual = {"run": str(run), "max_new_tokens": 4, "profile": "cpu"}
    agentlite.evaluate(model=["sft"], **usual)
    agentlite.evaluate(model=["sft"], protocol=str(OPERATOR), **usual)
    for folder, name in (("prep", "mine"), ("prep-in-*operator*", "operator")):
        (file,) = (run / "eval").glob(f"{folder}/sft/predictions.jsonl")
        assert {row["slices"]["protocol"] for row in read_rows(file)} == {name}
