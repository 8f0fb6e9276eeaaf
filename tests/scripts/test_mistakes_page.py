"""docs/mistakes.md is what the program prints, and every row there can be fixed from the screen."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import processes
from support.samples import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import mistakes_page


def run(words: Sequence[str], folder: Path) -> tuple[int, str]:
    environment = {**processes.environment(), "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": "-1"}
    done = processes.run(
        [sys.executable, "-m", "agentlite", *words],
        input="",
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=processes.TIMEOUT,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_the_page_is_what_the_program_prints() -> None:
    page = mistakes_page.PAGE.read_text(encoding="utf-8")
    assert mistakes_page.page(run) == page, "python scripts/mistakes_page.py writes it anew"
    assert "Traceback" not in page


@pytest.mark.long
@pytest.mark.parametrize("options", ["", mistakes_page.FIXES])
def test_every_row_can_be_fixed_from_what_the_screen_says(options: str, tmp_path: Path) -> None:
    """Rows by hand as the hints say, the others by the options that the hints name."""
    (tmp_path / "rows.jsonl").write_bytes(mistakes_page.FIXED)
    words = ["prep", "rows.jsonl", "--max-rejects", "0.99", "--json", *options.split()]
    code, shown = run(words, tmp_path)
    figures = json.loads(shown[shown.index('{"command"') :].splitlines()[0])["figures"]
    as_they_are = sum(row.fixed is None for row in mistakes_page.ROWS)
    assert code == 0 and figures["rejected"] == (0 if options else as_they_are)
    assert figures["read"] == mistakes_page.FIXED.count(b"\n")
