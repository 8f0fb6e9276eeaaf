"""The card of an export: what the hub reads, how to prompt it, and what it was made of."""

from pathlib import Path
from typing import Any

import pytest
from support.generated_run import stage

from agentlite.deploy.export.exported_model import ExportedModel
from agentlite.deploy.export.model_card import card
from agentlite.deploy.export.proof import Proof
from agentlite.rendering import choose
from agentlite.rendering.template import Template
from agentlite.report.read_run import read_run
from agentlite.workspace.lookup import Source

PROOF = Proof(12, ["minijinja", "transformers"], [])
BASE = Source("sft", "org/base", None, "d")


@pytest.fixture
def written(templates: dict[str, Template]) -> Any:
    def write(
        kind: str = "merged",
        template: str = "smollm2",
        protocol: str = "hermes",
        proof: Proof = PROOF,
        **changed: Any,
    ) -> str:
        of = templates[template]
        values: dict[str, Any] = {
            "name": "sft",
            "source": BASE,
            "template": of,
            "mixture": choose(protocol, of),
            "lineage": ["org/base", "sft"],
            "stages": [],
            "evaluations": [],
            "max_length": None,
        }
        return card("Weather", kind, "all of it.", ExportedModel(**{**values, **changed}), proof)

    return write


@pytest.mark.parametrize(
    ("kind", "relation", "library"),
    [
        ("merged", "finetune", "transformers"),
        ("adapter", "adapter", "peft"),
        ("gguf", "quantized", "gguf"),
        ("ollama", "quantized", "gguf"),
    ],
)
def test_the_head_names_the_base_and_the_library_that_reads_it(
    kind: str, relation: str, library: str, written: Any
) -> None:
    lines = written(kind).splitlines()
    head = lines[1 : lines.index("---", 1)]
    assert lines[0] == "---" and head == [
        "base_model: org/base",
        f"base_model_relation: {relation}",
        f"library_name: {library}",
        "pipeline_tag: text-generation",
        "tags:",
        "- tool-use",
        "- agentlite",
    ]
    assert "# Weather" in lines


def test_stages_are_named_without_the_folders_of_the_machine_and_with_single_figures(
    written: Any, tmp_path: Path
) -> None:
    settings = {"sources": [str(tmp_path / "rows.jsonl")], "model": str(tmp_path / "base")}
    stage(
        tmp_path / "prep",
        {"command": "prep", "settings": settings, "inputs": {str(tmp_path / "rows.jsonl"): "d1"}},
        rows={"train.jsonl": [{"a": 1}]},
        figures={"kept": 7, "rejects": {"E206": 2}, "lineage": ["unseen"]},
    )
    stages = read_run(tmp_path).stages
    text = written(stages=stages)
    assert str(tmp_path) not in text and "rows.jsonl" in text
    assert "kept" in text and "E206" not in text and "unseen" not in text
    assert stages[0].outputs["train.jsonl"] in text
    assert "No stage of a workspace" in written() and "No stage of a workspace" not in text
    assert "Not evaluated (`agentlite eval`)." in text
    settings["sources"] = ["bfcl:multiple"]
    bfcl = {"command": "prep", "settings": settings, "inputs": {}}
    stage(tmp_path / "prep", bfcl, {}, {})
    of_bfcl = written(stages=read_run(tmp_path).stages)
    assert "leaderboard" in of_bfcl and "leaderboard" not in text
