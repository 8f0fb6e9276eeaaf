"""Completion in a shell: commands, options, values, stages, and files where nothing else is
known.
"""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete
from support.samples import ROOT

from agentlite.cli.main import COMMANDS, group

# As bash does it: the function that was sourced is called with the words, and leaves its answer in
# COMPREPLY.
COMPLETE = """
eval "$(_AGENTLITE_COMPLETE=bash_source agentlite)"
compopt() { printf 'compopt %s %s\\n' "$@"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_agentlite_completion agentlite
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered(*words: str) -> list[str]:
    found = ShellComplete(group, {}, "agentlite", "_AGENTLITE_COMPLETE").get_completions(
        [*words[:-1]], words[-1]
    )
    return ["FILES" if item.type == "file" else item.value for item in found]


def test_commands_and_options_are_completed():
    assert offered("p") == [name for name in COMMANDS if name.startswith("p")]
    assert {"--lora-r", "--lora-alpha", "--lora-dropout"} <= set(offered("sft", "--lora-"))
    assert "--tools" in offered("chat", "--")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("sft", "--engine", ""), ["unsloth", "hf"]),
        (("dpo", "--loss-type", "sim"), ["simpo"]),
        (("sft", "--full", "t"), ["true"]),
        (("sft", "--profile", "rtx"), ["rtx3060", "rtx4090"]),
        (("dpo", "--loss-type", "po"), []),  # the end of simpo, and no beginning
        (("prep", ""), []),
        (("prep", "--holdout", "be"), []),
        (("chat", "sft", "--tools", ""), []),
    ],
)
def test_a_value_is_completed_by_what_it_may_be_and_else_by_files(words, values):
    assert offered(*words) == ["FILES", *values]


@pytest.mark.parametrize("words", [("foo",), ("make", "foo"), ("-",), ("--", "--foo")], ids=str)
def test_behind_a_word_that_is_refused_no_option_is_offered_and_no_error_raised(words):
    assert offered(*words, "--l") == []


def test_a_model_is_completed_by_the_stages_of_the_workspace(tmp_path):
    for name in ("prep", "sft", "sft-r64", "torn"):
        (tmp_path / name).mkdir()
        if name != "torn":
            (tmp_path / name / "plan.json").write_text("{}")
    assert offered("eval", "--run", str(tmp_path), "--model", "s") == ["FILES", "sft", "sft-r64"]
    assert offered("chat", "--run", str(tmp_path), "s") == ["FILES", "sft", "sft-r64"]
    assert offered("chat", "--run", str(tmp_path / "none"), "s") == ["FILES"]
    for words in (["sft", "--data"], ["pairs", "--data"], ["prep", "--from"]):
        typed = [words[0], "--run", str(tmp_path), *words[1:], "p"]
        assert offered(*typed) == ["FILES", "prep"], words


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["agentlite", "pa"], ["pairs"]),
        (["agentlite", "sft", "--warm"], ["--warmup-ratio"]),
        (["agentlite", "prep", "we"], ["compopt -o default", ""]),
    ],
)
def test_bash_completes(words, told, tmp_path):
    program = tmp_path / "agentlite"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentlite "$@"\n')
    program.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        cwd=ROOT,
    )
    assert run.stdout.splitlines() == told, run.stderr
