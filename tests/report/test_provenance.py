"""The origins of a stage, and the command line that makes it again."""

import shlex

import pytest
from support.generated_run import stage

from agentlite.report.provenance import commands, origins
from agentlite.report.read_run import read_run


def made(folder, command, settings, inputs=None, figures=None):
    plan = {"command": command, "settings": settings, "inputs": inputs or {}}
    stage(folder, plan, {}, figures or {}, {})


def words_of(run):
    (line,) = commands(read_run(run))
    return shlex.split(line)


def given(words, option):
    return words[words.index(option) + 1] if option in words else None


@pytest.mark.parametrize("key", ["scores", "rollouts"])
def test_answers_that_are_ranked_again_are_those_of_the_stage_that_drew_them(tmp_path, key):
    made(tmp_path / "grpo", "grpo", {})
    made(tmp_path / "ranked", "pairs", {"candidates": "grpo"}, {key: "a" * 16})
    (tree,) = origins(read_run(tmp_path))
    (read,) = tree.origins
    assert (tree.name, read.role, read.name) == ("ranked", key, "grpo")
    assert read.stage is not None and read.stage.name == "grpo"


@pytest.mark.parametrize(
    ("folder", "data", "protocol"),
    [("prep", None, None), ("rows", "rows", None), ("rows-in-hermes", "rows", "hermes")],
)
def test_an_evaluation_names_its_data_and_the_protocol_that_was_asked_for(
    tmp_path, folder, data, protocol
):
    settings = {"model": "sft", "protocol": "hermes"}
    made(tmp_path / "eval" / folder / "sft", "eval", settings)
    words = words_of(tmp_path)
    assert (given(words, "--data"), given(words, "--protocol")) == (data, protocol)
