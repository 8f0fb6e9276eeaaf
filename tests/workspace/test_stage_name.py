"""No command writes a stage into a folder whose name is a path, an option, or another command's."""

from pathlib import Path
from typing import Any

import pytest
from support.examples import sample

from agentlite.cli.main import group
from agentlite.config.pipeline import STAGES, typed
from agentlite.core.errors import UserError
from agentlite.report import write_report
from agentlite.stages.api import call
from agentlite.workspace.stage_name import TAKEN, refuse_odd_name

ODD = [
    "x/y",
    "../evil",
    "/tmp/x",
    "a\nb",
    "a\tb",
    "\x1b[2J",
    "a\x7f",
    "-x",
    "--out",
    ".",
    "..",
    ".x",
]
WAYS: list[tuple[str, ...]] = [(), ("--dry-run",), ("--print-config",)]


def refused(name: str, command: str) -> bool:
    try:
        refuse_odd_name(name, command)
    except UserError:
        return True
    return False


@pytest.mark.parametrize("name", ODD)
def test_the_refusal_shows_the_name_on_one_line(name: str) -> None:
    with pytest.raises(UserError) as error:
        refuse_odd_name(name, "prep")
    assert error.value.exit_code == 2 and error.value.problem.isprintable()


@pytest.mark.parametrize("command", STAGES)
@pytest.mark.parametrize("name", sample(4, [*ODD, *TAKEN]))
def test_no_stage_has_an_odd_name_or_that_of_another_command(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(name, command) == (TAKEN.get(name) != command)
    if name == command:
        return
    argument = {"prep": ["rows.jsonl"], "make": ["dialogs"]}.get(command, [])
    for way in WAYS:
        arguments = [*typed(command).split(), *argument, f"--out={name}", *way]
        with pytest.raises(UserError) as error:
            group.main(arguments, "agentlite", standalone_mode=False)
        assert error.value.location == "--out"
    options: dict[str, Any] = {"out": name}
    with pytest.raises(UserError) as error:
        call(command, None, options)
    assert error.value.location == "--out"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["prep", "prep-5", "r 64", "größe", "eval-2", "report", "a.b", "x-"]
)
def test_plain_names_are_taken(name: str) -> None:
    assert not any(refused(name, command) for command in STAGES)


def test_an_empty_name_is_refused() -> None:
    assert refused("", "prep")


def test_the_files_of_a_report_are_taken(tmp_path: Path) -> None:
    write_report(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {
        n for n, by in TAKEN.items() if by == "report"
    }
