"""`agentlite report` renews the page, and says the result in words."""

import pytest
from support.generated_run import write_run

from agentlite.cli.main import main


@pytest.fixture
def report(monkeypatch, capsys):
    """The command line; returns its exit code and what it printed."""

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["agentlite", "report", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return code, capsys.readouterr()

    return call


@pytest.mark.long
def test_the_page_is_written_anew_and_the_result_is_said(report, tmp_path):
    run = write_run(tmp_path / "weather", ["base", "sft"], 12)
    code, shown = report("--run", run)
    assert code == 0
    first, *_, last = shown.out.splitlines()
    assert "picks the right tool for" in first
    assert last == f"report: {run}/report.html (one file: open it in any browser)"
    assert first in (run / "report.html").read_text("utf-8")
