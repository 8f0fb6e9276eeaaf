"""Completion in a shell: commands and options."""

from click.shell_completion import ShellComplete

from agentlite.cli.main import COMMANDS, group


def offered(*words: str) -> list[str]:
    found = ShellComplete(group, {}, "agentlite", "_AGENTLITE_COMPLETE").get_completions(
        [*words[:-1]], words[-1]
    )
    return [item.value for item in found]


def test_commands_and_options_are_completed():
    assert offered("p") == [name for name in COMMANDS if name.startswith("p")]
    assert {"--lora-r", "--lr"} <= set(offered("sft", "--l"))
    assert "--tools" in offered("chat", "--")
