"""How far a stage is that is not done, by the file that it writes on the way."""

from pathlib import Path

import pytest

from agentlite.cli.run_listing import state_of
from agentlite.workspace.lookup import Plan, read_stage
from agentlite.workspace.stage_folder import open_stage


@pytest.mark.parametrize("rows", [0, 3, 4])
def test_the_whole_rows_are_counted_of_those_that_are_expected(tmp_path: Path, rows: int) -> None:
    with open_stage(tmp_path / "pairs", Plan("pairs", {}, {}), force=False) as one:
        one.expect_rows("candidates.jsonl", 4)
        (one.folder / "candidates.jsonl").write_bytes(b"{}\n" * rows + b'{"half')
    assert state_of(read_stage(tmp_path / "pairs")) == ("half", f"{rows} of 4 candidates")
