"""scripts/examples: what a newcomer reads first runs, here with a model of two random layers."""

import sys

from support.processes import run
from support.samples import ROOT

EXAMPLE = ROOT / "scripts" / "examples" / "minimal.py"


def test_the_minimal_example_goes_from_a_raw_row_to_a_scored_answer(tiny_model):
    command = [sys.executable, EXAMPLE, tiny_model]
    done = run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # the rows, the trained text marked, a loss, an answer, and its score by component
    for step in ("77 records to train on", "⟦", "loss ", "answered: ", "total "):
        assert step in done.stdout


def test_the_minimal_example_is_one_page_without_functions():
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert "def " not in text and "class " not in text
