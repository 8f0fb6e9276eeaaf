"""How far a stage is that is not done, by the files that it writes on the way."""

from pathlib import Path

import pytest

from agentlite.cli.run_listing import state_of
from agentlite.workspace.stage_folder import Plan, open_stage, read


def detail(folder: Path) -> str:
    return state_of(read(folder)).detail


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (0, "0 of 4 candidates, 4 open"),
        (3, "3 of 4 candidates, 1 open"),
        (4, "4 candidates"),  # with or without questions that were opened meanwhile
        (5, "5 candidates"),
    ],
)
def test_questions_that_are_open_are_those_that_have_no_answer_yet(
    tmp_path: Path, rows: int, expected: str
) -> None:
    with open_stage(tmp_path / "pairs", Plan("pairs", {}, {}), force=False) as one:
        one.expect("candidates.jsonl", 4)
        (one.folder / "candidates.jsonl").write_bytes(b"{}\n" * rows + b'{"half')
    assert detail(tmp_path / "pairs") == expected


def test_an_ablation_says_how_many_commands_it_has_run(tmp_path: Path) -> None:
    with open_stage(tmp_path / "ablate", Plan("ablate", {}, {}), force=False) as one:
        (one.folder / "commands.jsonl").write_bytes(b"{}\n{}\n")
        (one.folder / "answers.jsonl").write_bytes(b"{}\n")
    assert detail(tmp_path / "ablate") == "2 commands"
