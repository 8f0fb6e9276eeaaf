"""Completion in a shell: commands, options, values, stages, and files where nothing else is
known.
"""

import pytest
from click.shell_completion import ShellComplete

from agentlite.cli.main import COMMANDS, group


def offered(*words: str) -> list[str]:
    found = ShellComplete(group, {}, "agentlite", "_AGENTLITE_COMPLETE").get_completions(
        [*words[:-1]], words[-1]
    )
    return ["FILES" if item.type == "file" else item.value for item in found]


def test_commands_and_options_are_completed():
    assert offered("p") == [name for name in COMMANDS if name.startswith("p")]
    assert {"--lora-r", "--lr"} <= set(offered("sft", "--l"))
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
