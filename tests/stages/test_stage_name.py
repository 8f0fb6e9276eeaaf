"""No command writes a stage into a folder whose name is a path, an option, or another command's."""

from pathlib import Path

import pytest
from support.examples import sample

from agentlite.cli.main import group
from agentlite.config.pipeline import STAGES, full_command
from agentlite.config.resolve import UserSettings
from agentlite.core.errors import UserError
from agentlite.stages.api import RESERVED_NAMES, call, target_of

ODD = ["", "x/y", "../evil", "/tmp/x", "a\nb", "\x1b[2J", "a\x7f", "-x", "--out", ".", "..", ".x"]


@pytest.mark.parametrize("command", STAGES)
@pytest.mark.parametrize("name", sample(4, [*ODD, *RESERVED_NAMES]))
def test_no_stage_has_an_odd_name_or_that_of_another_command(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == command:
        return
    argument = {"prep": ["rows.jsonl"], "make": ["dialogs"]}.get(command, [])
    ways = ([], ["--dry-run"], ["--print-config"])
    for way in ways if name else ():  # an empty option is one that is not given
        arguments = [*full_command(command).split(), *argument, f"--out={name}", *way]
        with pytest.raises(UserError) as error:
            group.main(arguments, "agentlite", standalone_mode=False)
        assert error.value.location == "--out" and error.value.problem.isprintable()
    with pytest.raises(UserError) as error:
        call(command, None, {"out": name})
    assert error.value.location == "--out"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["prep", "prep-5", "r 64", "größe", "eval-2", "report", "a.b", "x-"]
)
def test_plain_names_are_taken(name: str) -> None:
    for command in STAGES:
        assert target_of(command, Path(), name, False, False, UserSettings()).out == name
