"""`agentlite report` renews the page, says the result in words, and opens a browser where there is
a screen.
"""

import webbrowser

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


@pytest.fixture
def opened(monkeypatch):
    """The addresses that a browser was asked to open."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


@pytest.mark.long
def test_the_page_is_written_anew_and_the_result_is_said(report, opened, tmp_path):
    run = write_run(tmp_path / "weather", ["base", "sft"], 12)
    code, shown = report("--run", run)
    assert code == 0
    first, *_, last = shown.out.splitlines()
    assert "picks the right tool for" in first
    assert last == f"report: {run}/report.html (one file: open it in any browser)"
    assert first in (run / "report.html").read_text("utf-8")
    assert not opened  # no terminal


@pytest.mark.parametrize(
    ("arguments", "screen", "count"), [([], ":0", 1), ([], "", 0), (["--no-browser"], ":0", 0)]
)
def test_a_browser_opens_where_there_is_a_terminal_and_a_screen(
    report, opened, tmp_path, monkeypatch, arguments, screen, count
):
    run = write_run(tmp_path / "weather", ["base"], 3)
    monkeypatch.setattr("agentlite.cli.commands.report.sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("agentlite.cli.commands.report.sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert report("--run", run, *arguments)[0] == 0
    assert opened == [(run / "report.html").as_uri()] * count
